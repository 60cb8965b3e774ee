"""Bounds of a replay as offsets."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidQueryError, StreamNotFoundError
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.replay.request import ReplayRequest, check_start, find_request, parse_bounds
from coldstream.units import TimestampMs
from tests.support.archive import STREAM, ChunkArchive, steady

NOW = TimestampMs(1_769_851_800_000)  # 2026-01-31T09:30:00Z


@pytest.fixture
def archive() -> ChunkArchive:
    archive = ChunkArchive()
    archive.add(10, steady(2, 1000, 2000, 3000))
    return archive


@pytest.mark.parametrize(
    ("start", "end", "found", "offsets"),
    [
        ("first", None, (0, 16), 6),
        ("3", None, (3, 16), 6),
        ("11", "13", (11, 13), 2),
        ("last", "100", (14, 16), 2),
        ("timestamp:2000", "timestamp:3000", (12, 14), 2),
        ("next", None, (16, 16), 0),
        ("first", "4", (0, 4), 0),
        ("14", "12", (14, 14), 0),
        ("40", None, (40, 40), 0),
    ],
)
def test_bounds_are_offsets(
    archive: ChunkArchive, start: str, end: str | None, found: tuple[int, int], offsets: int
) -> None:
    source, archived = find_request(archive.table, archive.objects, STREAM, *parse_bounds(start, end, NOW))
    assert (source.start, source.end) == found
    assert archived == offsets


def test_gaps_are_passed_over_if_so_wanted(archive: ChunkArchive) -> None:
    source, _ = find_request(archive.table, archive.objects, STREAM, *parse_bounds("first", None, NOW), skip_gaps=True)
    assert source == ReplayRequest(STREAM, source.start, source.end, skip_gaps=True)


@pytest.mark.parametrize("end", ["first", "last", "next"])
def test_an_end_is_an_offset_or_a_time(end: str) -> None:
    with pytest.raises(InvalidQueryError, match="--to"):
        parse_bounds("first", end, NOW)


def test_a_stream_of_which_nothing_is_archived_is_not_found(archive: ChunkArchive) -> None:
    stream = StreamId("/", "nothing", Incarnation("__nothing_1763700000000000000"))
    with pytest.raises(StreamNotFoundError):
        find_request(archive.table, archive.objects, stream, *parse_bounds("first", None, NOW))


def test_a_start_that_moves_is_refused_with_the_time_that_it_is_now() -> None:
    with pytest.raises(InvalidQueryError, match=r"--from: -1h .* give 2026-01-31T08:30:00\.000Z"):
        check_start("-1h", NOW)
    for start in ("first", "5", "2026-01-31", "2026-01-31T08:30:00Z"):
        check_start(start, NOW)
