"""The side of a time border on which a chunk is placed, to the byte and the millisecond."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.archive.borders import HELD_BYTES, QuietSpans, Side, TimeBorders
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


QUIET = QuietSpans(min_bytes=300, every_ms=10 * EVERY_MS)


def test_less_than_the_minimum_has_no_border_before_its_longer_span_ends() -> None:
    borders = TimeBorders(EVERY_MS, QUIET)
    assert [borders.take(user(at)) for at in (0, 1000, 9999)] == [Side.JOIN] * 3
    assert borders.take(user(10_000)) is Side.PART


def test_the_minimum_is_counted_from_the_border_to_the_end_of_the_user_chunk() -> None:
    borders = TimeBorders(EVERY_MS, QUIET)
    assert [borders.take(each) for each in (tracking(100), user(0), tracking(99), user(0))][2] is Side.HOLD
    assert borders.take(user(1000)) is Side.PART  # 100 + 100 + 99 + 100
    borders = TimeBorders(EVERY_MS, QUIET)
    assert [borders.take(each) for each in (user(0), user(0), tracking(100))][2] is Side.HOLD
    assert borders.take(user(1000)) is Side.JOIN  # 200: what follows the user chunk lies after the border


def test_what_is_held_before_a_border_counts_after_it() -> None:
    borders = TimeBorders(EVERY_MS, QUIET)
    for each in (user(9000), tracking(150), user(10_000)):
        borders.take(each)
    assert borders.take(user(11_000)) is Side.JOIN  # 150 + 100
    assert borders.take(user(12_000)) is Side.PART  # and 100 more


@pytest.mark.parametrize(("now", "is_over"), [(10_999, False), (11_000, True)])
def test_the_longer_span_is_over_a_short_one_later(now: int, *, is_over: bool) -> None:
    borders = TimeBorders(EVERY_MS, QUIET)
    assert not borders.is_over(TimestampMs(10**9))
    borders.take(user(500))
    assert borders.is_over(TimestampMs(now)) is is_over


def test_a_span_of_enough_is_over_as_soon_as_without_longer_ones() -> None:
    borders = TimeBorders(EVERY_MS, QUIET)
    for _ in range(3):
        borders.take(user(500))
    assert not borders.is_over(TimestampMs(1999))
    assert borders.is_over(TimestampMs(2000))


def test_a_clock_behind_the_last_chunk_ends_nothing() -> None:
    for quiet in (None, QUIET):
        borders = TimeBorders(EVERY_MS, quiet)
        borders.take(user(50_000))
        assert not borders.is_over(TimestampMs(0))


@given(
    chunks=st.lists(
        st.one_of(
            st.integers(0, 40_000).map(user),
            st.integers(CHUNK_HEADER_BYTES, HELD_BYTES // 2).map(tracking),
        ),
        max_size=60,
    ),
    min_bytes=st.integers(1, 2 * HELD_BYTES),
)
def test_whoever_begins_at_a_border_finds_the_same_ones_after_it(chunks: list[ChunkHeader], min_bytes: int) -> None:
    """For any split at borders: replicas, restarts, and the upload function with a slice of the segment."""
    quiet = QuietSpans(min_bytes, 10 * EVERY_MS)

    def positions(start: int) -> list[int]:
        borders, found, last = TimeBorders(EVERY_MS, quiet), [], start
        for at, each in enumerate(chunks[start:], start):
            if borders.take(each) is Side.PART:
                found.append(last)
            if each.type is ChunkType.USER:
                last = at + 1
        return found

    whole = positions(0)
    for border in whole:
        assert positions(border) == [at for at in whole if at > border]
    # Without the longer spans there are the same borders and more, and each longer span ends at one.
    for at, each in enumerate(chunks):
        following = next((one for one in chunks[at + 1 :] if one.type is ChunkType.USER), None)
        if each.type is ChunkType.USER and following is not None:
            is_another = each.timestamp // quiet.every_ms != following.timestamp // quiet.every_ms
            held = chunks[at + 1 : chunks.index(following, at + 1)] if following in chunks[at + 1 :] else []
            if is_another and sum(one.total_bytes for one in held) <= HELD_BYTES:
                assert at + 1 in whole
