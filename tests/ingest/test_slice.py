"""Slices of segment files: what is staged of them, read in parts."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

from coldstream.errors import TruncatedError
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.ingest.slice import SegmentSlice
from coldstream.units import Offset

CHUNKS = random.Random(1).randbytes(5000)


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / f"{0:020}.segment"
    path.write_bytes(SEGMENT_HEADER + CHUNKS)
    return path


def make(path: Path, position: int = 8, end: int = 8 + len(CHUNKS)) -> SegmentSlice:
    return SegmentSlice(path, Offset(0), Offset(10), position, end)


def test_a_slice_is_staged_as_a_segment_of_its_own(segment: Path) -> None:
    middle = make(segment, position=1008, end=4008)
    (staged,) = middle.parts(10_000)
    assert staged == SEGMENT_HEADER + CHUNKS[1000:4000]
    assert middle.size_bytes == len(staged)


@pytest.mark.parametrize("part_bytes", [9, 100, 2504, 5007, 5008, 5009])
def test_parts_are_of_equal_size_but_for_the_last(segment: Path, part_bytes: int) -> None:
    parts = list(make(segment).parts(part_bytes))
    assert b"".join(parts) == segment.read_bytes()
    assert {len(part) for part in parts[:-1]} <= {part_bytes}
    assert 0 < len(parts[-1]) <= part_bytes


def test_what_the_file_has_after_the_slice_is_left_alone(segment: Path) -> None:
    with segment.open("ab") as file:
        file.write(b"not committed")
    assert b"".join(make(segment).parts(999)) == SEGMENT_HEADER + CHUNKS


def test_a_file_that_ends_inside_the_slice_is_told_with_the_place(segment: Path) -> None:
    os.truncate(segment, 2008)
    parts = make(segment).parts(1008)
    assert next(parts) == SEGMENT_HEADER + CHUNKS[:1000]
    with pytest.raises(TruncatedError) as caught:
        next(parts)
    assert (caught.value.source, caught.value.position) == (str(segment), 1008)
    assert (caught.value.expected, caught.value.found) == (1008, 1000)


def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        next(make(tmp_path / "gone.segment").parts(1000))


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels are not told")
def test_the_kernel_is_told_that_what_was_read_is_not_needed(segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, *advice: told.append(advice))
    parts = make(segment, position=1008).parts(2000)
    next(parts)
    assert told == [(1008, 1992, os.POSIX_FADV_DONTNEED)]
    list(parts)
    assert sum(size_bytes for _, size_bytes, _ in told) == 4000


@pytest.mark.parametrize(
    ("first", "following", "position", "end"), [(0, 0, 8, 9), (5, 4, 8, 9), (-1, 4, 8, 9), (0, 4, 7, 9), (0, 4, 9, 9)]
)
def test_a_slice_of_nothing_is_refused(first: int, following: int, position: int, end: int) -> None:
    with pytest.raises(ValueError, match="a slice needs"):
        SegmentSlice(Path("x"), Offset(first), Offset(following), position, end)
