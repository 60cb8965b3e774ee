"""What both faces of the consumer share: its parameters, its tasks in the event loop, and how far it has read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

from coldstream.consumer.archive import StreamArchive
from coldstream.consumer.batch import ChunkBatch, SkippedGap
from coldstream.consumer.broker import ReconnectingBroker
from coldstream.consumer.catchup import ARCHIVE_WAIT_S
from coldstream.consumer.follower import StreamFollower
from coldstream.consumer.items import BatchItems, MessageDelivery, StreamProgress
from coldstream.consumer.retrylog import RetryLog
from coldstream.errors import InvalidInputError, UnavailableError
from coldstream.format.amqp.message import Message
from coldstream.live.address import BrokerAddress
from coldstream.manifest.entry import Gap
from coldstream.manifest.spec import FIRST, OffsetSpec
from coldstream.manifest.stream import check_name
from coldstream.read.client import ResolverClient
from coldstream.units import MIB, Offset


class BaseConsumer:
    """One follower for each stream, whose batches come out of one queue. `Consumer` documents the parameters.

    The coroutines run in one event loop, which the face provides: it calls `_start` there, and `_shut_down` at the end.
    """

    def __init__(
        self,
        stream: str,
        start: OffsetSpec = FIRST,
        *,
        resolver: str | ResolverClient,
        broker: str | BrokerAddress,
        vhost: str = "/",
        name: str | None = None,
        on_gap: Literal["raise", "skip"] = "raise",
        super_stream: bool = False,
        archive_wait_s: float = ARCHIVE_WAIT_S,
        connections: int = 4,
        prefetch_bytes: int = 64 * MIB,
        range_bytes: int = 8 * MIB,
    ) -> None:
        check_name("vhost", vhost)
        check_name("stream name", stream)
        if name is not None:
            check_name("consumer name", name)
        if connections < 1:
            raise ValueError(f"a consumer needs at least one connection, got {connections}")
        if on_gap not in ("raise", "skip"):
            raise ValueError(f"on_gap is 'raise' or 'skip', got {on_gap!r}")
        self._stream = stream
        self._start_spec = start
        self._vhost = vhost
        self._name = name
        self._on_gap = on_gap
        self._is_super = super_stream
        self._archive_wait_s = archive_wait_s
        self._connections = connections
        self._prefetch_bytes = prefetch_bytes
        self._range_bytes = range_bytes
        self._address = BrokerAddress.from_uri(broker) if isinstance(broker, str) else broker
        self._owns_client = isinstance(resolver, str)
        self._client = ResolverClient(resolver, connections=connections) if isinstance(resolver, str) else resolver
        self._items = BatchItems(() if super_stream else (stream,))
        self._brokers: dict[str, ReconnectingBroker] = {}
        self._tasks: list[asyncio.Task[None]] = []
        # One batch waits here and one with each follower. That is all that is read ahead of the caller, apart from what
        # the connections hold: a slow caller stops the followers, and those stop the broker.
        self._queue: asyncio.Queue[ChunkBatch | SkippedGap | Exception] = asyncio.Queue(maxsize=1)
        self._failure: Exception | None = None

    @property
    def streams(self) -> dict[str, StreamProgress]:
        """How far the stream has been read; in a super stream each partition, once the partitions are known."""
        return self._items.streams

    @property
    def position(self) -> Offset | None:
        """The offset after the last item given out, None before the first; for a super stream see `streams`."""
        return None if self._is_super else self.streams[self._stream].position

    @property
    def gaps(self) -> list[Gap]:
        """The gaps that were skipped, of all partitions."""
        return self._items.gaps

    def _start(self) -> None:
        """Start reading, in the running event loop."""
        if self._tasks:
            raise RuntimeError("a consumer can be entered only once")
        self._tasks.append(asyncio.create_task(self._guarded(self._start_followers)))

    async def _shut_down(self) -> None:
        """End everything; takes less than a second."""
        for task in self._tasks:
            task.cancel()
        # Close the connections while the tasks end, not after: a task that says goodbye to a broker that hangs ends
        # only when its connection does.
        await asyncio.gather(
            *(broker.close() for broker in self._brokers.values()), *self._tasks, return_exceptions=True
        )
        # Again, as a task may have opened a connection after the first round closed it.
        await asyncio.gather(*(broker.close() for broker in self._brokers.values()))
        if self._owns_client:
            self._client.close()

    async def _take(self) -> ChunkBatch | SkippedGap:
        """Return what a follower gave next. Raises what ended the consumer, each time."""
        if not self._tasks:
            raise RuntimeError("a consumer is read within its context")
        if self._failure is None:
            item = await self._queue.get()
            if not isinstance(item, Exception):
                return item
            # Keep it: nothing comes through the queue after it, and the next call would wait for ever.
            self._failure = item
        raise self._failure

    async def _store_offset(self, done: int | Message | MessageDelivery, stream: str | None) -> None:
        if self._name is None:
            raise InvalidInputError("name", "offsets are stored under a consumer's name, and this consumer has none")
        if isinstance(done, MessageDelivery):
            stream, done = done.stream, done.message
        stream = stream or (None if self._is_super else self._stream)
        if stream not in self._brokers:
            raise InvalidInputError("stream", f"{stream!r} is no partition of {self._stream!r}")
        offset = done.offset if isinstance(done, Message) else Offset(done)
        await self._brokers[stream].store_offset(stream, self._name, offset)

    async def _start_followers(self) -> None:
        for stream in await self._partitions() if self._is_super else (self._stream,):
            self._tasks.append(asyncio.create_task(self._guarded(self._follower(stream).run)))

    async def _partitions(self) -> tuple[str, ...]:
        """Ask the broker for the partitions until it answers."""
        broker = self._broker(self._stream)
        retry_log = RetryLog(f"super stream {self._stream!r} at the broker")
        try:
            while True:
                try:
                    partitions = await broker.partitions(self._stream)
                except UnavailableError as err:
                    if not err.retryable:
                        raise
                    await broker.renew()
                    await retry_log.pause(err)
                else:
                    retry_log.recovered()
                    # Before any follower runs: `load` looks the stream of each batch up there.
                    self._items.expect(partitions)
                    return partitions
        finally:
            # A super stream stores no offsets itself, so its connection must not be found under its name.
            await self._brokers.pop(self._stream).close()

    def _follower(self, stream: str) -> StreamFollower:
        partitions = len(self.streams)
        archive = StreamArchive(
            self._client,
            self._vhost,
            stream,
            connections=max(1, self._connections // partitions),
            prefetch_bytes=max(1, self._prefetch_bytes // partitions),
            range_bytes=self._range_bytes,
        )
        return StreamFollower(
            stream,
            self._start_spec,
            broker=self._broker(stream),
            archive=archive,
            give=self._queue.put,
            reference=self._name,
            on_gap=self._on_gap,
            archive_wait_s=self._archive_wait_s,
        )

    def _broker(self, stream: str) -> ReconnectingBroker:
        broker = ReconnectingBroker(self._address, self._vhost, name=f"coldstream consumer {stream}")
        self._brokers[stream] = broker
        return broker

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run work, and put what it raises into the queue, so that it comes out after all that was given before."""
        try:
            await work()
        except Exception as err:  # noqa: BLE001  `_take` raises it
            # CancelledError is no Exception, so a task that `_shut_down` cancels does not wait here for room in a queue
            # that nobody empties.
            await self._queue.put(err)
