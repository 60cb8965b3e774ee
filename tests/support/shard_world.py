"""A sharded stream with a table and a broker in memory, whose calls can fail one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from coldstream.errors import UnavailableError
from coldstream.manifest.entry import Gap, Head
from coldstream.manifest.shard_changes import bound, first_map
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind, ShardMap
from coldstream.manifest.state_item import StateItem
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.shards.broker_port import StreamPublisher
from coldstream.shards.change import change_shards
from coldstream.shards.context import ChangeReport, ShardContext
from coldstream.shards.definition import ShardDefinition
from coldstream.shards.layout import (
    bindings_of,
    exchange_of,
    logical_binding,
    partitions_of,
    queue_of,
    version_exchange_of,
)
from coldstream.shards.memory_broker import MemoryShardBroker
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.shard_maps import find_map
from coldstream.units import Offset, TimestampMs

NOW = 1_764_000_000_000
DAY = 86_400_000
_FIRST = Offset(0)


class ShardTable(MemoryTable):
    """A table that knows how far partitions are archived, and whose writes of state can fail."""

    def __init__(self) -> None:
        super().__init__()
        self.archived: dict[str, tuple[Incarnation, int]] = {}
        self.holes: dict[str, Gap] = {}
        self.writes = 0
        self.fails: tuple[int, Literal["not", "in full"]] | None = None

    def put_state(self, *changed: StateItem) -> None:
        """Write, and fail if that is due."""
        number = self.writes
        self.writes += 1
        how = self.fails[1] if self.fails is not None and self.fails[0] == number else None
        if how == "not":
            raise UnavailableError("the table")
        super().put_state(*changed)
        if how is not None:
            raise UnavailableError("the table's answer")

    def incarnation_of(self, vhost: str, name: str) -> Incarnation | None:
        """Return what a test has archived."""
        return self.archived[name][0] if name in self.archived else None

    def head(self, incarnation: Incarnation) -> Head | None:
        """Return how far a test has archived it."""
        for name, (known, end) in self.archived.items():
            if known == incarnation:
                return Head(StreamId("/", name, known), 1, Offset(0), Offset(end), gaps=int(known in self.holes))
        return None

    def gaps(self, incarnation: Incarnation, limit: int, *, from_offset: Offset = _FIRST) -> tuple[Gap, ...]:
        """Return the gap that a test left."""
        gap = self.holes.get(incarnation)
        return () if gap is None or gap.first_offset < from_offset else (gap,)


class MemoryReplay:
    """Replays by noting what was asked for; a call that was made before adds nothing."""

    def __init__(self, broker: MemoryShardBroker) -> None:
        self.broker = broker
        self.reached: dict[str, int] = {}
        self.calls: list[tuple[str, int, int]] = []

    def check(self, definition: ShardDefinition) -> None:
        """Take any."""

    def replay(
        self, source: StreamId, start: Offset, end: Offset, targets: Sequence[Partition], definition: ShardDefinition
    ) -> None:
        """Add the messages that are new to the first target."""
        self.calls.append((source.name, start, end))
        reached = self.reached.get(source.name, 0)
        assert start <= reached
        if end > reached:
            self.broker.ends[targets[0].name] += end - reached
            self.reached[source.name] = end


class ShardWorld:
    """A logical name `orders`, whose change a test makes and follows."""

    def __init__(self, definition: ShardDefinition) -> None:
        self.table = ShardTable()
        self.broker = MemoryShardBroker()
        self.time = NOW
        self.replay = MemoryReplay(self.broker)
        partitions = partitions_of(definition, ["rabbit@a"])
        text = definition.to_text()
        found = first_map(
            "/", "orders", definition.kind, definition.hash, partitions=partitions, definition=text, at=self.now()
        )
        self.context().write(found, ShardEventKind.DECLARE)
        self.context().write(bound(found, self.now()), ShardEventKind.BIND)
        self.broker.declare_exchange(exchange_of(definition))
        for one in partitions:
            self.broker.declare_queue(queue_of(definition, one))
        inner = version_exchange_of(definition, 1)
        if inner is not None:
            self.broker.declare_exchange(inner)
            self.broker.bind(inner.name, bindings_of(found))
        self.broker.bind("orders", [logical_binding("orders", 1)] if inner is not None else bindings_of(found))
        self.broker.calls.clear()
        self.table.writes = 0

    def now(self) -> TimestampMs:
        """Return the time, which goes on."""
        self.time += 1
        return TimestampMs(self.time)

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self.time += int(seconds * 1000)

    def context(self, *, restarted: bool = False, may_replay: bool = False) -> ShardContext:
        """Return what a command works on."""
        return ShardContext(
            self.table,
            MemoryObjects(),
            Keys(),
            self.broker,
            self.now,
            are_producers_restarted=restarted,
            may_replay=may_replay,
            replay=self.replay,
            pause=self.pause,
        )

    @property
    def found(self) -> ShardMap:
        """Return the map as the table has it."""
        found = find_map(self.table, "/", "orders")
        assert found is not None
        return found

    def change(self, definition: ShardDefinition, *, restarted: bool = False, may_replay: bool = False) -> ChangeReport:
        """Run the command once."""
        return change_shards(self.context(restarted=restarted, may_replay=may_replay), self.found, definition)

    def bound_to(self, exchange: str = "orders") -> list[str]:
        """Return what an exchange leads to."""
        return [one.destination for one in self.broker.bound.get(exchange, ())]

    def archive(self, ends: Mapping[str, int]) -> None:
        """Archive partitions up to an offset."""
        for name, end in ends.items():
            self.table.archived[name] = (Incarnation(f"__{name.replace(' ', '_').replace(':', '_')}"), end)


def super_stream(shards: int) -> ShardDefinition:
    """Return the definition of a super stream."""
    return ShardDefinition("orders", ShardKind.SUPER_STREAM, ShardHash.MURMUR3, shards=shards)


def streams(shards: int, hash_: ShardHash = ShardHash.MODULUS, kind: ShardKind = ShardKind.STREAMS) -> ShardDefinition:
    """Return the definition of streams behind an exchange."""
    return ShardDefinition("orders", kind, hash_, shards=shards)


def producer(stream: str, connection: str = "c1", client: str = "alice") -> StreamPublisher:
    """Return a publisher as the broker shows it."""
    return StreamPublisher(stream, connection, client, TimestampMs(NOW))


def renamed(one: StreamPublisher, stream: str) -> StreamPublisher:
    """Return the same on another stream."""
    return replace(one, stream=stream)
