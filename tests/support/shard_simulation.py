"""Growth and halving of a super stream in a small world with virtual time, by seed: is any key ever out of order?

The shipped code makes the changes (`change_shards`), says who is an old producer, seals, and holds readers back
(`KeyOrder`). Producers are as the stock clients: they ask for the partitions once, hash keys over what they saw, and
keep that list when they connect again. The command is run now and then, and its calls fail; whatever waits lets the
others go on. A producer that asks while the bindings change may know a part of them, and what it sends is left out of
the order: that is the documented limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from coldstream.errors import UnavailableError
from coldstream.manifest.key_order import KeyOrder
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.shard_position import ShardPosition
from coldstream.routing.murmur3 import partition_of
from coldstream.shards.broker_port import BrokerBinding, StreamPublisher
from coldstream.store.shard_maps import SHARDS, map_key
from coldstream.units import Offset, TimestampMs
from tests.support.shard_world import ShardWorld, super_stream

KEYS = ("a", "b", "c", "d", "e", "f")
READER_REFRESH_MS = 15_000
NUMBERS = ((2, 4), (1, 2, 4), (2, 1, 2), (4, 2), (2, 4, 2), (4, 2, 4))


class OrderBrokenError(AssertionError):
    """A schedule ended badly; the text has its seed and what happened last."""


@dataclass
class SimulatedProducer:
    """A program: the partitions that it saw when it started, and the publishers that it has shown since."""

    client: str
    keys: tuple[str, ...]
    streams: tuple[str, ...] = ()
    is_partial: bool = False
    connection: str = ""
    used: dict[str, int] = field(default_factory=dict)
    back_at: int | None = None
    last_lost: int = -1_000_000


class SimulatedShards(ShardWorld):
    """A world that goes on whenever the command waits or calls the broker."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.numbers = self.random.choice(NUMBERS)
        self.trace: list[str] = []
        self.messages: dict[int, list[tuple[str, int]]] = {}
        self.next: dict[str, int] = dict.fromkeys(KEYS, 0)
        self.left_out: set[tuple[str, int]] = set()
        self.partials = 0
        self.count = 0
        self.producers: list[SimulatedProducer] = []
        self.is_calm = True
        self.known: ShardMap | None = None
        self.key = map_key("/", "orders")
        super().__init__(super_stream(self.numbers[0]))
        self.broker.bind = self._bind  # type: ignore[method-assign]
        self.broker.unbind = self._unbind  # type: ignore[method-assign]
        self.broker.on_call = self._on_call
        self.producers = [self._started("p0", KEYS[:3]), self._started("p1", KEYS[3:])]
        for one in self.producers:
            self._send(one)
        self._open_reader(ShardPosition(1))
        self.last = dict.fromkeys(KEYS, -1)
        self.is_calm = False

    @property
    def found(self) -> ShardMap:
        """Return the map, read again only if it has changed."""
        item = self.table.state_item(SHARDS, self.key)
        assert item is not None
        if self.known is None or self.known.revision != item.revision:
            self.known = super().found
        return self.known

    def run(self) -> None:
        """Play the schedule to its end. Raises OrderBrokenError."""
        for number in self.numbers[1:]:
            self._reach(number)
        self.pause(60)
        for _ in range(40):
            self._read_all()
        for key in KEYS:
            wanted = [one for one in range(self.next[key]) if (key, one) not in self.left_out]
            self._check(not wanted or self.last[key] == wanted[-1], f"lost: {key} after {self.last[key]}")
        ends = {number: len(found) for number, found in self.messages.items()}
        self._check(all(self.at.get(number, 0) == end for number, end in ends.items()), f"not read: {self.at} {ends}")

    def pause(self, seconds: float) -> None:
        """Let time pass, and the others go on meanwhile."""
        if self.is_calm:
            super().pause(seconds)
            return
        for _ in range(3):
            self.time += int(seconds * 1000 / 3)
            self._step()

    def _reach(self, number: int) -> None:
        for turn in range(60):
            try:
                waiting = self.change(super_stream(number)).waiting
            except UnavailableError:
                self.trace.append("the command ends")
                continue
            self._check_sealed()
            if not waiting:
                return
            # The operator restarts one that is named; the archive goes on.
            for index, one in enumerate(self.producers):
                if any(repr(one.client) in text for text in waiting) and self.random.random() < 0.7:
                    self._replace(index)
            if turn > 1:
                self.archive({one.name: self._end(one.name) for one in self.found.partitions if not one.deleted_at})
            self.pause(self.random.choice((2, 20, 61, 90)))
        raise OrderBrokenError(f"seed {self.seed}: the change does not end: {waiting}")

    def _end(self, name: str) -> int:
        return self.broker.ends.get(name, 0)

    def _check_sealed(self) -> None:
        found = self.found
        if found.is_changing:
            return
        names = tuple(one.name for one in found.current)
        for one in self.producers:
            self._check(one.streams == names, f"{one.client} knows {one.streams}, and all is sealed")

    def _step(self) -> None:
        for one in self.producers:
            if one.back_at is not None and one.back_at <= self.time:
                one.back_at, one.connection = None, self._connection()
                one.used = dict.fromkeys(one.used, self.time + self.random.choice((0, 4000, 9000)))
        chance = self.random.random()
        index = self.random.randrange(len(self.producers))
        one = self.producers[index]
        if chance < 0.45:
            self._send(one)
        elif chance < 0.85:
            self._read()
        elif chance < 0.90:
            self._replace(index)
        elif chance < 0.95 and one.back_at is None and self.time - one.last_lost > 200_000:
            # Back within a minute, and once in a while: what `old_producers` takes for granted.
            one.back_at, one.last_lost = self.time + self.random.choice((3000, 30_000)), self.time
            self.trace.append(f"{one.client} loses its connection")
        elif chance < 0.97:
            self._open_reader(ShardPosition.from_text(str(ShardPosition(1, self.at))))
        self._show()

    def _show(self) -> None:
        self.broker.present = [
            StreamPublisher(stream, one.connection, one.client, TimestampMs(0))
            for one in self.producers
            if one.back_at is None
            for stream, shown_at in one.used.items()
            if shown_at <= self.time
        ]
        self.broker.connected = {one.connection for one in self.producers if one.back_at is None}

    def _connection(self) -> str:
        self.count += 1
        return f"c{self.count}"

    def _started(self, client: str, keys: tuple[str, ...]) -> SimulatedProducer:
        held = sorted(self.broker.bound["orders"], key=lambda one: one.arguments["x-stream-partition-order"])
        streams = tuple(one.destination for one in held)
        whole = {tuple(f"orders-{index}" for index in range(1 << power)) for power in range(5)}
        one = SimulatedProducer(client, keys, streams, streams not in whole, self._connection())
        self.partials += one.is_partial
        if self.random.random() < 0.5:
            one.used = dict.fromkeys(streams, self.time + self.random.choice((0, 4000, 9000)))
        self.trace.append(f"{client} starts with {len(streams)}")
        return one

    def _replace(self, index: int) -> None:
        one = self.producers[index]
        client = one.client if self.random.random() < 0.4 else f"p{self.count}"
        self.producers[index] = self._started(client, one.keys)
        self._send(self.producers[index])

    def _send(self, one: SimulatedProducer) -> None:
        if one.back_at is not None:
            return
        for key in self.random.sample(one.keys, 2):
            stream = one.streams[partition_of(key, len(one.streams))]
            partition = self.found.partition_named(stream)
            assert partition is not None
            number = self.next[key]
            self.next[key] += 1
            self.messages.setdefault(partition.number, []).append((key, number))
            self.broker.ends[stream] += 1
            one.used.setdefault(stream, self.time + self.random.choice((0, 4000, 9000)))
            if one.is_partial:
                self.left_out.add((key, number))
            self.trace.append(f"{one.client}: {key}{number} to {partition.number}")

    def _open_reader(self, position: ShardPosition) -> None:
        self.at = dict(position.offsets)
        self.map, self.map_at = self.found, self.time
        self.order = KeyOrder(self.map, position.offsets)

    def _read_all(self) -> None:
        self.time += READER_REFRESH_MS
        for _ in range(4):
            self._read(100)

    def _read(self, most: int = 3) -> None:
        if self.time - self.map_at >= READER_REFRESH_MS:
            self.map, self.map_at = self.found, self.time
            self.order.use(self.map)
        numbers = list(range(len(self.map.partitions)))
        self.random.shuffle(numbers)
        for number in numbers:
            self._read_partition(number, most if most > 3 else self.random.randrange(3))

    def _read_partition(self, number: int, most: int) -> None:
        held = self.messages.get(number, [])
        for _ in range(most):
            at = self.at.get(number, 0)
            if at >= len(held) or not self.order.may_read(number, Offset(at)):
                return
            key, counted = held[at]
            self.at[number] = Offset(at + 1)
            self.order.read_to(number, Offset(at + 1))
            self.trace.append(f"read {key}{counted} of {number}")
            if (key, counted) not in self.left_out:
                expected = next(one for one in range(self.last[key] + 1, 10**6) if (key, one) not in self.left_out)
                self._check(counted == expected, f"{key}{counted} is read, and {key}{expected} is due")
                self.last[key] = counted

    def _on_call(self, _: str) -> None:
        if self.is_calm:
            return
        if self.random.random() < 0.2:
            self.time += 200
            self._step()
        if self.random.random() < 0.01:
            raise UnavailableError("a call")
        self._show()

    def _bind(self, exchange: str, bindings: Sequence[BrokerBinding]) -> None:
        for one in bindings:
            type(self.broker).bind(self.broker, exchange, [one])
            self._within_burst()

    def _unbind(self, exchange: str, bindings: Sequence[BrokerBinding]) -> None:
        for one in bindings:
            type(self.broker).unbind(self.broker, exchange, [one])
            self._within_burst()

    def _within_burst(self) -> None:
        if not self.is_calm and self.random.random() < 0.1:
            self._replace(self.random.randrange(len(self.producers)))

    def _check(self, holds: bool, problem: str) -> None:  # noqa: FBT001  as `assert`
        if not holds:
            raise OrderBrokenError(f"seed {self.seed}, {self.numbers}: {problem}\n" + "\n".join(self.trace[-40:]))
