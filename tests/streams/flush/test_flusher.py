"""Which stream is flushed, and when; and what becomes of a flush that fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import pytest

from coldstream.errors import (
    BadCrcError,
    InvalidSettingError,
    StreamClosedError,
    StreamDeletedError,
    UnavailableError,
)
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.memory.objects import MemoryObjects
from coldstream.streams.archive import DirectArchive
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.streams.flush import flusher as flusher_module
from coldstream.streams.flush.flusher import Flusher
from coldstream.streams.flush.options import FlushOptions
from coldstream.units import Offset
from tests.support.flushing import STREAM, archived, batches, create, direct_archive, entries
from tests.support.removing import delete

NEVER = FlushOptions(fragment_bytes=1 << 20, flush_age_s=3600, wal_bytes=1 << 30)
"""Nothing is due by itself."""


def named(number: int) -> StreamId:
    return StreamId("/", f"direct{number}", Incarnation(f"__direct{number}_1763700000000000000"))


@dataclass
class Pinned:
    """The chunks of each stream."""

    chunks: dict[Incarnation, list[CachedChunk]] = field(default_factory=dict)

    def pinned(self, incarnation: Incarnation) -> Iterable[CachedChunk]:
        return list(self.chunks.get(incarnation, ()))

    def release(self, incarnation: Incarnation, next_offset: Offset) -> None:
        left = [one for one in self.chunks.get(incarnation, ()) if one.next_offset > next_offset]
        self.chunks[incarnation] = left


class GatedObjects(MemoryObjects):
    """Objects whose PUTs wait at a gate, and fail as long as `failures` are left."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.failures = 0
        self.at_once = self.most_at_once = 0
        self.attempts = 0
        self._counting = threading.Lock()

    def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int, note: str | None = None) -> None:
        with self._counting:
            self.attempts += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.failures -= 1
            fails = self.failures >= 0
        try:
            assert self.gate.wait(60)
            if fails:
                raise UnavailableError("S3 does not answer")
            super().put_new(key, body, size_bytes=size_bytes, crc32=crc32, note=note)
        finally:
            with self._counting:
                self.at_once -= 1


@dataclass
class World:
    """A flusher, and what it was told and told."""

    archive: DirectArchive
    objects: GatedObjects
    pinned: Pinned
    flusher: Flusher
    flushed: list[tuple[StreamId, Offset]]

    def append(self, chunks: Sequence[CachedChunk], stream: StreamId = STREAM) -> None:
        """Append chunks, acknowledged at once."""
        for one in chunks:
            self.pinned.chunks.setdefault(stream.incarnation, []).append(one)
            self.flusher.appended(stream, one.next_offset, len(one.data))


@asynccontextmanager
async def world(
    options: FlushOptions = NEVER,
    *,
    streams: Sequence[StreamId] = (STREAM,),
    before_flush: Callable[[StreamId], Awaitable[Offset]] | None = None,
) -> AsyncIterator[World]:
    objects = GatedObjects()
    archive = direct_archive(objects=objects)
    for stream in streams:
        create(archive, stream)
    pinned = Pinned()
    flushed: list[tuple[StreamId, Offset]] = []
    with ThreadPoolExecutor(8) as pool:
        flusher = Flusher(
            archive,
            pinned,
            options,
            pool,
            lambda stream, offset: flushed.append((stream, offset)),
            before_flush=before_flush,
        )
        running = asyncio.create_task(flusher.run())
        try:
            yield World(archive, objects, pinned, flusher, flushed)
        finally:
            objects.gate.set()
            await flusher.close()
            await running


async def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.005)


