"""`Flusher`: from the memory of a process into the archive, stream by stream, so that its write-ahead log may go.

It decides which stream is flushed and when; `flush_chunks` does it, in a thread. What cannot be archived now is tried
again for ever: the write-ahead log keeps it, and once memory is full, appends wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from coldstream.errors import (
    ColdstreamError,
    ContradictionError,
    CorruptionError,
    ExpiredEpochError,
    StreamClosedError,
    StreamDeletedError,
    StreamNotFoundError,
)
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.retry import Backoff
from coldstream.streams.archive import DirectArchive
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.streams.flush.fragments import even_fragment_bytes, flush_chunks
from coldstream.streams.flush.options import FlushOptions
from coldstream.streams.flush.unflushed import UnflushedStreams
from coldstream.units import Offset

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 30.0

GONE = (StreamDeletedError, ExpiredEpochError)
"""The batches are no part of the archive any more, and nobody will read them."""

FINAL = (*GONE, StreamNotFoundError, CorruptionError, ContradictionError)
"""No further attempt would end otherwise. Anything else may pass: even credentials are renewed."""

log = logging.getLogger(__name__)


class PinnedChunks(Protocol):
    """The chunks that are in the write-ahead log alone, and so must stay in memory."""

    def pinned(self, incarnation: Incarnation) -> Iterable[CachedChunk]:
        """Return those of a stream, in the order of their offsets."""
        ...

    def release(self, incarnation: Incarnation, next_offset: Offset) -> None:
        """Let those below an offset go."""
        ...


@dataclass(slots=True)
class FlushCounts:
    """What a flusher did: flushes that ended, bytes in them, attempts that failed, and what was dropped."""

    flushes: int = 0
    size_bytes: int = 0
    failures: int = 0
    dropped: int = 0


class Flusher:
    """Flushes the streams of one process; all of its methods are for the thread of its event loop.

    `on_flushed(stream, next_offset)` is called once the manifest has a stream up to an offset, or never will have it:
    the write-ahead log may forget it. It is not called for a stream that is deleted. `before_flush(stream)`, if given,
    is awaited before the batches of a flush are chosen, and may append one more; it must not wait for memory, as that
    may be waiting for this very flush. It returns the offset up to which to flush. If it fails, nothing is flushed, and
    the stream is left to who calls `flush`.
    `on_failed(stream, error)`, if given, is called when a flush ended with one of the errors that are FINAL.
    """

    def __init__(
        self,
        archive: DirectArchive,
        log_cache: PinnedChunks,
        options: FlushOptions,
        executor: Executor,
        on_flushed: Callable[[StreamId, Offset], None],
        *,
        before_flush: Callable[[StreamId], Awaitable[Offset]] | None = None,
        on_failed: Callable[[StreamId, ColdstreamError], None] | None = None,
    ) -> None:
        self._archive = archive
        self._log_cache = log_cache
        self._options = options
        self._executor = executor
        self._on_flushed = on_flushed
        self._before_flush = before_flush
        self._on_failed = on_failed
        self._unflushed = UnflushedStreams(options)
        self._running: dict[Incarnation, asyncio.Task[Offset]] = {}
        self._halted: set[Incarnation] = set()
        """Streams whose flush failed for good: only `flush` tries them again."""
        self._slots = asyncio.Semaphore(options.at_once)
        self._calls: set[asyncio.Future[Offset]] = set()
        self._wake = asyncio.Event()
        self._is_pressed = False
        self._is_closed = False
        self.counts = FlushCounts()

    @property
    def halted(self) -> frozenset[Incarnation]:
        """Streams whose flush failed for good, each of which was logged as an error: only `flush` tries them again.

        Their batches stay in memory and in the write-ahead log, which is not trimmed past them.
        """
        return frozenset(self._halted)

    @property
    def unflushed_bytes(self) -> int:
        """Bytes that wait for a flush to begin."""
        return self._unflushed.size_bytes

    def appended(self, stream: StreamId, next_offset: Offset, size_bytes: int) -> None:
        """Take note of an acknowledged batch, which is pinned by now. In the order of a stream's offsets."""
        self._unflushed.add(stream, next_offset, size_bytes, self._now())
        self._wake.set()

    def forget(self, incarnation: Incarnation) -> None:
        """Forget what was appended to a stream that is not this process's any more: others have it in the WAL."""
        self._unflushed.take(incarnation)
        self._halted.discard(incarnation)

    def press(self) -> None:
        """Flush the largest streams now, one at least: memory runs short. Call again if that was not enough."""
        self._is_pressed = True
        self._wake.set()

    async def flush(self, stream: StreamId, up_to: Offset | None = None) -> Offset:
        """Archive what is acknowledged of a stream, up to an offset at least; return how far the manifest has it.

        Cost: see FlushOptions; one GetItem if there is nothing to archive. An archive that does not answer is tried
        again for ever. Raises StreamDeletedError or ExpiredEpochError if the batches are no part of the archive any
        more, and are dropped; StreamClosedError after `close`; StreamNotFoundError, CorruptionError or
        ContradictionError if they cannot be archived, and stay in the write-ahead log.
        """
        incarnation = stream.incarnation
        # One that is done may be there still: to await it would let nothing else run, and so for ever.
        while (running := self._running.get(incarnation)) is not None and not running.done():
            # It may have begun before the last batches came. If it fails, so will the next.
            with suppress(ColdstreamError):
                reached = await asyncio.shield(running)
                if up_to is not None and reached >= up_to:
                    return reached
        return await asyncio.shield(self._start(stream))

    async def run(self) -> None:
        """Flush whatever is due, until `close`."""
        while not self._is_closed:
            self._wake.clear()
            self._start_due()
            timeout = self._unflushed.due_in_s(self._now(), but=self._busy())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), None if self._is_full() else timeout)

    async def close(self) -> None:
        """End without flushing: `flush` the streams first. Waits for the requests under way, which no retry follows."""
        self._is_closed = True
        self._wake.set()
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A thread cannot be cancelled. Once this returns, none of them archives anything.
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _start_due(self) -> None:
        pressed = self._is_pressed
        while not self._is_full():
            # Only now: pressure that finds no slot waits for one.
            self._is_pressed = False
            due = self._unflushed.next_due(self._now(), pressed=pressed, but=self._busy())
            if due is None:
                break
            self._start(due)

    def _start(self, stream: StreamId) -> asyncio.Task[Offset]:
        if self._is_closed:
            raise StreamClosedError(str(stream), "is not flushed any more: its client is closed")
        task = asyncio.create_task(self._flush(stream), name=f"flush {stream}")
        self._running[stream.incarnation] = task
        task.add_done_callback(partial(self._ended, stream))
        return task

    def _ended(self, stream: StreamId, task: asyncio.Task[Offset]) -> None:
        if self._running.get(stream.incarnation) is task:
            del self._running[stream.incarnation]
        self._wake.set()
        if not task.cancelled() and (err := task.exception()) is not None:
            # Said here, as nobody may have awaited it.
            log.error("%s: %s", stream, err, exc_info=None if isinstance(err, ColdstreamError) else err)
            if self._on_failed is not None and isinstance(err, FINAL):
                self._on_failed(stream, err)

    async def _flush(self, stream: StreamId) -> Offset:
        incarnation = stream.incarnation
        async with self._slots:
            limit = await self._prepare(stream)
            taken = self._unflushed.take(incarnation)
            confirmed = Offset(0) if taken is None else taken.next_offset
            chunks = [one for one in self._log_cache.pinned(incarnation) if one.next_offset <= confirmed]
            if limit is not None and limit < confirmed:
                # What was acknowledged since is for the next flush.
                for one in chunks:
                    if one.next_offset > limit:
                        self.appended(stream, one.next_offset, len(one.data))
                        # It is counted there: if this flush fails, it must not be put back a second time.
                        taken = replace(taken, size_bytes=taken.size_bytes - len(one.data)) if taken else None
                chunks = [one for one in chunks if one.next_offset <= limit]
                confirmed = limit
                taken = replace(taken, next_offset=limit) if taken else None
            try:
                reached = await self._archived(stream, chunks)
            except StreamDeletedError:
                # It may be undeleted: the write-ahead log forgets them only once the head says that they are given up.
                self.counts.dropped += 1
                self._halted.discard(incarnation)
                self._log_cache.release(incarnation, confirmed)
                raise
            except GONE:
                self.counts.dropped += 1
                self._done(stream, confirmed)
                raise
            except BaseException:
                if taken is not None:
                    self._unflushed.put_back(taken)
                    self._halted.add(incarnation)
                raise
            self.counts.flushes += 1
            self.counts.size_bytes += sum(len(one.data) for one in chunks)
            self._done(stream, reached)
            return reached

    async def _prepare(self, stream: StreamId) -> Offset | None:
        if self._before_flush is None:
            return None
        try:
            return await self._before_flush(stream)
        except ColdstreamError:
            self._halted.add(stream.incarnation)
            raise

    def _done(self, stream: StreamId, next_offset: Offset) -> None:
        self._halted.discard(stream.incarnation)
        self._log_cache.release(stream.incarnation, next_offset)
        self._on_flushed(stream, next_offset)

    async def _archived(self, stream: StreamId, chunks: list[CachedChunk]) -> Offset:
        """Archive chunks, however often it takes. Raises what no further attempt would mend."""
        fragment_bytes = even_fragment_bytes(sum(len(one.data) for one in chunks), self._options.fragment_bytes)
        call = partial(flush_chunks, self._archive, stream, chunks, fragment_bytes)
        backoff = Backoff(FIRST_DELAY_S, MAX_DELAY_S)
        while True:
            future = asyncio.get_running_loop().run_in_executor(self._executor, call)
            self._calls.add(future)
            future.add_done_callback(self._calls.discard)
            try:
                return await asyncio.shield(future)
            except ColdstreamError as err:
                self.counts.failures += 1
                if isinstance(err, FINAL):
                    raise
                delay_s = backoff.next_delay_s()
                log.warning("%s is not archived, again in %.1f s: %s", stream, delay_s, err)
            await asyncio.sleep(delay_s)

    def _is_full(self) -> bool:
        return len(self._running) >= self._options.at_once

    def _busy(self) -> frozenset[Incarnation]:
        return frozenset((*self._running, *self._halted))

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
