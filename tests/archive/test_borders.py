"""The side of a time border on which a chunk is placed, to the byte and the millisecond."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.archive.borders import HELD_BYTES, Side, TimeBorders
from coldstream.format.chunk import CHUNK_HEADER_BYTES, ChunkHeader, ChunkType
from coldstream.units import TimestampMs
from tests.support.stream_broker import chunk, header_of

EVERY_MS = 1000


def header(kind: ChunkType, timestamp: int = 0, total_bytes: int = 100) -> ChunkHeader:
    return replace(
        header_of(chunk(0, b"")),
        type=kind,
        timestamp=TimestampMs(timestamp),
        data_bytes=total_bytes - CHUNK_HEADER_BYTES,
    )


def user(timestamp: int) -> ChunkHeader:
    return header(ChunkType.USER, timestamp)


def tracking(total_bytes: int) -> ChunkHeader:
    return header(ChunkType.TRACKING_DELTA, 0, total_bytes)


@pytest.mark.parametrize(
    ("timestamp", "side"), [(0, Side.JOIN), (999, Side.JOIN), (1000, Side.PART), (-1, Side.PART), (5000, Side.PART)]
)
def test_a_user_chunk_of_another_window_lies_after_a_border(timestamp: int, side: Side) -> None:
    borders = TimeBorders(EVERY_MS)
    assert borders.take(user(0)) is Side.JOIN
    assert borders.take(user(timestamp)) is side


def test_tracking_chunks_are_held_up_to_a_number_of_bytes_with_their_headers() -> None:
    borders = TimeBorders(EVERY_MS)
    borders.take(user(0))
    assert borders.take(tracking(HELD_BYTES - 60)) is Side.HOLD
    assert borders.take(tracking(60)) is Side.HOLD
    assert borders.take(tracking(60)) is Side.PART
    assert borders.take(tracking(60)) is Side.JOIN
    assert borders.take(user(5000)) is Side.JOIN


def test_after_each_user_chunk_as_many_bytes_are_held_again() -> None:
    borders = TimeBorders(EVERY_MS)
    for _ in range(3):
        assert borders.take(user(0)) is Side.JOIN
        assert borders.take(tracking(HELD_BYTES)) is Side.HOLD


def test_after_a_border_as_many_bytes_are_held_again() -> None:
    borders = TimeBorders(EVERY_MS)
    borders.take(user(0))
    assert borders.take(tracking(HELD_BYTES + 1)) is Side.PART
    borders.take(user(0))
    assert borders.take(tracking(HELD_BYTES)) is Side.HOLD


def test_without_a_window_there_are_no_borders() -> None:
    borders = TimeBorders(None)
    assert {borders.take(each) for each in (user(0), tracking(2 * HELD_BYTES), user(10**9))} == {Side.JOIN}
