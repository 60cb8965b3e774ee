"""Marks tell files that changed from files that did not, and say nothing of what changed just now."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from coldstream.agent.disk.file_marks import UNSURE_NS, FileMarks

LONG_AGO = time.time_ns() - 100 * UNSURE_NS


def age(*paths: Path, to: int = LONG_AGO) -> None:
    for path in paths:
        os.utime(path, ns=(to, to))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "a.segment"
    file.write_bytes(b"chunks")
    age(file)
    return file


def test_files_that_did_not_change_have_the_same_marks(file):
    marks = FileMarks.take(file)
    assert marks is not None
    assert FileMarks.take(file) == marks


def test_a_file_that_grew_within_the_same_tick_has_other_marks(file):
    marks = FileMarks.take(file)
    file.write_bytes(b"chunks and more")
    age(file)
    assert FileMarks.take(file) not in {None, marks}


def test_a_file_that_was_written_over_has_other_marks(file):
    marks = FileMarks.take(file)
    file.write_bytes(b"others")
    age(file, to=LONG_AGO + 1)
    assert FileMarks.take(file) not in {None, marks}


def test_another_file_of_the_same_name_time_and_size_has_other_marks(file):
    marks = FileMarks.take(file)
    fresh = file.with_suffix(".new")
    fresh.write_bytes(b"others")
    age(fresh)
    fresh.replace(file)
    assert FileMarks.take(file) not in {None, marks}


def test_a_file_that_comes_into_a_directory_changes_its_marks(tmp_path):
    directory = tmp_path / "stream"
    directory.mkdir()
    age(directory)
    marks = FileMarks.take(directory)
    (directory / "b.segment").touch()
    assert directory.stat().st_mtime_ns != LONG_AGO
    age(directory, to=LONG_AGO + 1)
    assert FileMarks.take(directory) not in {None, marks}


def test_what_changed_just_now_or_after_the_clock_was_set_back_has_no_marks(file):
    age(file, to=time.time_ns())
    assert FileMarks.take(file) is None
    age(file, to=time.time_ns() + 1000 * UNSURE_NS)
    assert FileMarks.take(file) is None


def test_what_is_gone_has_no_marks(file, tmp_path):
    assert FileMarks.take(file, tmp_path / "gone") is None
