"""`StreamEngine`: what the handles of a client share: a WAL, a flusher, one memory, and the threads for requests."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import socket
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

from coldstream.errors import ColdstreamError, ExpiredEpochError, StreamClosedError
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.appender import Opening
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.streams.archive import DirectArchive
from coldstream.streams.cache.stream_caches import StreamCaches
from coldstream.streams.flush.flusher import Flusher
from coldstream.streams.metrics import StreamMetrics
from coldstream.streams.opening import give_up_deleted
from coldstream.streams.options import StreamOptions
from coldstream.streams.wal.counters import WalCounters
from coldstream.streams.wal.store import WalStore
from coldstream.streams.wal.writer import WalWriter
from coldstream.streams.wals import Wals
from coldstream.units import Epoch, Offset

LOOK_EVERY_S = 60.0
"""How often a client looks whether others have recovered what its fenced handles left in its WAL."""

_NOT_IN_WRITER = re.compile(r"[^A-Za-z0-9-]+")

_P = ParamSpec("_P")
_T = TypeVar("_T")

log = logging.getLogger(__name__)


class EngineQueue(Protocol):
    """What an engine knows of the batches of a handle."""

    stream: StreamId
    epoch: Epoch

    @property
    def first_epoch(self) -> Epoch:
        """The epoch that the handle was opened with: nothing of an earlier one is this queue's."""
        ...

    def flushed_to(self, next_offset: Offset) -> None:
        """Take note that the manifest has the stream up to an offset."""
        ...

    def fence(self, failure: ColdstreamError) -> None:
        """Append nothing any more."""
        ...

    async def append_snapshot(self) -> Offset:
        """Append what is known of publishers, and return up to where to flush."""
        ...

    def take_durable(self) -> list[tuple[WalWriter, int]]:
        """Take what WALs still keep for the queue."""
        ...


@dataclass(frozen=True, slots=True)
class _LeftBehind:
    """Chunks in this client's WALs that a fenced handle left there, for whoever has its stream now."""

    stream: StreamId
    epoch: Epoch
    durable: Sequence[tuple[WalWriter, int]]


