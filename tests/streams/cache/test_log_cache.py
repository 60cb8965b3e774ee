"""The log cache: pinned until flushed, never with a hole, and every byte given back once."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence

import pytest

from coldstream.streams.cache.budget import MemoryBudget
from coldstream.streams.cache.cached_chunk import CachedChunk, memory_bytes
from coldstream.streams.cache.log_cache import LogCache
from coldstream.units import Offset
from tests.support.cached_chunks import life, opaque_chunk

ONE = memory_bytes(100)
FAR = Offset(1 << 40)


def cache_of(limit_bytes: int = 1 << 20, *, eviction_bytes: int = 1) -> tuple[MemoryBudget, LogCache]:
    budget = MemoryBudget(limit_bytes)
    cache = LogCache(budget, eviction_bytes=eviction_bytes)
    budget.add_evictor(cache.evict)
    return budget, cache


def keep(budget: MemoryBudget, cache: LogCache, firsts: Sequence[int], stream: int = 0) -> list[CachedChunk]:
    chunks = [opaque_chunk(first) for first in firsts]
    for one in chunks:
        assert budget.try_reserve(one.memory_bytes)
        cache.add(life(stream), one)
    return chunks


def read(
    cache: LogCache, offset: int, *, end: int = FAR, max_bytes: int = 1 << 20, stream: int = 0
) -> list[int] | None:
    found = cache.read(life(stream), Offset(offset), Offset(end), max_bytes)
    return None if found is None else [one.first_offset for one in found]


def test_a_read_begins_with_the_chunk_that_holds_its_offset() -> None:
    _, cache = cache_of()
    for first in (10, 15, 20):
        cache.add(life(), opaque_chunk(first, records=5))
    assert read(cache, 10) == [10, 15, 20]
    assert read(cache, 14) == [10, 15, 20]
    assert read(cache, 15) == [15, 20]
    assert read(cache, 24) == [20]


def test_a_read_at_the_end_of_what_is_held_finds_nothing_and_one_outside_of_it_misses() -> None:
    budget, cache = cache_of()
    keep(budget, cache, [10, 11])
    assert read(cache, 12) == []
    assert read(cache, 13) is None
    assert read(cache, 9) is None
    assert read(cache, 10, stream=1) is None
    assert (cache.counts.hits, cache.counts.misses) == (1, 3)


def test_a_read_ends_before_a_chunk_that_begins_at_its_end() -> None:
    _, cache = cache_of()
    for first in (10, 15, 20):
        cache.add(life(), opaque_chunk(first, records=5))
    assert read(cache, 10, end=20) == [10, 15]
    assert read(cache, 10, end=21) == [10, 15, 20]
    assert read(cache, 10, end=10) == []


def test_a_read_has_its_bytes_at_most_or_one_chunk() -> None:
    budget, cache = cache_of()
    keep(budget, cache, range(5))
    assert read(cache, 0, max_bytes=300) == [0, 1, 2]
    assert read(cache, 0, max_bytes=299) == [0, 1]
    assert read(cache, 0, max_bytes=1) == [0]


def test_what_is_pinned_is_never_evicted() -> None:
    budget, cache = cache_of(4 * ONE)
    keep(budget, cache, range(4))
    assert cache.evict(10 * ONE) == 0
    assert not budget.try_reserve(1)
    cache.release(life(), Offset(2))
    assert budget.try_reserve(2 * ONE)
    assert not budget.try_reserve(1)
    assert read(cache, 2) == [2, 3]
    assert [one.first_offset for one in cache.pinned(life())] == [2, 3]


def test_a_chunk_that_straddles_what_is_flushed_stays_pinned() -> None:
    _, cache = cache_of()
    cache.add(life(), opaque_chunk(0, records=5))
    cache.release(life(), Offset(4))
    assert cache.pinned_bytes == ONE
    cache.release(life(), Offset(5))
    assert (cache.pinned_bytes, cache.flushed_bytes) == (0, ONE)


def test_the_oldest_flushed_chunks_of_a_stream_go_first_and_the_newest_last() -> None:
    budget, cache = cache_of()
    keep(budget, cache, range(6))
    cache.release(life(), Offset(6))
    for left in ([2, 3, 4, 5], [4, 5], []):
        assert cache.evict(2 * ONE) == 2 * ONE
        assert (read(cache, left[0]) if left else read(cache, 5)) == (left or None)
    assert cache.first(life()) is None


def test_the_stream_that_was_used_longest_ago_gives_way_first() -> None:
    budget, cache = cache_of()
    for stream in range(3):
        keep(budget, cache, range(2), stream)
        cache.release(life(stream), Offset(2))
    assert read(cache, 0, stream=0) == [0, 1]
    cache.evict(2 * ONE)
    assert [cache.first(life(stream)) for stream in range(3)] == [0, None, 0]
    cache.evict(2 * ONE)
    assert [cache.first(life(stream)) for stream in range(3)] == [0, None, None]


def test_more_than_asked_for_is_evicted_at_a_time_but_never_all_of_a_small_budget() -> None:
    budget, cache = cache_of(64 * 10 * ONE, eviction_bytes=1 << 30)
    keep(budget, cache, range(100))
    cache.release(life(), Offset(100))
    assert cache.evict(1) == 10 * ONE
    assert cache.first(life()) == 10


def test_what_was_read_stays_readable_after_its_eviction() -> None:
    budget, cache = cache_of()
    chunks = keep(budget, cache, range(3))
    cache.release(life(), Offset(3))
    found = cache.read(life(), Offset(0), FAR, 1 << 20)
    cache.evict(3 * ONE)
    assert found == chunks


def test_a_dropped_stream_gives_back_all_that_it_has_pinned_or_not() -> None:
    budget, cache = cache_of()
    keep(budget, cache, range(5))
    keep(budget, cache, range(2), stream=1)
    cache.release(life(), Offset(3))
    cache.drop(life())
    assert (budget.used, cache.pinned_bytes, cache.flushed_bytes) == (2 * ONE, 2 * ONE, 0)
    assert read(cache, 0) is None
    cache.drop(life())
    assert budget.used == 2 * ONE


def test_what_does_not_follow_takes_the_place_of_what_is_flushed_and_is_refused_after_what_is_not() -> None:
    budget, cache = cache_of()
    keep(budget, cache, range(3))
    with pytest.raises(ValueError, match="does not follow 3"):
        cache.add(life(), opaque_chunk(4))
    cache.release(life(), Offset(3))
    keep(budget, cache, [7, 8])
    assert read(cache, 7) == [7, 8]
    assert read(cache, 2) is None
    assert budget.used == 2 * ONE


def test_the_oldest_pinned_chunk_is_that_of_the_stream_that_was_flushed_longest_ago() -> None:
    budget, cache = cache_of()
    assert cache.oldest_pinned() is None
    keep(budget, cache, [5, 6, 7])
    keep(budget, cache, [3, 4], stream=1)
    assert cache.oldest_pinned() == 3
    cache.release(life(1), Offset(5))
    assert cache.oldest_pinned() == 5
    cache.release(life(), Offset(6))
    assert cache.oldest_pinned() == 6


async def test_a_release_lets_in_whoever_waits_for_memory_and_an_add_presses_for_him() -> None:
    budget, cache = cache_of(3 * ONE)
    keep(budget, cache, range(2))
    assert budget.try_reserve(ONE)
    pressed: list[int] = []
    budget.on_pressure = lambda: pressed.append(len(pressed))
    waits = asyncio.create_task(budget.reserve(ONE))
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(pressed) == 1
    # What was under way is durable now: there is more to flush.
    cache.add(life(), opaque_chunk(2))
    assert len(pressed) == 2
    assert not waits.done()
    cache.release(life(), Offset(1))
    await waits
    assert budget.used == 3 * ONE


@pytest.mark.parametrize("seed", range(40))
def test_any_sequence_of_calls_leaves_the_sums_right_and_the_streams_without_a_hole(  # noqa: C901  one call each
    seed: int,
) -> None:
    rng = random.Random(seed)
    budget, cache = cache_of(60 * ONE, eviction_bytes=3 * ONE)
    tails = [0] * 4
    flushed = [0] * 4
    for _ in range(600):
        number = rng.randrange(4)
        what = rng.randrange(6)
        if what < 3:
            records = rng.randrange(1, 4)
            one = opaque_chunk(tails[number], records, rng.randrange(1, 200))
            if budget.try_reserve(one.memory_bytes):
                cache.add(life(number), one)
                tails[number] += records
        elif what == 3:
            flushed[number] = rng.randint(flushed[number], tails[number])
            cache.release(life(number), Offset(flushed[number]))
        elif what == 4:
            at = rng.randint(0, tails[number])
            found = cache.read(life(number), Offset(at), FAR, rng.randrange(1, 1000))
            if found:
                assert found[0].first_offset <= at < found[0].next_offset
                assert all(a.next_offset == b.first_offset for a, b in itertools.pairwise(found))
            elif found is not None:
                assert at == tails[number]
        elif rng.random() < 0.1:
            cache.drop(life(number))
            flushed[number] = tails[number]
        assert budget.used == cache.pinned_bytes + cache.flushed_bytes <= budget.limit_bytes
        for other in range(4):
            pinned = cache.pinned(life(other))
            assert sum(one.memory_bytes for one in pinned) == cache.pinned_bytes_of(life(other))
            if pinned:
                # Whatever was evicted: what is not in the manifest is all there.
                assert pinned[0].first_offset <= flushed[other] < pinned[0].next_offset
                assert pinned[-1].next_offset == tails[other]
            else:
                assert flushed[other] == tails[other]
