"""Slices of segment files: what is staged of them, read in parts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from coldstream.format.segment import SEGMENT_HEADER
from coldstream.ingest.slice import SegmentSlice
from coldstream.units import Offset

CHUNKS = random.Random(1).randbytes(5000)


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / f"{0:020}.segment"
    path.write_bytes(SEGMENT_HEADER + CHUNKS)
    return path


def parts_of(slice_: SegmentSlice, part_bytes: int) -> list[bytes]:
    with slice_.parts(part_bytes) as parts:
        return list(map(bytes, parts))


def make(path: Path, position: int = 8, end: int = 8 + len(CHUNKS)) -> SegmentSlice:
    return SegmentSlice(path, Offset(0), Offset(10), position, end)


def test_a_slice_is_staged_as_a_segment_of_its_own(segment: Path) -> None:
    middle = make(segment, position=1008, end=4008)
    (staged,) = parts_of(middle, 10_000)
    assert staged == SEGMENT_HEADER + CHUNKS[1000:4000]
    assert middle.size_bytes == len(staged)


@pytest.mark.parametrize("part_bytes", [9, 100, 2504, 5007, 5008, 5009])
def test_parts_are_of_equal_size_but_for_the_last(segment: Path, part_bytes: int) -> None:
    parts = parts_of(make(segment), part_bytes)
    assert b"".join(parts) == segment.read_bytes()
    assert {len(part) for part in parts[:-1]} <= {part_bytes}
    assert 0 < len(parts[-1]) <= part_bytes
    with make(segment).parts(part_bytes) as sized:
        assert list(map(len, sized)) == list(map(len, parts))


def test_what_the_file_has_after_the_slice_is_left_alone(segment: Path) -> None:
    with segment.open("ab") as file:
        file.write(b"not committed")
    assert b"".join(parts_of(make(segment), 999)) == SEGMENT_HEADER + CHUNKS


def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), make(tmp_path / "gone.segment").parts(1000):
        pass


def test_a_file_that_goes_while_it_is_sent_is_still_read(segment: Path) -> None:
    with make(segment).parts(10_000) as (part,):
        segment.unlink()
        assert bytes(part) == SEGMENT_HEADER + CHUNKS


@pytest.mark.parametrize(
    ("first", "following", "position", "end"), [(0, 0, 8, 9), (5, 4, 8, 9), (-1, 4, 8, 9), (0, 4, 7, 9), (0, 4, 9, 9)]
)
def test_a_slice_of_nothing_is_refused(first: int, following: int, position: int, end: int) -> None:
    with pytest.raises(ValueError, match="a slice needs"):
        SegmentSlice(Path("x"), Offset(first), Offset(following), position, end)
