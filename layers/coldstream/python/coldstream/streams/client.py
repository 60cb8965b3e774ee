"""`StreamClient`: direct streams of one archive: create, open, list them, and small values by key beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from types import TracebackType
from typing import Self
from weakref import WeakSet, WeakValueDictionary

from coldstream.errors import ColdstreamError, InvalidSettingError, StreamClosedError
from coldstream.manifest.appender import WalKind, WalPlace
from coldstream.manifest.appending import appender_in
from coldstream.manifest.stream import Incarnation
from coldstream.streams.archive import DirectArchive
from coldstream.streams.engine import StreamEngine
from coldstream.streams.handle import DirectStream
from coldstream.streams.key_values import KeyValues
from coldstream.streams.metrics import StreamMetrics
from coldstream.streams.names import PAGE_NAMES, StreamInfo, create_stream, find_stream, list_streams
from coldstream.streams.opening import take_epoch
from coldstream.streams.options import StreamOptions
from coldstream.streams.recovery import recover, state_of
from coldstream.streams.snapshot import open_snapshot
from coldstream.streams.wal.s3_store import S3WalStore
from coldstream.streams.wal.store import WalStore
from coldstream.streams.wals import Wals
from coldstream.units import Offset


class OpenMode(StrEnum):
    """How a stream is opened: to append to it, as the only one who may; or to read it as it is at that moment."""

    READ_WRITE = "read-write"
    SNAPSHOT = "snapshot"


class StreamClient:
    """A process's way to the direct streams of an archive, for one event loop. `open` makes one; close it at the end.

    All its streams share one WAL, whose objects are PUT for all of them together, one memory and one set of threads:
    one client serves thousands of streams.
    """

    def __init__(self, engine: StreamEngine) -> None:
        self._engine = engine
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        # Weak, as the engine keeps what can be appended to; whatever else is dropped needs no close.
        self._handles: WeakValueDictionary[Incarnation, DirectStream] = WeakValueDictionary()
        self._readers: WeakSet[DirectStream] = WeakSet()
        self._opening: set[asyncio.Task[DirectStream]] = set()
        self._closing: asyncio.Task[None] | None = None
        self.key_values = KeyValues(engine.archive.table, engine.call)

    @classmethod
    async def open(
        cls,
        archive: DirectArchive,
        options: StreamOptions = StreamOptions(),  # noqa: B008  frozen
        *,
        wal: WalStore | None = None,
    ) -> Self:
        """Open a client. Its WAL is in `wal`, by default in the archive's bucket. No request is made.

        With a WAL on a disk, in memory or in S3 Express, appends are faster, and a stream that was not closed can only
        be opened where that is. Raises InvalidSettingError for a WAL in another bucket of S3.
        """
        executor = ThreadPoolExecutor(options.threads, thread_name_prefix="coldstream-streams")
        bucket = S3WalStore(archive.objects, archive.keys)
        store = bucket if wal is None else wal
        if wal is not None and wal.kind is WalKind.S3:
            # Of another bucket: others would look for it in the archive's, and take it for empty.
            raise InvalidSettingError("wal", "in S3 is in the archive's bucket; give none, or an ExpressWalStore")
        wals = Wals({WalKind.S3: bucket, store.kind: store})
        return cls(StreamEngine(archive, options, store, wals, executor))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def create(
        self,
        name: str,
        *,
        vhost: str = "/",
        first: Offset = Offset(0),  # noqa: B008  a NewType is its value
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create a stream, empty, whose first batch gets the offset `first`. `properties` have 4,096 bytes at most.

        Of several who create a stream at a time, one does; if it dies in the middle, whoever opens or creates the
        stream next finishes it. Cost: ten requests to the table and three PUTs. Raises StreamExistsError, also for a
        stream of a broker that is archived under these names; OtherClusterError if such a one was, in a cluster;
        InvalidInputError, also for the name of a sharded stream, or of one of its partitions.
        """
        self._check_open()
        await self._engine.call(create_stream, self._engine.archive, vhost, name, first, properties or {})

    async def open_stream(
        self, name: str, *, vhost: str = "/", mode: OpenMode = OpenMode.READ_WRITE, force: bool = False
    ) -> DirectStream:
        """Open a stream: from then on, no earlier handle of it can append, in whatever process it is.

        What was appended before and is not in the archive yet is recovered first. A sealed stream can be opened, too,
        and read. A handle of this client is closed before its stream is opened again. A stream that was not closed, and
        whose WAL cannot be read here, is opened only with `force`: what is in that WAL alone is lost then.

        With SNAPSHOT, nothing is written: the handle has what was durable when it was opened, for good, also of a
        broker's archived stream.

        If the caller is cancelled, the stream is opened all the same, and closed at once.

        Cost: three GetItems, a transaction, a PUT and a Query; to recover, see docs/streams.md. Raises
        StreamNotFoundError, NotClosedError, ExpiredEpochError if others open the stream at the same time.
        """
        self._check_open()
        if mode is OpenMode.SNAPSHOT:
            snapshot = await open_snapshot(self._engine, vhost, name)
            self._check_open()
            self._readers.add(snapshot)
            return snapshot
        # A task of its own: a thread cannot be cancelled, and one that takes an epoch must not outlive the lock.
        opening = asyncio.create_task(self._open(name, vhost, force=force))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(self._close_unwanted)
            raise

    async def _open(self, name: str, vhost: str, *, force: bool) -> DirectStream:
        engine, archive = self._engine, self._engine.archive
        async with self._locks.setdefault((vhost, name), asyncio.Lock()):
            head = await engine.call(find_stream, archive, vhost, name)
            state = state_of(head)
            if state.is_sealed:
                handle = DirectStream(engine, state, None)
                self._readers.add(handle)
                return handle
            older = self._handles.get(head.stream.incarnation)
            if older is not None:
                with suppress(ColdstreamError):  # it is fenced then, and what it has left is recovered like any other
                    await older.close()
            wal = await engine.writer()
            engine.begin_opening(head.stream)
            head = await engine.call(
                take_epoch, archive, head.stream, wal.place, can_read=_any if force else engine.wals.can_read
            )
            await engine.settle(appender_in(head).openings[:-1])
            state = await engine.call(recover, archive, engine.wals, head, engine.fragment_bytes, force=force)
            handle = DirectStream(engine, state, wal)
            assert handle.queue is not None
            engine.add(handle.queue)
            self._handles[head.stream.incarnation] = handle
            return handle

    async def list(self, vhost: str | None = None) -> AsyncGenerator[StreamInfo, None]:
        """Yield the streams of a vhost, or of all, in no order. Cost: one Query a page of 100, which is in memory."""
        self._check_open()
        streams = list_streams(self._engine.archive, vhost)
        while page := await self._engine.call(lambda: list(islice(streams, PAGE_NAMES))):
            for info in page:
                yield info

    def metrics(self) -> StreamMetrics:
        """Return what the client has done since it was opened, and holds now. No request."""
        return self._engine.metrics()

    async def close(self) -> None:
        """Close every stream, then the client. May be called again, and then waits for the same.

        Raises the first error of closing a stream, once all others are closed; what that one has not flushed stays in
        the WAL. A stream is flushed for as long as that takes: whoever does not want to wait may leave, and its WAL is
        recovered by the next opener.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._opening:
            await asyncio.wait(self._opening)
        handles = [*self._handles.values(), *self._readers]
        outcomes = await asyncio.gather(*(handle.close() for handle in handles), return_exceptions=True)
        await self._engine.close()
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def _close_unwanted(self, opening: asyncio.Task[DirectStream]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._engine.spawn(opening.result().close())

    def _check_open(self) -> None:
        if self._closing is not None:
            raise StreamClosedError("the client", "is closed")


def _any(_: WalPlace) -> bool:
    return True
