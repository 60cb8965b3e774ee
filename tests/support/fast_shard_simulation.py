"""Growth and halving of a super stream in a world of plain lists, by seed: a million schedules in some minutes.

Beside `shard_simulation`, which runs the whole command, this one plays the pure code alone: what a change makes of a
map, who counts as an old producer, who is held back, where a position goes on. The order of calls to the broker is
written down here once more. Producers die, start again, start in the burst, and come back with their old list. What is
read is one reader with a position, or two members of a group that take partitions from each other, and a member that
lost one goes on for a while. What is *committed* counts: each message once, and each key in order. What a producer of
the burst sends before the seals, that knows an odd number of partitions, is left out of the order, not of the rest.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from coldstream.manifest.key_order import KeyOrder
from coldstream.manifest.shard_changes import bound, doubled, first_map, halved, identified, sealed
from coldstream.manifest.shard_map import MAP_SETTLE_S, Partition, ShardHash, ShardKind, ShardMap
from coldstream.manifest.shard_position import ShardPosition
from coldstream.manifest.shard_starts import shard_starts, version_after
from coldstream.manifest.spec import FIRST
from coldstream.shards.broker_port import StreamPublisher
from coldstream.shards.old_producers import GONE_MS, OldProducers
from coldstream.shards.seal import LATE_S, SETTLE_S
from coldstream.units import Offset, TimestampMs

NUMBERS = ((2, 4), (1, 2), (4, 2), (2, 4), (4, 2), (2, 4, 2), (4, 2, 4), (2, 4, 8), (2, 4, 8, 4, 8))
LEARNED_MS = 12_000
"""A reader knows a new map by then."""

KEY = 1_000_000
"""A message is its key times this, and its number."""

AT = TimestampMs(0)
SHOWN_MS = (0, 4000, 9000)
NAMES = [Partition(0, f"orders-{index}") for index in range(8)]
FIRST_MAPS = {
    number: bound(
        first_map(
            "/",
            "orders",
            ShardKind.SUPER_STREAM,
            ShardHash.MURMUR3,
            partitions=NAMES[:number],
            definition="{}",
            at=AT,
        ),
        AT,
    )
    for number in (1, 2, 4)
}


class ScheduleError(AssertionError):
    """A schedule ended badly; the text has its seed."""


class FastProducer:
    """A program: the partitions that it saw at its start, by number, and when each of its publishers shows."""

    __slots__ = ("back_at", "client", "connection", "is_partial", "keys", "last_lost", "streams", "used")

    def __init__(self, client: str, keys: list[int], streams: tuple[int, ...], connection: str) -> None:
        self.client, self.keys, self.streams, self.connection = client, keys, streams, connection
        self.used: dict[int, int] = {}
        self.back_at = 0
        self.last_lost = -1_000_000
        self.is_partial = False


class FastReader:
    """A reader, or a member of a group: the map that it knows, and how far it has read what it owns."""

    __slots__ = ("at", "begins", "epochs", "map", "map_at", "numbers", "order", "pending", "version")

    def __init__(
        self, found: ShardMap, version: int, at: dict[int, int], now: int, read: dict[int, int] | None = None
    ) -> None:
        self.version = version
        self.at = at
        self.epochs: dict[int, int] = {}
        self.begins: dict[int, int] = {}
        self.pending: list[tuple[int, int]] = []
        self.map, self.map_at = found, now
        self.order = KeyOrder(found, at if read is None else read)  # type: ignore[arg-type]
        self.numbers: list[int] = []


class FastShards:
    """A schedule. `run` plays it to its end."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = Random(seed).random
        chance = self.chance
        self.wanted = NUMBERS[int(chance() * len(NUMBERS))]
        self.map = FIRST_MAPS[self.wanted[0]]
        self.bound = list(self.map.newest.partitions)
        self.time = 1_000_000
        self.logs: list[list[int]] = [[] for _ in self.bound]
        self.ended: set[int] = set()
        self.whole: set[tuple[int, ...]] = {tuple(self.bound)}
        self.hashes = [int(chance() * 4096) for _ in range(2 + int(chance() * 3))]
        keys = len(self.hashes)
        self.sent, self.due = [0] * keys, [0] * keys
        self.left_out: set[int] = set()
        self.count = 2
        half = keys // 2
        self.producers = [self._started("p0", list(range(half))), self._started("p1", list(range(half, keys)))]
        self.done: list[int] = [0] * len(self.bound)
        # Of each partition its owner, and the epoch and offset of its position.
        self.owners: list[int] = []
        self.epochs: list[int] = []
        self.committed: list[int] = []
        self.starts_of: tuple[int, int | None] | None = None
        self.starts: list[int] = []
        self.members = [FastReader(self.map, 1, {}, self.time) for _ in range(1 + (chance() < 0.5))]
        self.is_group = len(self.members) > 1
        for one in self.members:
            self._learn(one, is_new=True)

    def run(self) -> None:
        """Play it. Raises ScheduleError."""
        for number in self.wanted[1:]:
            self._others(1, 2000)
            self._change(number)
        self._others(2, 2000)
        for one in self.producers:
            if not one.back_at:
                self._send(one)
        self._finish()

    # -- the command, as coldstream.shards does it ---------------------------------------------------------------------

    def _change(self, wanted: int) -> None:
        found = self.map
        now = len(found.newest.partitions)
        if wanted > now:
            names = NAMES[now:wanted]
            self.map = doubled(found, names, "{}", AT)
            added = list(self.map.newest.partitions[now:])
            ending: list[int] = []
            self.logs.extend([] for _ in added)
            self.done.extend(0 for _ in added)
            self._others(1, 1000)
        else:
            ends = {number: Offset(len(self.logs[number])) for number in found.newest.partitions[:wanted]}
            self._others(1, 1000)
            self.map = halved(found, ends, "{}", AT)
            added, ending = [], list(found.newest.partitions[wanted:])
            self._others(3, int(MAP_SETTLE_S * 1000))
        self.whole.add(self.map.newest.partitions)
        known = OldProducers.before(self._publishers(), self._connections(), TimestampMs(self.time))
        chance = self.chance
        for one in added or ending:
            if chance() < 0.15:
                self._replace(int(chance() * 2))
            if chance() < 0.2:
                self._others(1, 100)
            if added:
                self.bound.append(one)
            else:
                self.bound.remove(one)
        self._others(2, int(LATE_S * 1000))
        known = known.during(self._publishers(), self._connections(), TimestampMs(self.time))
        changed_at = self.time
        self._others(1, 1000)
        self.map = bound(self.map, AT)
        streams = {self.map.partitions[one].name for one in added}
        ended = {self.map.partitions[one].name for one in ending}
        parents = ending or list(found.newest.partitions)
        self._seal(known, changed_at, streams, ended, parents)
        self.whole = {self.map.newest.partitions}
        if ending:
            self._others(1, 20_000)
            self.map = identified(self.map, {}, deleted=dict.fromkeys(ending, AT))
            self.ended.update(ending)

    def _seal(self, known: OldProducers, changed_at: int, added: set[str], ended: set[str], parents: list[int]) -> None:
        ends: list[int] | None = None
        chance = self.chance
        for _ in range(60):
            publishers, at = self._publishers(), TimestampMs(self.time)
            is_over = at - changed_at >= GONE_MS
            if not known.is_closed:
                known = known.back(publishers, added)
                if is_over:
                    known = replace(known, is_closed=True)
            known = known.looked(publishers, added, at)
            old = known.unproven(publishers, added, ended)
            if old or known.not_gone() or not is_over:
                ends = None
                for one in old:
                    for index in (0, 1):
                        if self.producers[index].client == one.client and chance() < 0.5:
                            self._replace(index)
                self._others(2, (5000, 61_000, 61_000, 90_000)[int(chance() * 4)])
                continue
            if chance() < 0.3:
                self._others(1, 500)
            looked = [len(self.logs[one]) for one in parents]
            if ends is not None and (not ended or looked == ends):
                self.map = sealed(self.map, {one: Offset(end) for one, end in zip(parents, looked, strict=True)})
                return
            ends = looked
            self._others(1, int(SETTLE_S * 1000))
        raise ScheduleError(f"seed {self.seed}: the change does not end")

    # -- producers -----------------------------------------------------------------------------------------------------

    def _started(self, client: str, keys: list[int]) -> FastProducer:
        self.count += 1
        one = FastProducer(client, keys, tuple(self.bound), f"c{self.count}")
        one.is_partial = one.streams not in self.whole
        if self.chance() < 0.5:
            shown = self.time + SHOWN_MS[int(self.chance() * 3)]
            one.used = dict.fromkeys(one.streams, shown)
        self._send(one)
        return one

    def _replace(self, index: int) -> None:
        one = self.producers[index]
        client = one.client if self.chance() < 0.4 else f"p{self.count}"
        self.producers[index] = self._started(client, one.keys)

    def _send(self, one: FastProducer) -> None:
        streams, first = one.streams, one.keys[0]
        for key in one.keys:
            # Whoever starts publishes: nobody sees a producer that never did.
            if key != first and self.chance() < 0.3:
                continue
            stream = streams[self.hashes[key] % len(streams)]
            if stream in self.ended:
                raise ScheduleError(f"seed {self.seed}: {one.client} publishes to {stream}, which has ended")
            message = key * KEY + self.sent[key]
            self.sent[key] += 1
            self.logs[stream].append(message)
            if stream not in one.used:
                one.used[stream] = self.time + SHOWN_MS[int(self.chance() * 3)]
            if one.is_partial and (self.map.newest.bound_at is None or self.map.unsealed):
                self.left_out.add(message)

    def _publishers(self) -> list[StreamPublisher]:
        now, partitions = self.time, self.map.partitions
        return [
            StreamPublisher(partitions[number].name, one.connection, one.client, AT)
            for one in self.producers
            if not one.back_at
            for number, shown_at in one.used.items()
            if shown_at <= now
        ]

    def _connections(self) -> set[str]:
        return {one.connection for one in self.producers if not one.back_at}

    # -- time passes ---------------------------------------------------------------------------------------------------

    def _others(self, steps: int, ms: int) -> None:
        each = ms // steps
        chance, producers = self.chance, self.producers
        for _ in range(steps):
            self.time += each
            now = self.time
            for one in producers:
                if one.back_at and one.back_at <= now:
                    self.count += 1
                    one.back_at, one.connection = 0, f"c{self.count}"
                    one.used = dict.fromkeys(one.used, now + SHOWN_MS[int(chance() * 3)])
            self._act(chance(), int(chance() * 2))
            if chance() < 0.6:
                self._read(self.members[int(chance() * len(self.members))], 3)

    def _act(self, what: float, index: int) -> None:
        chance, now = self.chance, self.time
        one = self.producers[index]
        if what < 0.4:
            if not one.back_at:
                self._send(one)
        elif what < 0.45:
            self._replace(index)
        elif what < 0.52:
            # Back within a minute, and once in a while: what `old_producers` takes for granted.
            if not one.back_at and now - one.last_lost > 200_000:
                one.back_at, one.last_lost = now + (3000, 30_000)[chance() < 0.5], now
        elif what < 0.57:
            self._restart()

    # -- readers -------------------------------------------------------------------------------------------------------

    def _learn(self, member: FastReader, *, is_new: bool = False) -> None:
        member.map_at = self.time
        found = self.map
        if member.map is found and not is_new:
            return
        if member.map is not found:
            member.map = found
            member.order.use(found)
        if is_new and not self.is_group:
            member.numbers = list(shard_starts(found, ShardPosition(member.version, member.at)))  # type: ignore[arg-type]
        else:
            known = (found.newest.version, found.newest.bound_at)
            if self.starts_of != known:
                self.starts_of, self.starts = known, list(shard_starts(found, FIRST))
            member.numbers = self.starts
        if not self.is_group:
            return
        for number in range(len(self.owners), max(member.numbers) + 1):
            self.owners.append(-1)
            self.epochs.append(0)
            self.committed.append(0)
            self._give(number, int(self.chance() * 2))

    def _give(self, number: int, index: int) -> None:
        """Make a member the owner. It raises the epoch first, and reads from what is committed."""
        self.owners[number] = index
        self.epochs[number] += 1
        member = self.members[index]
        member.epochs[number] = self.epochs[number]
        member.at[number] = member.begins[number] = self.committed[number]

    def _restart(self) -> None:
        """Have a reader die, and start again at what is committed; or a partition be handed over."""
        chance = self.chance
        index = int(chance() * len(self.members))
        if not self.is_group:
            member = self.members[0]
            if member.pending and chance() < 0.5:
                self._commit_all(member)
            offsets = {number: Offset(end) for number, end in enumerate(self.done) if end}
            version = version_after(member.map, member.version, offsets)
            position = ShardPosition.from_text(str(ShardPosition(version, offsets)))
            self.members[0] = FastReader(self.map, position.version, dict(position.offsets), self.time)
            self._learn(self.members[0], is_new=True)
        elif chance() < 0.5:
            # In a group a child waits for what is committed of its parents, by whomever.
            self.members[index] = FastReader(self.map, 1, {}, self.time, dict(enumerate(self.committed)))
            self._learn(self.members[index], is_new=True)
            for number, owner in enumerate(self.owners):
                if owner == index:
                    self._give(number, int(chance() * 2))
        elif self.owners:
            # The one before does not know yet.
            number = int(chance() * len(self.owners))
            self._give(number, 1 - self.owners[number])

    def _read(self, member: FastReader, most: int) -> None:
        chance = self.chance
        if self.time - member.map_at >= LEARNED_MS or chance() < 0.1:
            self._learn(member)
        numbers = list(member.epochs) if self.is_group else member.numbers
        first = int(chance() * len(numbers)) if numbers else 0
        known = len(member.map.partitions)
        order, at = member.order, member.at
        for number in numbers[first:] + numbers[:first]:
            if number >= known:
                continue
            log = self.logs[number]
            offset = begin = at.get(number, 0)
            while offset < len(log) and offset - begin < most and order.may_read(number, Offset(offset)):
                offset += 1
                if not self.is_group:
                    order.read_to(number, Offset(offset))
                    member.pending.append((number, offset - 1))
            at[number] = offset
            if self.is_group and chance() < 0.6:
                self._commit(member, number, offset)
        if not self.is_group and chance() < 0.4:
            self._commit_all(member)

    def _commit(self, member: FastReader, number: int, offset: int) -> None:
        """Commit as `groups.positions` does: refused to an old epoch, and never back."""
        epoch = member.epochs[number]
        if self._is_fenced(number, epoch):
            del member.epochs[number]
            return
        if offset <= self.committed[number]:
            return
        begin, member.begins[number] = member.begins[number], offset
        self.committed[number] = offset
        for other in self.members:
            other.order.read_to(number, Offset(offset))
        for one in range(begin, offset):
            self._count(number, one)

    def _is_fenced(self, number: int, epoch: int) -> bool:
        return self.epochs[number] > epoch

    def _commit_all(self, member: FastReader) -> None:
        """Commit the position as a whole."""
        for number, offset in member.pending:
            self._count(number, offset)
        member.pending.clear()

    def _count(self, number: int, offset: int) -> None:
        if offset != self.done[number]:
            raise ScheduleError(f"seed {self.seed}: {offset} of {number} is committed, {self.done[number]} is due")
        self.done[number] = offset + 1
        message = self.logs[number][offset]
        if message in self.left_out:
            return
        key, counted = divmod(message, KEY)
        due = self.due[key]
        while key * KEY + due in self.left_out:
            due += 1
        if counted != due:
            raise ScheduleError(f"seed {self.seed}: key {key}: {counted} of {number} is committed, {due} is due")
        self.due[key] = due + 1

    def _finish(self) -> None:
        self.time += LEARNED_MS
        for _ in range(40):
            for member in self.members:
                self._learn(member)
                self._read(member, 1000)
                if not self.is_group:
                    self._commit_all(member)
            if all(done == len(log) for done, log in zip(self.done, self.logs, strict=True)):
                return
        raise ScheduleError(f"seed {self.seed}: not all is read: {self.done} of {[len(log) for log in self.logs]}")
