"""A sharded stream in memory: a world for each partition, its map, and a reader of it in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

from coldstream.consumer.archive_follower import ArchiveFollower
from coldstream.consumer.batch import BatchItem, ChunkBatch, Give
from coldstream.consumer.follower import StreamFollower
from coldstream.consumer.gate import ArrivalGate
from coldstream.consumer.items import BatchItems
from coldstream.consumer.key_gate import KeyGate
from coldstream.consumer.sharded import ShardedStream
from coldstream.consumer.time_merge import TimeMerge
from coldstream.errors import UnavailableError
from coldstream.format.chunk import ChunkType
from coldstream.manifest.shard_changes import bound, doubled, first_map, halved, sealed
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind, ShardMap
from coldstream.manifest.shard_starts import ShardStart
from coldstream.manifest.spec import FIRST, OffsetSpec
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset, TimestampMs
from tests.support.world import FakeArchive, FakeBroker, World

NOW = TimestampMs(1_000)


class Sharding:
    """Partitions by name, and the map as the resolver has it. Messages are `key/number`, numbered for each key."""

    def __init__(self, partitions: int, kind: ShardKind = ShardKind.SUPER_STREAM) -> None:
        self.rng = random.Random(1)
        self.worlds: dict[str, World] = {}
        names = [Partition(0, f"orders-{at}") for at in range(partitions)]
        self.map = bound(
            first_map("/", "orders", kind, ShardHash.MURMUR3, partitions=names, definition="", at=NOW), NOW
        )
        self.written: dict[int, int] = {}
        self.answers = True
        self._declare()

    def world(self, number: int) -> World:
        return self.worlds[self.map.partitions[number].name]

    def write(self, number: int, *keys: int) -> None:
        """Publish a chunk to a partition."""
        bodies = []
        for key in keys:
            bodies.append(b"%d/%d" % (key, self.written.get(key, 0)))
            self.written[key] = self.written.get(key, 0) + 1
        self.world(number)._write(bodies, ChunkType.USER)
        for subscription in self.world(number).subscriptions:
            subscription.fill()

    def route(self, *keys: int, count: int | None = None) -> None:
        """Publish each key to its partition, of the newest version or of an earlier one with `count` partitions."""
        current = self.map.newest.partitions
        for key in keys:
            self.write(current[key % (count or len(current))], key)

    def double(self) -> None:
        added, known = len(self.map.newest.partitions), len(self.map.partitions)
        names = [Partition(0, f"orders-{at}") for at in range(known, known + added)]
        self.map = bound(doubled(self.map, names, "", NOW), NOW)
        self._declare()

    def halve(self) -> None:
        ends = {number: self.world(number).next_offset for number in self.map.newest.partitions}
        self.map = bound(halved(self.map, ends, "", NOW), NOW)

    def seal(self) -> None:
        self.map = sealed(self.map, {edge.parent: self.world(edge.parent).next_offset for edge in self.map.unsealed})

    def archive(self, rng: random.Random) -> None:
        """Archive some chunks of each partition, and have retention delete some of what is archived."""
        for world in self.worlds.values():
            world.archive(rng.randrange(20))
            archived = sum(map(len, world.archived.values()))
            world.retain(max(1, len(world.log) - rng.randrange(archived + 1)))

    def _declare(self) -> None:
        for partition in self.map.partitions:
            self.worlds.setdefault(partition.name, World(random.Random(self.rng.random())))


class FakeMaker:
    """Makes followers of worlds, as `FollowerMaker` does of streams."""

    def __init__(self, sharding: Sharding, **options: object) -> None:
        self._sharding = sharding
        self._options = options
        self.sharing = 1
        self.begun: list[str] = []

    def stream(
        self,
        stream: str,
        start: OffsetSpec,
        give: Give,
        *,
        incarnation: Incarnation | None,
        fixes_start: bool,
        on_away: Callable[[], None],
    ) -> StreamFollower:
        self.begun.append(stream)
        world = self._sharding.worlds[stream]
        return StreamFollower(
            stream,
            start,
            broker=FakeBroker(world),
            archive=FakeArchive(world),
            give=give,
            incarnation=incarnation,
            fixes_start=fixes_start,
            on_away=on_away,
            **self._options,
        )

    def archived(
        self,
        stream: str,
        start: OffsetSpec,
        give: Give,
        *,
        incarnation: Incarnation | None,
        is_over: bool,
        end: Offset | None,
    ) -> ArchiveFollower:
        self.begun.append(f"archived {stream}")
        archive = FakeArchive(self._sharding.worlds[stream])
        return ArchiveFollower(
            stream, start, incarnation, archive=archive, give=give, is_over=is_over, end=end, **self._options
        )


class Reading:
    """A reader of a sharded stream that runs, and what it has given so far."""

    def __init__(self, sharding: Sharding, start: ShardStart = FIRST, *, order: str = "key", **options: object) -> None:
        self.sharding = sharding
        self.items = BatchItems(())
        self.queue: asyncio.Queue[BatchItem] = asyncio.Queue(maxsize=1)
        self.maker = FakeMaker(sharding, **options)
        self.bodies: list[str] = []
        self.streams: list[str] = []
        self.error: Exception | None = None
        gates = {"key": KeyGate(sharding.map, self.queue.put), "arrival": ArrivalGate(self.queue.put)}
        self.tasks: list[asyncio.Task[None]] = []
        self.sharded = ShardedStream(
            sharding.map,
            start,
            gate=gates.get(order, TimeMerge(self.queue.put, 1.0)),
            maker=self.maker,  # type: ignore[arg-type]
            items=self.items,
            maps=SimpleNamespace(ask=self._ask, wait=lambda _: self._ask()),  # type: ignore[arg-type]
            spawn=self._spawn,
            archive_wait_s=300.0,
        )
        self.sharded.begin()
        self._spawn(self._take)

    @property
    def keys(self) -> dict[str, list[int]]:
        """The numbers that were given of each key, in the order in which they came."""
        keys: dict[str, list[int]] = {}
        for body in self.bodies:
            key, _, number = body.partition("/")
            keys.setdefault(key, []).append(int(number))
        return keys

    async def given(self, messages: int) -> None:
        """Wait until so many messages were given, or an error came."""
        for _ in range(2000):
            if len(self.bodies) >= messages or self.error is not None:
                return
            await asyncio.sleep(1)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _ask(self) -> ShardMap | None:
        if not self.sharding.answers:
            raise UnavailableError("the resolver is away")
        return self.sharding.map

    async def _take(self) -> None:
        while True:
            item = await self.queue.get()
            self.items.load(item)
            if isinstance(item, ChunkBatch):
                for message in self.items.messages:
                    self.bodies.append(message.raw.decode())
                    self.streams.append(item.stream)

    def _spawn(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        async def guarded() -> None:
            try:
                await work()
            except Exception as err:  # noqa: BLE001  the test looks at it
                self.error = err

        task = asyncio.create_task(guarded())
        self.tasks.append(task)
        return task