async def settled() -> None:
    """Let everything go on that waits for nothing."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher_module, "FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(flusher_module, "MAX_DELAY_S", 0.002)


async def test_a_flush_archives_what_is_acknowledged_and_releases_it() -> None:
    async with world() as it:
        chunks = batches(10)
        it.append(chunks[:7])
        # Pinned, and not acknowledged yet.
        it.pinned.chunks[STREAM.incarnation] += chunks[7:]
        assert await it.flusher.flush(STREAM) == chunks[6].next_offset
        assert archived(it.archive) == [one.data for one in chunks[:7]]
        assert it.flushed == [(STREAM, chunks[6].next_offset)]
        assert it.pinned.chunks[STREAM.incarnation] == list(chunks[7:])
        assert it.flusher.unflushed_bytes == 0


async def test_a_flush_of_nothing_says_how_far_the_manifest_is() -> None:
    async with world() as it:
        chunks = batches(3)
        it.append(chunks)
        await it.flusher.flush(STREAM)
        attempts = it.objects.attempts
        assert await it.flusher.flush(STREAM) == chunks[-1].next_offset
        assert it.objects.attempts == attempts


async def test_a_flush_that_has_just_ended_keeps_nobody_waiting() -> None:
    async with world() as it:
        it.flusher._running[STREAM.incarnation] = ended = asyncio.create_task(asyncio.sleep(0, Offset(0)))
        await ended  # and nobody has taken it out yet
        assert await it.flusher.flush(STREAM, Offset(1)) == batches(1)[0].first_offset


async def test_a_stream_that_fills_a_fragment_is_flushed_by_itself() -> None:
    async with world(replace(NEVER, fragment_bytes=2000)) as it:
        chunks = batches(60)
        it.append(chunks)
        await until(lambda: it.flushed)
        assert archived(it.archive) == [one.data for one in chunks]
        # Of about one size, none of them small.
        assert all(1000 < one.data_bytes < 3000 for one in entries(it.archive))


async def test_a_stream_is_flushed_once_its_oldest_batch_is_of_age() -> None:
    async with world(replace(NEVER, flush_age_s=0.05)) as it:
        it.append(batches(2))
        await until(lambda: it.flushed)
        assert len(entries(it.archive)) == 1


async def test_nothing_is_flushed_that_is_not_due() -> None:
    async with world() as it:
        it.append(batches(10))
        await settled()
        assert not it.flushed
        assert not it.objects.attempts


async def test_a_long_write_ahead_log_flushes_the_oldest_stream() -> None:
    quiet, busy = named(1), named(2)
    async with world(replace(NEVER, wal_bytes=3000, at_once=1), streams=(quiet, busy)) as it:
        it.append(batches(1), quiet)
        it.append(batches(5), busy)
        await settled()
        assert not it.flushed
        it.append(batches(50)[5:], busy)
        await until(lambda: it.flushed)
        assert it.flushed[0][0] == quiet


async def test_pressure_flushes_the_largest_stream_first() -> None:
    streams = [named(number) for number in range(4)]
    async with world(replace(NEVER, at_once=1), streams=streams) as it:
        for stream, count in zip(streams, (3, 20, 10, 1), strict=True):
            it.append(batches(count), stream)
        it.flusher.press()
        await until(lambda: it.flushed)
        assert [stream for stream, _ in it.flushed] == [streams[1]]
        it.flusher.press()
        await until(lambda: len(it.flushed) == 2)
        assert it.flushed[1][0] == streams[2]


async def test_pressure_that_finds_no_slot_waits_for_one() -> None:
    streams = [named(0), named(1)]
    async with world(replace(NEVER, at_once=1), streams=streams) as it:
        it.objects.gate.clear()
        it.append(batches(3), streams[0])
        it.flusher.press()
        await until(lambda: it.objects.attempts)
        it.append(batches(3), streams[1])
        it.flusher.press()
        await settled()
        it.objects.gate.set()
        await until(lambda: len(it.flushed) == 2)


async def test_no_more_flushes_run_at_once_than_the_options_say() -> None:
    streams = [named(number) for number in range(7)]
    async with world(replace(NEVER, at_once=3), streams=streams) as it:
        it.objects.gate.clear()
        for stream in streams:
            it.append(batches(2), stream)
        flushes = asyncio.gather(*(it.flusher.flush(stream) for stream in streams))
        await until(lambda: it.objects.at_once == 3)
        await settled()
        it.objects.gate.set()
        await flushes
        assert it.objects.most_at_once == 3
        assert {stream for stream, _ in it.flushed} == set(streams)


async def test_a_flush_that_is_asked_for_during_another_archives_what_came_since() -> None:
    async with world() as it:
        chunks = batches(9)
        it.objects.gate.clear()
        it.append(chunks[:4])
        first = asyncio.create_task(it.flusher.flush(STREAM))
        await until(lambda: it.objects.attempts)
        it.append(chunks[4:])
        enough = asyncio.create_task(it.flusher.flush(STREAM, chunks[2].next_offset))
        all_of_it = asyncio.create_task(it.flusher.flush(STREAM))
        await settled()
        it.objects.gate.set()
        assert await first == chunks[3].next_offset
        assert await enough == chunks[3].next_offset
        assert await all_of_it == chunks[-1].next_offset
        assert archived(it.archive) == [one.data for one in chunks]


async def test_an_archive_that_does_not_answer_is_tried_until_it_does() -> None:
    async with world() as it:
        chunks = batches(4)
        it.append(chunks)
        it.objects.failures = 7
        assert await it.flusher.flush(STREAM) == chunks[-1].next_offset
        assert it.flusher.counts.failures == 7
        assert it.flusher.counts.flushes == 1
        assert archived(it.archive) == [one.data for one in chunks]


async def test_batches_of_a_deleted_stream_are_dropped() -> None:
    async with world() as it:
        chunks = batches(4)
        it.append(chunks)
        delete(it.archive.table, STREAM.incarnation)
        with pytest.raises(StreamDeletedError):
            await it.flusher.flush(STREAM)
        assert it.flushed == []  # it may be undeleted: the write-ahead log is not told until the head gives them up
        assert it.pinned.chunks[STREAM.incarnation] == []
        assert it.flusher.counts.dropped == 1


async def test_a_damaged_batch_stays_and_does_not_stop_other_streams() -> None:
    streams = [named(0), named(1)]
    async with world(replace(NEVER, flush_age_s=0.02, at_once=1), streams=streams) as it:
        one = batches(1)[0]
        it.append([replace(one, data=one.data[:-1] + bytes((one.data[-1] ^ 1,)))], streams[0])
        await until(lambda: it.flusher.counts.failures)
        it.append(batches(3), streams[1])
        await until(lambda: it.flushed)
        assert [stream for stream, _ in it.flushed] == [streams[1]]
        assert it.flusher.halted == {streams[0].incarnation}
        # It is not tried again by itself, without end.
        assert it.flusher.counts.failures == 1
        assert len(it.pinned.chunks[streams[0].incarnation]) == 1
        with pytest.raises(BadCrcError):
            await it.flusher.flush(streams[0])
        it.pinned.chunks[streams[0].incarnation] = [one]
        assert await it.flusher.flush(streams[0]) == one.next_offset
        assert it.flusher.halted == frozenset()


async def test_what_is_appended_before_a_flush_is_part_of_it() -> None:
    chunks = batches(4)
    worlds: list[World] = []

    async def append_last(stream: StreamId) -> Offset:
        await asyncio.sleep(0)
        worlds[0].append(chunks[3:], stream)
        return chunks[-1].next_offset

    async with world(before_flush=append_last) as it:
        worlds.append(it)
        it.append(chunks[:3])
        assert await it.flusher.flush(STREAM) == chunks[-1].next_offset
        assert len(entries(it.archive)) == 1


async def test_what_is_acknowledged_after_that_is_for_the_next_flush() -> None:
    chunks = batches(4)

    async def up_to_the_second(_: StreamId) -> Offset:
        await asyncio.sleep(0)
        return chunks[1].next_offset

    async with world(before_flush=up_to_the_second) as it:
        it.append(chunks)
        assert await it.flusher.flush(STREAM) == chunks[1].next_offset
        assert it.flusher.unflushed_bytes == sum(len(one.data) for one in chunks[2:])


async def test_what_is_left_for_the_next_flush_is_counted_once_if_this_one_fails() -> None:
    chunks = list(batches(4))
    damaged = replace(chunks[0], data=chunks[0].data[:-1] + bytes((chunks[0].data[-1] ^ 1,)))

    async def up_to_the_first(_: StreamId) -> Offset:
        return chunks[0].next_offset

    async with world(before_flush=up_to_the_first) as it:
        it.append([damaged, *chunks[1:]])
        with pytest.raises(BadCrcError):
            await it.flusher.flush(STREAM)
        assert it.flusher.unflushed_bytes == sum(len(one.data) for one in chunks)


async def test_nothing_is_flushed_if_what_comes_before_a_flush_fails() -> None:
    async def refuse(_: StreamId) -> Offset:
        raise UnavailableError("the write-ahead log does not answer")

    async with world(before_flush=refuse) as it:
        it.append(batches(3))
        with pytest.raises(UnavailableError):
            await it.flusher.flush(STREAM)
        assert not entries(it.archive)


async def test_after_close_nothing_is_archived_any_more() -> None:
    async with world() as it:
        it.append(batches(3))
        it.objects.failures = 1 << 30
        flush = asyncio.create_task(it.flusher.flush(STREAM))
        await until(lambda: it.flusher.counts.failures > 1)
        await it.flusher.close()
        with suppress(asyncio.CancelledError):
            await flush
        attempts = it.objects.attempts
        with pytest.raises(StreamClosedError):
            await it.flusher.flush(STREAM)
        await asyncio.sleep(0.02)
        assert it.objects.attempts == attempts
        assert not it.flushed


async def test_who_asks_for_a_flush_may_give_up_and_it_goes_on() -> None:
    async with world() as it:
        it.objects.gate.clear()
        it.append(batches(3))
        flush = asyncio.create_task(it.flusher.flush(STREAM))
        await until(lambda: it.objects.attempts)
        flush.cancel()
        it.objects.gate.set()
        await until(lambda: it.flushed)


@pytest.mark.parametrize(
    "wrong", [{"fragment_bytes": 0}, {"flush_age_s": 0}, {"wal_bytes": 0}, {"at_once": 0}, {"at_once": 65}]
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidSettingError, match=next(iter(wrong))):
        FlushOptions(**wrong)  # type: ignore[arg-type]
