"""Positions of frames, to and from their attribute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import BadSequenceError, BadVersionError, CorruptionError, TruncatedError
from coldstream.manifest.frames import Frames
from coldstream.units import ByteRange

POSITIONS = st.lists(st.integers(0, 1 << 33), min_size=2, max_size=50, unique=True).map(sorted)


@given(POSITIONS)
def test_positions_come_back_as_they_were_written(positions: list[int]) -> None:
    frames = Frames(tuple(positions))
    assert Frames.from_bytes(frames.to_bytes(), source="x") == frames


def test_frames_are_small() -> None:
    assert len(Frames(tuple(range(17, 600 * 400_000, 400_000))).to_bytes()) <= 3 * 601


def test_a_run_of_frames_is_a_range_of_bytes() -> None:
    assert Frames((17, 100, 250, 300)).byte_range(1, 3) == ByteRange(100, 300)


@pytest.mark.parametrize("positions", [(), (1,), (1, 1), (2, 1), (1, 3, 2)])
def test_positions_that_do_not_rise_are_refused(positions: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="rise"):
        Frames(positions)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", BadVersionError),
        (b"\x02\x01\x01", BadVersionError),
        (b"\x01", BadSequenceError),
        (b"\x01\x01", BadSequenceError),
        (b"\x01\x01\x00", BadSequenceError),
        (b"\x01\x01\x81", TruncatedError),
    ],
)
def test_bytes_that_are_no_positions_are_corruption(data: bytes, error: type[CorruptionError]) -> None:
    with pytest.raises(error, match=r"^item x ") as caught:
        Frames.from_bytes(data, source="item x")
    assert type(caught.value) is error


def test_a_number_that_is_cut_short_is_told_where_it_ends() -> None:
    with pytest.raises(TruncatedError) as caught:
        Frames.from_bytes(b"\x01\x01\x81", source="item x")
    assert caught.value.position == 3