class StreamEngine:
    """What the handles of one client share, in one event loop. Its flusher runs until `close`."""

    def __init__(
        self,
        archive: DirectArchive,
        options: StreamOptions,
        store: WalStore,
        wals: Wals,
        executor: ThreadPoolExecutor,
    ) -> None:
        self.archive = archive
        self.wals = wals
        self.executor = executor
        self.caches = StreamCaches(
            archive.table, archive.objects, executor, options.memory_bytes, threads=options.threads
        )
        self.budget = self.caches.budget
        self.log_cache = self.caches.log
        self.flusher = Flusher(
            archive,
            self.log_cache,
            options.flush,
            executor,
            self._flushed,
            before_flush=self._before_flush,
            on_failed=self._flush_failed,
        )
        self.budget.on_pressure = self.flusher.press
        self.writers: list[WalWriter] = []
        """The WALs of this client, the last one being written. An ended one stays until nothing in it is needed."""
        self.fragment_bytes = options.flush.fragment_bytes
        self._options = options
        self.wal_counters = WalCounters()
        self._store = store
        # Threads of its own: acknowledgements must not wait behind thousands of recoveries. One more trims, and one
        # begins or seals a WAL.
        self._wal_executor = ThreadPoolExecutor(options.wal.in_flight + 2, thread_name_prefix="coldstream-wal")
        self._writer_name = _writer_name(options.writer)
        self._queues: dict[Incarnation, EngineQueue] = {}
        self._left: list[_LeftBehind] = []
        self._not_ended: set[StreamId] = set()
        self._beginning: asyncio.Task[WalWriter] | None = None
        self._stores_lock = asyncio.Lock()
        self._stores: LifecycleStores | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._is_closed = False
        self._running = asyncio.create_task(self.flusher.run(), name="coldstream flusher")

    async def call(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Make blocking requests in a thread. They go on if the caller is cancelled. Raises StreamClosedError."""
        if self._is_closed:
            raise StreamClosedError("the client", "is closed")
        return await asyncio.get_running_loop().run_in_executor(self.executor, partial(work, *args, **kwargs))

    def spawn(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run something that goes on if whoever wants it is cancelled."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def writer(self) -> WalWriter:
        """Return the WAL that is written now: the next one if the last has ended. Cost then: a LIST and a PUT.

        Raises UnavailableError, OutcomeUnknownError.
        """
        if self.writers and self.writers[-1].ended is None and not self.writers[-1].abandoned:
            return self.writers[-1]
        if self._beginning is None:
            # One for all who want it, also if it fails: thousands of streams must not try one after the other.
            self._beginning = self.spawn(self._begin())
        return await asyncio.shield(self._beginning)

    async def lifecycle(self) -> LifecycleStores:
        """Return what trims and deletes. Cost: three GETs, once."""
        async with self._stores_lock:
            if self._stores is None:
                archive = self.archive
                self._stores = await self.call(
                    LifecycleStores.open, archive.table, archive.objects, archive.keys, grace_ms=LONGEST_GRACE_MS
                )
            return self._stores

    def begin_opening(self, stream: StreamId) -> None:
        """Take note that a head may name this client's WAL from now on, whatever becomes of the opening."""
        self._not_ended.add(stream)

    async def settle(self, openings: Sequence[Opening]) -> None:
        """Wait for what failed handles sent to this client's WALs: these are not sealed before they are read."""
        places = {one.wal for one in openings}
        for writer in [one for one in self.writers if one.place in places]:
            await writer.settle()

    def add(self, queue: EngineQueue) -> None:
        """Flush what a queue appends from now on. It has recovered all that earlier ones of its stream left."""
        self._queues[queue.stream.incarnation] = queue
        self._not_ended.discard(queue.stream)
        for left in [one for one in self._left if one.stream == queue.stream]:
            self._give_back(left)

    def metrics(self) -> StreamMetrics:
        """Return what was done and is held. No request."""
        counts = self.flusher.counts
        return StreamMetrics.of(len(self._queues), self.caches, counts, self.wal_counters, self.archive.now())

    def forget(self, queue: EngineQueue, *, is_ended: bool) -> None:
        """Give up a queue that is closed or has failed. What it left in a WAL alone stays there for others.

        Unless its opening `is_ended`, the stream's head may name this client's WALs, which then stay, too.
        """
        incarnation = queue.stream.incarnation
        if self._queues.get(incarnation) is not queue:
            return
        del self._queues[incarnation]
        if not is_ended:
            self._not_ended.add(queue.stream)
        self.flusher.forget(incarnation)
        self.log_cache.drop(incarnation)
        self.leave_behind(queue.stream, queue.epoch, queue.take_durable())

    def leave_behind(self, stream: StreamId, epoch: Epoch, durable: Sequence[tuple[WalWriter, int]]) -> None:
        """Keep what an opening that is over has in WALs, by the sequences of its chunks, until others have it."""
        if durable:
            self._left.append(_LeftBehind(stream, epoch, durable))
            self._looking = self._looking or asyncio.create_task(self._look())

    async def close(self) -> None:
        """End the tasks, after every handle was closed; delete the WALs if nothing in them is needed."""
        await self.flusher.close()
        await asyncio.wait([self._running])
        # They wait for WALs and for the table, which answer or fail, and may leave something behind.
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
            await self._look_once()
        await self._look_at_heads()
        closing = (writer.close(delete_all=not self._not_ended) for writer in self.writers)
        await asyncio.gather(*closing, return_exceptions=True)
        await self.caches.close()
        self._is_closed = True
        self.executor.shutdown(wait=False)
        self._wal_executor.shutdown(wait=False)

    async def _begin(self) -> WalWriter:
        try:
            writer = await WalWriter.begin(
                self._store, self._writer_name, self._options.wal, self._wal_executor, counters=self.wal_counters
            )
        finally:
            self._beginning = None
        self.wals.begin(writer.place)
        writer.on_ended = partial(self.wals.end, writer.place)
        self.writers = [*(one for one in self.writers if one.ended is None or one.untrimmed_bytes), writer]
        return writer

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, ColdstreamError):
            log.error("a task of a stream failed", exc_info=error)

    def _flushed(self, stream: StreamId, next_offset: Offset) -> None:
        queue = self._queues.get(stream.incarnation)
        if queue is not None:
            queue.flushed_to(next_offset)

    def _flush_failed(self, stream: StreamId, error: ColdstreamError) -> None:
        """End a queue of which nothing can come into the archive any more: it must acknowledge nothing further."""
        queue = self._queues.get(stream.incarnation)
        if queue is None or (isinstance(error, ExpiredEpochError) and error.epoch < queue.first_epoch):
            return  # it was a flush of an earlier handle, which has ended since
        queue.fence(error)

    async def _before_flush(self, stream: StreamId) -> Offset:
        queue = self._queues.get(stream.incarnation)
        if queue is None:
            raise StreamClosedError(str(stream), "is not open any more")
        return await queue.append_snapshot()

    async def _look(self) -> None:
        """Look now and then whether what was left behind is in the manifest: else the WAL could never be trimmed."""
        while self._left:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._look_once()
        self._looking = None

    async def _look_once(self) -> None:
        for left in tuple(self._left):
            try:
                head = await self.call(give_up_deleted, self.archive, left.stream)
            except ColdstreamError:
                continue
            appender = None if head is None or head.is_deleted else head.appender
            if left in self._left and (appender is None or left.epoch not in {one.epoch for one in appender.openings}):
                self._give_back(left)

    async def _look_at_heads(self) -> None:
        """Learn which heads of openings that this client did not end itself name none of its WALs any more.

        A WAL that a head names must be there: an opener that finds nothing of it may be looking in the wrong place.
        Cost: that of `give_up_deleted` for each. After a failure the WALs stay.
        """
        places = {writer.place for writer in self.writers}

        async def look(stream: StreamId) -> None:
            head = await self.call(give_up_deleted, self.archive, stream)
            appender = None if head is None else head.appender
            if appender is None or places.isdisjoint(one.wal for one in appender.openings):
                self._not_ended.discard(stream)

        await asyncio.gather(*map(look, tuple(self._not_ended)), return_exceptions=True)

    def _give_back(self, left: _LeftBehind) -> None:
        self._left.remove(left)
        for writer, sequence in left.durable:
            writer.flushed(sequence)


def _writer_name(wanted: str | None) -> str:
    """Return a name that no WAL had before: what is late for an older one of this process must not arrive in a new."""
    name = _NOT_IN_WRITER.sub("-", wanted or socket.gethostname()).strip("-")[:40]
    return f"{name or 'writer'}-{secrets.token_hex(8)}"
