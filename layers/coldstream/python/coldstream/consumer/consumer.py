"""A consumer that never notices the border between the archive and the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Literal, Self

from coldstream.consumer.archive import StreamArchive
from coldstream.consumer.batch import ChunkBatch
from coldstream.consumer.broker import ReconnectingBroker
from coldstream.consumer.follower import StreamFollower
from coldstream.consumer.items import BatchItems, MessageDelivery, StreamProgress
from coldstream.consumer.retrylog import RetryLog
from coldstream.errors import InvalidInputError, UnavailableError
from coldstream.format.amqp.message import Message
from coldstream.format.chunk import Chunk
from coldstream.live.address import BrokerAddress
from coldstream.manifest.entry import Gap
from coldstream.manifest.spec import FIRST, OffsetSpec
from coldstream.manifest.stream import check_name
from coldstream.read.client import ResolverClient
from coldstream.units import MIB, Offset

ARCHIVE_WAIT_S = 300.0


class Consumer:
    """Reads a stream without end: the archive first, then live, and the archive again should retention be faster.

    Gives every message from `start` on exactly once and in the stream's order. With `name`, an offset stored under it
    at the broker comes before `start`: reading goes on with the message after that. A gap in the archive that the
    broker cannot fill raises GapError; with `on_gap` "skip" it is added to `gaps` and passed over.

    With `super_stream`, `stream` is a super stream: its partitions, as they are when reading begins, are read at once,
    each in its own order and from the same `start`.

    Use it as an asynchronous context manager, which ends everything it began, and iterate `messages`, `deliveries` or
    `chunks`. An iteration may be left, and another of its kind goes on behind the last item given.

    A broker that is away is tried again for ever. The resolver may be away, and offsets may be neither at the broker
    nor archived yet, for `archive_wait_s`. Both are logged. What raises ends the consumer: GapError, IncarnationError
    where the stream was deleted and declared again, StreamNotFoundError, AccessDeniedError, UnavailableError,
    CorruptionError.

    Memory: `prefetch_bytes` and one range of `range_bytes` or so for each of `connections` out of the archive, shared
    among partitions; live ten chunks a stream. Who is slow stops the broker, not the memory.
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
            raise ValueError(f"a consumer needs a connection, got {connections}")
        if on_gap not in ("raise", "skip"):
            raise ValueError(f"on_gap is raise or skip, got {on_gap!r}")
        self._stream = stream
        self._start = start
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
        self.intake = BatchItems(() if super_stream else (stream,))
        self._links: dict[str, ReconnectingBroker] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._portions: asyncio.Queue[ChunkBatch | Exception] = asyncio.Queue(maxsize=1)
        self._failure: Exception | None = None

    @property
    def streams(self) -> dict[str, StreamProgress]:
        """How far the stream has been read; of a super stream each partition, once they are known."""
        return self.intake.streams

    @property
    def position(self) -> Offset | None:
        """The offset after the last item given, None before the first; for a super stream see `streams`."""
        return None if self._is_super else self.streams[self._stream].position

    @property
    def gaps(self) -> list[Gap]:
        """The gaps that were passed over, of all partitions."""
        return self.intake.gaps

    async def __aenter__(self) -> Self:
        if self._tasks:
            raise RuntimeError("a consumer is entered once")
        self._tasks.append(asyncio.create_task(self._guarded(self._begin)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None
    ) -> None:
        """End everything; takes less than a second."""
        for task in self._tasks:
            task.cancel()
        # At once with the tasks: what they say to the broker on their way out ends with the connections.
        await asyncio.gather(*(link.close() for link in self._links.values()), *self._tasks, return_exceptions=True)
        await asyncio.gather(*(link.close() for link in self._links.values()))
        if self._owns_client:
            self._client.close()

    async def messages(self) -> AsyncIterator[Message]:
        """Yield messages, none of them before the offset, or before the first chunk of the time, asked for."""
        intake = self.intake
        intake.begin("messages")
        while True:
            for message in intake.messages:
                yield message
            intake.load(await self.take())

    async def deliveries(self) -> AsyncIterator[MessageDelivery]:
        """Yield messages together with the stream that each is of. May take turns with `messages`."""
        intake = self.intake
        intake.begin("messages")
        while True:
            for message in intake.messages:
                yield MessageDelivery(intake.stream, message)
            intake.load(await self.take())

    async def chunks(self) -> AsyncIterator[Chunk]:
        """Yield user chunks. The first holds the offset asked for, and may begin before it."""
        intake = self.intake
        intake.begin("chunks")
        while True:
            for chunk in intake.chunks:
                yield chunk
            intake.load(await self.take())

    async def take(self) -> ChunkBatch:
        """Return the next chunks as they came, to be loaded into `intake`. Raises what ends the consumer."""
        if not self._tasks:
            raise RuntimeError("a consumer is read within its context")
        if self._failure is None:
            portion = await self._portions.get()
            if isinstance(portion, ChunkBatch):
                return portion
            self._failure = portion
        raise self._failure

    async def store_offset(self, done: int | Message | MessageDelivery, *, stream: str | None = None) -> None:
        """Store the offset of the last message done at the broker, under the consumer's name.

        Of a super stream, give a Delivery, or say which partition. Returns when the broker has it, which is one round
        trip. Raises UnavailableError when the broker cannot be reached now, StreamNotFoundError, AccessDeniedError.
        """
        if self._name is None:
            raise InvalidInputError("name", "offsets are stored under a consumer's name, and it has none")
        if isinstance(done, MessageDelivery):
            stream, done = done.stream, done.message
        stream = stream or (None if self._is_super else self._stream)
        if stream not in self._links:
            raise InvalidInputError("stream", f"{stream!r} is no partition of {self._stream!r}")
        offset = done.offset if isinstance(done, Message) else Offset(done)
        await self._links[stream].store_offset(stream, self._name, offset)

    def _link(self, stream: str) -> ReconnectingBroker:
        link = self._links[stream] = ReconnectingBroker(
            self._address, self._vhost, name=f"coldstream consumer {stream}"
        )
        return link

    async def _begin(self) -> None:
        """Start following every partition."""
        for stream in await self._partitions() if self._is_super else (self._stream,):
            self._tasks.append(asyncio.create_task(self._guarded(self._follower(stream).run)))

    async def _partitions(self) -> tuple[str, ...]:
        link = self._link(self._stream)
        outage = RetryLog(f"super stream {self._stream!r} at the broker")
        try:
            while True:
                try:
                    partitions = await link.partitions(self._stream)
                except UnavailableError as err:
                    if not err.retryable:
                        raise
                    await link.renew()
                    await outage.pause(err)
                else:
                    outage.over()
                    self.intake.expect(partitions)
                    return partitions
        finally:
            await self._links.pop(self._stream).close()

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
            self._start,
            broker=self._link(stream),
            archive=archive,
            give=self._portions.put,
            reference=self._name,
            on_gap=self._on_gap,
            archive_wait_s=self._archive_wait_s,
        )

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run work; what it raises comes out behind what has been given before."""
        try:
            await work()
        except Exception as err:  # noqa: BLE001  it is raised where the next portion is asked for
            await self._portions.put(err)
