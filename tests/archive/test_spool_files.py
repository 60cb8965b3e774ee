"""Files that are written again: nobody sees what another borrower wrote."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldstream.archive.spool import PlainSpool
from coldstream.archive.spool_files import SpoolFiles


@pytest.fixture
def files(tmp_path: Path) -> Iterator[SpoolFiles]:
    files = SpoolFiles(tmp_path)
    yield files
    files.close()


def test_a_file_that_came_back_is_lent_again(files: SpoolFiles) -> None:
    first = files.lend()
    number = first.fileno()
    first.close()
    with files.lend() as second, files.lend() as third:
        assert second.fileno() == number
        assert third.fileno() != number


def test_a_shorter_fragment_has_nothing_of_the_longer_one_before_it(files: SpoolFiles) -> None:
    for size in (5000, 100, 70_000, 0):
        plain = PlainSpool(None, files)
        plain.write(bytes([size % 251]) * size)
        with plain.finish(b"footer", size + 6, 0, points=0).body as body:
            assert body.read() == bytes([size % 251]) * size + b"footer"
            assert body.seek(0, os.SEEK_END) == size + 6


def test_a_fragment_that_was_given_up_leaves_nothing_to_the_next(files: SpoolFiles) -> None:
    given_up = PlainSpool(None, files)
    given_up.write(bytes(2 << 20))
    given_up.discard()
    plain = PlainSpool(None, files)
    with plain.finish(b"footer", 6, 0, points=0).body as body:
        assert body.read() == b"footer"


def test_who_has_closed_a_file_reads_nothing_of_the_next_borrower(files: SpoolFiles) -> None:
    first = files.lend()
    first.close()
    with files.lend() as second:
        second.write(b"of another")
        for use in (first.read, first.fileno, lambda: first.write(b"x"), lambda: first.seek(0)):
            with pytest.raises(ValueError, match="closed file"):
                use()


def test_a_file_comes_back_once_however_often_it_is_closed(files: SpoolFiles) -> None:
    first = files.lend()
    first.close()
    first.close()
    with files.lend() as second, files.lend() as third:
        assert second.fileno() != third.fileno()


def test_a_file_that_nobody_closed_comes_back_when_it_is_forgotten(files: SpoolFiles) -> None:
    number = files.lend().fileno()
    gc.collect()
    with files.lend() as second:
        assert second.fileno() == number


def test_closing_frees_the_disk_also_of_what_comes_back_later(tmp_path: Path) -> None:
    files = SpoolFiles(tmp_path)
    early, late = files.lend(), files.lend()
    numbers = early.fileno(), late.fileno()
    early.close()
    files.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(numbers[0])
    late.write(b"still there")
    late.seek(0)
    assert late.read() == b"still there"
    late.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(numbers[1])
    assert list(tmp_path.iterdir()) == []
