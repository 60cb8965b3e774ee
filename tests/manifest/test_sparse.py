from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import BadVersionError, CorruptionError, TruncatedError
from coldstream.manifest.sparse import SparseIndex, SparsePoint, greatest
from coldstream.units import MAX_OFFSET, MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS, ChunkId, Offset, TimestampMs

TIMESTAMPS = st.integers(MIN_TIMESTAMP_MS, MAX_TIMESTAMP_MS)


def point(chunk_id: int, ordinal: int, position: int, timestamp: int, greatest_before: int) -> SparsePoint:
    return SparsePoint(ChunkId(chunk_id), ordinal, position, TimestampMs(timestamp), TimestampMs(greatest_before))


def index_of(times: list[int], *, every: int) -> SparseIndex:
    """An index with a point at every so-manieth of chunks of ten records and 100 bytes each."""
    before = [times[0], *accumulate(times, max)]
    chunks = [point(10 * n, n, 8 + 100 * n, time, before[n]) for n, time in enumerate(times)]
    return SparseIndex(tuple(chunks[::every]))


@st.composite
def indexes(draw: st.DrawFn) -> SparseIndex:
    steps = st.tuples(st.integers(0, 1 << 20), st.integers(0, 100), st.integers(0, 1 << 27), TIMESTAMPS, TIMESTAMPS)
    chunk_id, ordinal, position = draw(st.integers(0, MAX_OFFSET - (1 << 27))), 0, 8
    points = []
    for chunk_step, ordinal_step, position_step, timestamp, before in draw(st.lists(steps, min_size=1, max_size=70)):
        points.append(point(chunk_id, ordinal, position, timestamp, before))
        chunk_id, ordinal, position = chunk_id + chunk_step, ordinal + ordinal_step, position + position_step
    return SparseIndex(tuple(points))


@given(indexes())
def test_an_index_comes_back_from_its_bytes(index: SparseIndex) -> None:
    assert SparseIndex.from_bytes(index.to_bytes(), source="entry") == index


def test_the_bytes_of_an_index_are_these() -> None:
    index = SparseIndex((point(300, 0, 8, 1000, 1000), point(428, 3, 1_048_584, 999, 1002)))
    assert index.to_bytes().hex(" ") == "01 ac 02 00 08 d0 0f 00 80 01 03 80 80 40 01 05"


def test_an_index_takes_less_than_eleven_bytes_a_point() -> None:
    points = [
        point(n * 5000, n * 3, 8 + n * 1_048_601, 1_763_700_000_000 + 37 * n, 1_763_700_000_000 + 37 * n - 12)
        for n in range(64)
    ]
    assert len(SparseIndex(tuple(points)).to_bytes()) < 64 * 11


def test_an_index_without_points_is_none() -> None:
    with pytest.raises(ValueError, match="at least the first"):
        SparseIndex(())


@pytest.mark.parametrize(
    ("offset", "found"), [(0, 0), (99, 0), (100, 0), (129, 0), (130, 1), (159, 1), (160, 2), (MAX_OFFSET, 2)]
)
def test_an_offset_is_found_at_the_last_point_before_it(offset: int, found: int) -> None:
    index = SparseIndex(tuple(point(chunk_id, n, 8 + n, 0, 0) for n, chunk_id in enumerate((100, 130, 160))))
    assert index.at_offset(Offset(offset)) == found


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=30), st.integers(-6, 6), st.integers(1, 5))
def test_a_timestamp_is_found_in_the_stretch_that_begins_at_its_point(
    times: list[int], sought: int, every: int
) -> None:
    index = index_of(times, every=every)
    found = index.at_timestamp(TimestampMs(sought))
    begins = index.points[found].ordinal
    ends = index.points[found + 1].ordinal if found + 1 < len(index.points) else len(times)
    first = next((n for n, time in enumerate(times) if time >= sought), None)
    if first is None:
        assert found == len(index.points) - 1
    else:
        assert begins <= first < ends


@pytest.mark.parametrize("data", [b"", b"\0", b"\2\0\0\0\0\0"])
def test_another_version_is_refused(data: bytes) -> None:
    with pytest.raises(BadVersionError) as caught:
        SparseIndex.from_bytes(data, source="entry 7")
    assert caught.value.source == "entry 7"


def test_an_index_cut_anywhere_is_refused_or_shorter_by_whole_points() -> None:
    index = index_of([1000, 2_000_000, 3000], every=1)
    data = index.to_bytes()
    whole = {len(SparseIndex(index.points[:n]).to_bytes()): n for n in range(1, 4)}
    for length in range(len(data)):
        if length in whole:
            assert SparseIndex.from_bytes(data[:length], source="").points == index.points[: whole[length]]
        else:
            with pytest.raises(CorruptionError):
                SparseIndex.from_bytes(data[:length], source="")
    with pytest.raises(TruncatedError):
        SparseIndex.from_bytes(data[:-1], source="")


def test_points_out_of_order_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="byte"):
        SparseIndex((point(10, 0, 8, 0, 0), point(9, 1, 9, 0, 0))).to_bytes()


def test_the_greatest_timestamp_is_of_those_that_are_there() -> None:
    assert greatest([None, TimestampMs(-5), TimestampMs(-9)]) == -5
    assert greatest([None]) is None
    assert greatest([]) is None
