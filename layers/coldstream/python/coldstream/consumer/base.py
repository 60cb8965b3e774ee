"""What both faces of the consumer share: its parameters, its tasks in the event loop, and how far it has read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal

from coldstream.consumer.batch import BatchItem, ReachedOffset
from coldstream.consumer.catchup import ARCHIVE_WAIT_S
from coldstream.consumer.grouped import GroupedStream
from coldstream.consumer.items import BatchItems, MessageDelivery, StreamProgress
from coldstream.consumer.makers import FollowerMaker, FollowOptions
from coldstream.consumer.order import ShardOrder, check_order, gate_of
from coldstream.consumer.shard_maps import ShardMapSource
from coldstream.consumer.sharded import ShardedStream
from coldstream.consumer.super_stream import super_stream_partitions, tell_of_map
from coldstream.errors import InvalidInputError, StreamNotFoundError, UnavailableError
from coldstream.format.amqp.message import Message
from coldstream.groups.consumer_group import ConsumerGroup
from coldstream.live.address import BrokerAddress
from coldstream.manifest.entry import Gap
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.shard_position import ShardPosition
from coldstream.manifest.shard_starts import ShardStart
from coldstream.manifest.spec import FIRST
from coldstream.manifest.stream import check_name
from coldstream.read.client import ResolverClient
from coldstream.units import MIB, Offset

log = logging.getLogger(__name__)

MAP_WAIT_S = 2.0
"""How long a super stream waits for a resolver that is away to tell of a map. Without it, it starts as it is now."""


class BaseConsumer:
    """One follower for each stream, whose batches come out of one queue. `Consumer` documents the parameters.

    The coroutines run in one event loop, which the face provides: it calls `_start` there, and `_shut_down` at the end.
    """

    def __init__(
        self,
        stream: str,
        start: ShardStart = FIRST,
        *,
        resolver: str | ResolverClient,
        broker: str | BrokerAddress,
        vhost: str = "/",
        name: str | None = None,
        on_gap: Literal["raise", "skip"] = "raise",
        super_stream: bool | None = None,
        group: ConsumerGroup | None = None,
        order: ShardOrder = "key",
        merge_wait_s: float = 1.0,
        archive_wait_s: float = ARCHIVE_WAIT_S,
        connections: int = 4,
        prefetch_bytes: int = 64 * MIB,
        range_bytes: int = 8 * MIB,
    ) -> None:
        check_name("vhost", vhost)
        check_name("stream name", stream)
        check_order(order)
        options = FollowOptions(vhost, name, on_gap, archive_wait_s, connections, prefetch_bytes, range_bytes)
        if super_stream is False and isinstance(start, ShardPosition):
            raise ValueError("a position of a sharded stream is no start of another stream")
        if group is not None and (name is not None or super_stream is False):
            raise ValueError("a group is of a sharded stream, and takes the place of a name")
        self._group = group
        self._stream = stream
        self._start_spec = start
        self._is_super = super_stream
        self._order = order
        self._merge_wait_s = merge_wait_s
        self._archive_wait_s = archive_wait_s
        address = BrokerAddress.from_uri(broker) if isinstance(broker, str) else broker
        self._owns_client = isinstance(resolver, str)
        self._client = ResolverClient(resolver, connections=connections) if isinstance(resolver, str) else resolver
        self._maker = FollowerMaker(stream, self._client, address, options)
        self._maps = ShardMapSource(stream, partial(self._client.shard_map, vhost, stream))
        self._sharded: ShardedStream | None = None
        self._items = BatchItems(() if super_stream else (stream,))
        self._tasks: list[asyncio.Task[None]] = []
        # One batch waits here and one with each follower. That is all that is read ahead of the caller, apart from what
        # the connections hold: a slow caller stops the followers, and those stop the broker.
        self._queue: asyncio.Queue[BatchItem | Exception] = asyncio.Queue(maxsize=1)
        self._failure: Exception | None = None
        self._has_given = False

    @property
    def streams(self) -> dict[str, StreamProgress]:
        """How far the stream has been read; of a sharded one each partition, once the partitions are known."""
        return self._items.streams

    @property
    def position(self) -> Offset | ShardPosition | None:
        """The offset after the last item given out, None before the first.

        Of a sharded stream the position of all partitions, None until their starts are known; None of a super stream
        without a map, for which see `streams`.
        """
        if self._sharded is not None:
            return self._sharded.position
        return self.streams[self._stream].position if self._stream in self.streams else None

    @property
    def assignment(self) -> tuple[str, ...]:
        """The partitions that this consumer owns in its group at this moment, by name; none without a group."""
        return self._sharded.assignment if isinstance(self._sharded, GroupedStream) else ()

    @property
    def is_sharded(self) -> bool:
        """Tell whether this is a sharded stream, which is known before its first message comes."""
        return self._sharded is not None

    @property
    def gaps(self) -> list[Gap]:
        """The gaps that were skipped, of all partitions."""
        return self._items.gaps

    def _start(self) -> None:
        """Start reading, in the running event loop."""
        if self._tasks:
            raise RuntimeError("a consumer can be entered only once")
        self._spawn(self._follow)

    async def _shut_down(self) -> None:
        """End everything; takes less than a second, and in a group whose table does not answer 5 s."""
        self._maps.close()
        for task in self._tasks:
            task.cancel()
        # Close the connections while the tasks end, not after: a task that says goodbye to a broker that hangs ends
        # only when its connection does.
        await asyncio.gather(self._maker.close(), *self._tasks, return_exceptions=True)
        # Again, as a task may have opened a connection after the first round closed it.
        await self._maker.close()
        if self._owns_client:
            self._client.close()

    async def _take(self) -> BatchItem:
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
        if isinstance(self._sharded, GroupedStream):
            await self._commit(self._sharded, done, stream)
            return
        if isinstance(done, MessageDelivery):
            stream, done = done.stream, done.message
        stream = stream or (None if self._is_super else self._stream)
        if stream is None or stream not in self.streams:
            raise InvalidInputError("stream", f"{stream!r} is no partition of {self._stream!r}")
        await self._maker.store_offset(stream, done.offset if isinstance(done, Message) else Offset(done))

    async def _commit(self, grouped: GroupedStream, done: int | Message | MessageDelivery, stream: str | None) -> None:
        number: int | None = None
        if isinstance(done, MessageDelivery):
            # Its number, as a name may have gone to another partition since: its offsets would skip messages of that.
            number, done = done.partition, done.message
        elif stream is not None:
            number = grouped.number_of(stream)
        if number is None:
            raise InvalidInputError("stream", f"name the partition of {self._stream!r}, or pass what `deliveries` gave")
        await grouped.commit(number, Offset((done.offset if isinstance(done, Message) else done) + 1))

    async def _follow(self) -> None:
        """Find out what the name is, and follow it."""
        if self._group is not None:
            found = await self._maps.wait(self._archive_wait_s)
            if found is None:
                raise InvalidInputError("group", f"{self._stream!r} is no sharded stream")
            self._begin_sharded(found)
        elif isinstance(self._start_spec, ShardPosition):
            found = await self._maps.wait(self._archive_wait_s)
            if found is None:
                raise InvalidInputError("position", f"{self._stream!r} is no sharded stream")
            self._begin_sharded(found)
        elif self._is_super:
            await self._follow_super_stream()
        elif self._is_super is None:
            await self._follow_either()
        else:
            await self._follow_stream(self._stream)

    async def _follow_super_stream(self) -> None:
        try:
            async with asyncio.timeout(MAP_WAIT_S):
                found = await self._maps.wait(MAP_WAIT_S)
        except (UnavailableError, TimeoutError) as err:
            if isinstance(err, UnavailableError) and not err.retryable:
                raise
            log.warning("super stream %r is read as it is now, as its map cannot be asked for: %s", self._stream, err)
            self._spawn(partial(tell_of_map, self._maps, self._items))
            found = None
        if found is not None:
            self._begin_sharded(found)
            return
        partitions = await super_stream_partitions(self._maker, self._stream)
        # Before any follower runs: `load` looks the stream of each batch up there.
        self._items.expect(partitions)
        self._maker.sharing = len(partitions)
        for partition in partitions:
            self._spawn(partial(self._follow_stream, partition))

    async def _follow_either(self) -> None:
        """Follow the stream of that name, and ask meanwhile whether it is a logical one.

        A stream that is read from the broker alone must not wait for a resolver that is away. The broker has no stream
        with a logical name, so what comes first tells which it is.
        """
        reading = asyncio.create_task(self._follow_stream(self._stream))
        asking = asyncio.create_task(self._maps.ask())
        found: ShardMap | None = None
        try:
            await asyncio.wait({reading, asking}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done() and not asking.exception() and not self._has_given:
                found = asking.result()
            if found is None:
                await reading
        except StreamNotFoundError:
            if self._has_given or (found := await self._maps.wait(self._archive_wait_s)) is None:
                raise
        finally:
            for task in (reading, asking):
                task.cancel()
            await asyncio.gather(reading, asking, return_exceptions=True)
        if found is not None:  # `_follow_stream` never returns
            self._maker.drop_broker(self._stream)
            self._begin_sharded(found)

    def _begin_sharded(self, found: ShardMap) -> None:
        self._is_super = True
        make: Callable[..., ShardedStream] = ShardedStream
        if self._group is not None:
            make = partial(GroupedStream, group=self._group)
        self._sharded = make(
            found,
            self._start_spec,
            gate=gate_of(self._order, found, self._queue.put, self._merge_wait_s, grouped=self._group is not None),
            maker=self._maker,
            items=self._items,
            maps=self._maps,
            spawn=self._spawn,
            archive_wait_s=self._archive_wait_s,
        )
        self._sharded.begin()

    async def _follow_stream(self, stream: str) -> None:
        assert not isinstance(self._start_spec, ShardPosition)
        await self._maker.stream(stream, self._start_spec, self._give).run()

    async def _give(self, item: BatchItem) -> None:
        """Put what a follower gives into the queue; how far one has come without giving anything is of no use here."""
        if not isinstance(item, ReachedOffset):
            self._has_given = True
            await self._queue.put(item)

    def _spawn(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._guarded(work))
        self._tasks.append(task)
        return task

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run work, and put what it raises into the queue, so that it comes out after all that was given before."""
        try:
            await work()
        except Exception as err:  # noqa: BLE001  `_take` raises it
            # CancelledError is no Exception, so a task that `_shut_down` cancels does not wait here for room in a queue
            # that nobody empties.
            await self._queue.put(err)
