"""Walks through the partitions of sharded streams, over random maps, archives and bounds."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from coldstream.errors import InvalidQueryError, LogicalNameError, NotPermittedError
from coldstream.manifest.shard_changes import bound, doubled, first_map, halved, identified, replaced, sealed
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind, ShardMap
from coldstream.manifest.shard_position import ShardPosition
from coldstream.manifest.spec import FIRST, NEXT, AtTimestamp
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.resolve.answer import Bounds, Continue
from coldstream.resolve.resolver import Resolver
from coldstream.resolve.super_answer import SuperAnswer, SuperOrder, SuperQuery
from coldstream.resolve.super_ranges import PARTITIONS_AT_ONCE
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset, TimestampMs
from tests.support.archive import NOW, ChunkArchive, Spec
from tests.support.written_maps import write

HOUR_MS = 3_600_000


@dataclass
class Sharded:
    """A sharded stream: its map, how long each partition is at the broker, and what of each is archived."""

    map: ShardMap
    table: MemoryTable = field(default_factory=MemoryTable)
    objects: MemoryObjects = field(default_factory=MemoryObjects)
    ends: Counter[int] = field(default_factory=Counter)
    archives: dict[int, ChunkArchive] = field(default_factory=dict)
    archived_to: Counter[int] = field(default_factory=Counter)
    held: dict[int, set[int]] = field(default_factory=dict)
    revision: int = 0
    hour: int = 0

    def archive(self, number: int, count: int, *, skip: int = 0) -> None:
        """Archive chunks of a partition, of a random size, after a hole of `skip` offsets."""
        name = self.map.partitions[number].name
        if number not in self.archives:
            life = Incarnation(f"__{number}_17637000000000{number:05}")
            archive = ChunkArchive(StreamId("/", name, life), objects=self.objects, sparse_bytes=100)
            archive.table = self.table
            self.archives[number] = archive
        begin = self.archived_to[number] + skip
        end = min(begin + count, self.ends[number])
        if begin >= end:
            return
        specs, at = [], begin
        while at < end:
            size = min(1 + len(specs) % 3, end - at)
            self.hour += 1
            specs.append(Spec(size, self.hour * HOUR_MS))
            at += size
        self.archives[number].add(begin, specs)
        self.held.setdefault(number, set()).update(range(begin, end))
        self.archived_to[number] = end

    def save(self) -> None:
        write(self.table, self.map, after=self.revision)
        self.revision = self.map.revision

    def resolver(self) -> Resolver:
        self.save()
        return Resolver(self.table, self.objects, url_expiry_s=60, now=lambda: NOW)


def partitions(prefix: str, count: int) -> list[Partition]:
    return [Partition(0, f"{prefix}-{number}") for number in range(count)]


def sharded(count: int) -> Sharded:
    found = first_map(
        "/",
        "all",
        ShardKind.SUPER_STREAM,
        ShardHash.MURMUR3,
        partitions=partitions("p", count),
        definition="{}",
        at=NOW,
    )
    return Sharded(bound(found, NOW))


def produce(world: Sharded, chance: random.Random, numbers: tuple[int, ...]) -> None:
    for number in numbers:
        world.ends[number] += chance.choice((0, 0, 3, 10, 40))


def change(world: Sharded, chance: random.Random, *, seal: bool) -> None:
    """Change the map in some way, with producers of the version before that write on until the seal."""
    before = world.map.newest.partitions
    ways = [doubled] if len(before) <= 4 else []
    ways += [halved] if len(before) % 2 == 0 else []
    way: Any = chance.choice([*ways, replaced])
    if way is doubled:
        world.map = doubled(world.map, partitions(f"v{world.map.revision}", len(before)), "{}", NOW)
    elif way is halved:
        world.map = halved(world.map, {number: Offset(world.ends[number]) for number in before}, "{}", NOW)
    else:
        count = chance.randint(1, 5)
        world.map = replaced(world.map, partitions(f"v{world.map.revision}", count), ShardHash.MURMUR3, "{}", NOW)
        starts = {number: Offset(chance.randint(1, 20)) for number in world.map.newest.partitions}
        for number, start in starts.items():
            world.ends[number] = start
        world.map = identified(world.map, {}, starts=starts)
    world.map = bound(world.map, NOW)
    produce(world, chance, before)
    produce(world, chance, world.map.newest.partitions)
    if seal:
        world.map = sealed(world.map, {number: Offset(world.ends[number]) for number in before})
        produce(world, chance, world.map.newest.partitions)


def archive_some(world: Sharded, chance: random.Random, *, everything: bool) -> None:
    for one in world.map.partitions:
        if chance.random() < 0.8 or everything:
            for _ in range(chance.randint(1, 3)):
                world.archive(one.number, chance.randint(1, 30), skip=chance.choice((0, 0, 0, 2)))
        if everything:
            world.archive(one.number, 1000)


def query(start: Any, chance: random.Random | None = None, order: SuperOrder = SuperOrder.KEY) -> SuperQuery:
    bounds = Bounds()
    if chance is not None:
        bounds = Bounds(
            chance.choice((1, 2, 3, 16, 1000)), chance.choice((1, 200, 1 << 20)), chance.choice((None, 100))
        )
    return SuperQuery("/", "all", start, order, bounds)


@dataclass
class Reading:
    """A reader that follows positions and cursors, and holds every answer against the map."""

    world: Sharded
    taken: dict[int, list[int]] = field(default_factory=dict)
    at: dict[int, int] = field(default_factory=dict)

    def take(self, answer: SuperAnswer) -> None:
        for one in answer.partitions:
            offsets = [
                offset
                for part in one.ranges
                for offset in range(max(part.first_offset, one.from_offset), min(part.next_offset, one.next_offset))
            ]
            between = [n for n in sorted(self.world.held.get(one.number, ())) if one.from_offset <= n < one.next_offset]
            assert offsets == between
            if answer.order is SuperOrder.KEY:
                for offset in offsets:
                    self.check(one.number, offset)
            self.taken.setdefault(one.number, []).extend(offsets)
        for one in answer.partitions:
            self.at[one.number] = max(one.next_offset, self.at.get(one.number, 0))

    def check(self, number: int, offset: int) -> None:
        left_out = left_out_of(self.world)
        for edge in self.world.map.lineage:
            if edge.child == number and offset >= edge.child_from and edge.parent not in left_out:
                assert edge.seal is not None
                assert self.at.get(edge.parent, 0) >= edge.seal

    def walk(self, start: Any, chance: random.Random, order: SuperOrder) -> ShardPosition:
        resolver = self.world.resolver()
        for _ in range(2000):
            answer = resolver.super_ranges(query(start, chance, order))
            self.take(answer)
            if answer.cursor is None:
                assert answer.position is not None
                return answer.position
            # A reader may go on by either.
            by_position = answer.position is not None and chance.random() < 0.2
            start = ShardPosition.from_text(str(answer.position)) if by_position else Continue(answer.cursor)
        raise AssertionError("the walk does not end")


def left_out_of(world: Sharded) -> set[int]:
    """Return the partitions that a reader from the first message leaves out, as `begun` found them."""
    return world.__dict__.setdefault("left_out", set())


def begin(world: Sharded) -> None:
    """Leave out what a sealed replacement replaces, from now on."""
    left_out = left_out_of(world)
    for before, after in zip(world.map.versions, world.map.versions[1:], strict=False):
        later = {n for one in world.map.versions[after.version - 1 :] for n in one.partitions}
        edges = [edge for edge in world.map.lineage if edge.parent not in later]
        if not {*before.partitions} & {*after.partitions} and all(edge.seal is not None for edge in edges):
            earlier = {n for one in world.map.versions[: after.version - 1] for n in one.partitions}
            left_out |= earlier


@pytest.mark.parametrize("order", SuperOrder)
@pytest.mark.parametrize("seed", [*range(40), 111, 119, 121, 149])
def test_everything_is_read_once_and_no_child_before_its_parents_seal(seed: int, order: SuperOrder) -> None:
    chance = random.Random(seed)
    world = sharded(chance.randint(1, 4))
    produce(world, chance, world.map.newest.partitions)
    for _ in range(chance.randint(0, 3)):
        change(world, chance, seal=True)
    if chance.random() < 0.4:
        change(world, chance, seal=False)
    archive_some(world, chance, everything=False)
    begin(world)
    began_with = len(world.map.partitions)
    begins = {
        one.number: 0
        for one in world.map.partitions
        if one.number < began_with and one.number not in left_out_of(world)
    }
    for number in {edge.child for edge in world.map.unsealed}:
        # A replacement that is not sealed is read after its replay.
        if number not in world.map.versions[-2].partitions:
            begins[number] = world.map.partitions[number].start
    reading = Reading(world)
    position = reading.walk(FIRST, chance, order)
    if world.map.unsealed:
        world.map = sealed(world.map, {edge.parent: Offset(world.ends[edge.parent]) for edge in world.map.unsealed})
    for _ in range(chance.randint(0, 2)):
        archive_some(world, chance, everything=False)
        position = reading.walk(position, chance, order)
        change(world, chance, seal=True)
        position = reading.walk(position, chance, order)
    archive_some(world, chance, everything=True)
    position = reading.walk(position, chance, order)
    position = reading.walk(position, chance, order)
    assert reading.walk(position, chance, order) == position
    for one in world.map.partitions:
        if one.number in left_out_of(world):
            assert one.number not in reading.taken
            continue
        first = begins.get(one.number, one.start)
        assert reading.taken.get(one.number, []) == [n for n in sorted(world.held.get(one.number, ())) if n >= first]


def test_a_thousand_partitions_are_answered_for_in_turn() -> None:
    world = sharded(1024)
    for number in range(0, 1024, 7):
        world.ends[number] = 5
        world.archive(number, 5)
    resolver = world.resolver()
    seen: Counter[int] = Counter()
    bounds = Bounds(max_ranges=64)
    answer = resolver.super_ranges(replace(query(FIRST), bounds=bounds))
    requests = 1
    while answer.cursor is not None:
        assert sum(not one.waits_for for one in answer.partitions) <= PARTITIONS_AT_ONCE
        assert len(answer.cursor) < 6000
        seen.update(one.number for one in answer.partitions)
        answer = resolver.super_ranges(replace(query(Continue(answer.cursor)), bounds=bounds))
        requests += 1
    seen.update(one.number for one in answer.partitions)
    assert set(seen) == set(range(1024))
    assert requests <= 1024 / PARTITIONS_AT_ONCE + 2
    assert str(answer.position).count(":5") == 147


def test_a_time_is_looked_up_in_every_partition_and_the_position_waits_for_that() -> None:
    world = sharded(40)
    for number in range(40):
        world.ends[number] = 9
        world.archive(number, 3)
    for number in range(40):
        world.archive(number, 6)
    since = TimestampMs(world.archives[0].chunks[-1].header.timestamp)
    resolver = world.resolver()
    answer = resolver.super_ranges(query(AtTimestamp(since), None))
    assert answer.position is None
    assert answer.cursor is not None
    found = list(answer.partitions)
    while answer.cursor is not None:
        answer = resolver.super_ranges(query(Continue(answer.cursor)))
        found += answer.partitions
    assert answer.position is not None
    assert all(answer.position.offset(number) == 9 for number in range(40))
    assert all(one.from_offset >= 3 for one in found)


def test_what_waits_is_told_with_the_edge_that_holds_it() -> None:
    world = sharded(1)
    world.ends[0] = 10
    world.map = bound(doubled(world.map, partitions("new", 1), "{}", NOW), NOW)
    world.ends[1] = 4
    world.archive(0, 10)
    world.archive(1, 4)
    answer = world.resolver().super_ranges(query(FIRST))
    parent, child = answer.partitions
    assert (parent.next_offset, parent.tail) == (10, 10)
    assert (child.next_offset, child.limit, child.waits_for) == (0, 0, world.map.lineage[0])
    assert child.ranges == ()
    assert answer.cursor is None
    by_arrival = world.resolver().super_ranges(query(FIRST, order=SuperOrder.ARRIVAL))
    assert [one.next_offset for one in by_arrival.partitions] == [10, 4]


def test_a_name_that_is_declared_again_is_at_its_tail_until_it_is_archived() -> None:
    world = sharded(2)
    world.ends.update({0: 5, 1: 5})
    world.archive(0, 5)
    world.archive(1, 5)
    known = {number: world.archives[number].stream.incarnation for number in (0, 1)}
    world.map = bound(halved(world.map, {0: Offset(5), 1: Offset(5)}, "{}", NOW), NOW)
    world.map = sealed(world.map, {1: Offset(5)})
    world.map = identified(world.map, {1: known[1]}, deleted={1: NOW})
    world.map = bound(doubled(world.map, [Partition(0, "p-1")], "{}", NOW), NOW)
    answer = world.resolver().super_ranges(query(FIRST, order=SuperOrder.ARRIVAL))
    again = answer.partitions[2]
    assert (again.name, again.stream, again.tail, again.ranges) == ("p-1", None, 0, ())
    assert answer.partitions[1].stream == world.archives[1].stream


def test_nobody_waits_for_a_partition_that_was_deleted_from_the_archive() -> None:
    world = sharded(2)
    world.ends.update({0: 5, 1: 5})
    world.archive(0, 5)
    world.map = bound(halved(world.map, {0: Offset(3), 1: Offset(5)}, "{}", NOW), NOW)
    world.map = identified(sealed(world.map, {1: Offset(5)}), {1: Incarnation("gone_1763700000000000000")})
    answer = world.resolver().super_ranges(query(FIRST))
    while answer.cursor is not None:
        answer = world.resolver().super_ranges(query(Continue(answer.cursor)))
    assert answer.position == ShardPosition(2, {0: Offset(5), 1: Offset(5)})


@pytest.mark.parametrize(
    "start",
    [
        ShardPosition(2),
        ShardPosition(999_999_999),
        ShardPosition(1, {2: Offset(0)}),
        ShardPosition(1, {9999: Offset(1)}),
        Continue(""),
        Continue("AA"),
        Continue("x" * 10_000_000),
        Continue("____" * 1000),
        Continue("gICA" * 14_000),
        Continue("\u00e9"),
    ],
    ids=lambda start: repr(start)[:40],
)
def test_a_start_of_another_map_means_nothing(start: Any) -> None:
    with pytest.raises(InvalidQueryError):
        sharded(2).resolver().super_ranges(query(start))


def test_a_cursor_is_of_one_sharded_stream() -> None:
    world = sharded(40)
    other = replace(world.map, name="other", revision=1)
    write(world.table, other)
    cursor = world.resolver().super_ranges(query(FIRST)).cursor
    assert cursor is not None
    with pytest.raises(InvalidQueryError):
        world.resolver().super_ranges(replace(query(Continue(cursor)), name="other"))
    with pytest.raises(InvalidQueryError):
        world.resolver().super_ranges(query(Continue(cursor + "AA")))


def test_a_plain_stream_is_no_sharded_stream() -> None:
    world = sharded(1)
    world.ends[0] = 1
    world.archive(0, 1)
    with pytest.raises(LogicalNameError):
        world.resolver().super_ranges(replace(query(NEXT), name="p-0"))


def test_a_partition_that_must_not_be_read_is_named() -> None:
    with pytest.raises(NotPermittedError, match="p-1"):
        sharded(2).resolver().super_ranges(query(FIRST), lambda _, name: name != "p-1")
