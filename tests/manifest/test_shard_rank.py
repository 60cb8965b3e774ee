"""Ranks, over messages that real changes route: rank, then offset, is the order of each key."""

from __future__ import annotations

import random

import pytest

from coldstream.manifest.shard_changes import bound, doubled, first_map, halved, replaced, sealed
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind, ShardMap
from coldstream.manifest.shard_rank import ranked_stretches
from coldstream.manifest.shard_starts import ShardScope, version_at
from coldstream.units import Offset, TimestampMs

AT = TimestampMs(1)
KEYS = 24


class Producers:
    """Sends numbered messages of each key to the partition of a version; `sent` has their places, in order."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.ends: dict[int, int] = {}
        self.sent: dict[int, list[tuple[int, int]]] = {key: [] for key in range(KEYS)}

    def send(self, numbers: tuple[int, ...], keys: range | list[int]) -> None:
        for key in keys:
            for _ in range(self.chance.randint(0, 3)):
                self.put(numbers[key % len(numbers)], key)

    def put(self, number: int, key: int) -> None:
        offset = self.ends.get(number, 0)
        self.sent[key].append((number, offset))
        self.ends[number] = offset + 1

    def end(self, number: int) -> Offset:
        return Offset(self.ends.get(number, 0))


def partitions(count: int) -> list[Partition]:
    return [Partition(0, "p") for _ in range(count)]


@pytest.mark.parametrize("seed", range(80))
def test_rank_then_offset_is_the_order_of_every_key(seed: int) -> None:
    chance = random.Random(seed)
    producers = Producers(chance)
    found: ShardMap = bound(
        first_map("/", "all", ShardKind.STREAMS, ShardHash.MODULUS, partitions=partitions(2), definition="{}", at=AT),
        AT,
    )
    for _ in range(chance.randint(1, 6)):
        before = found.newest.partitions
        producers.send(before, range(KEYS))
        way = chance.choice(["double", "halve", "replace"])
        if way == "double" and len(before) <= 8:
            found = doubled(found, partitions(len(before)), "{}", AT)
        elif way == "halve" and len(before) % 2 == 0:
            found = halved(found, {number: producers.end(number) for number in before}, "{}", AT)
        else:
            # Without a replay: the parents are read first, as by a reader that began before the change.
            found = replaced(found, partitions(chance.randint(1, 3)), ShardHash.MODULUS, "{}", AT)
        found = bound(found, AT)
        # Each producer moves at its own time, and with it its keys: what it sends first still goes the old way.
        for key in chance.sample(range(KEYS), KEYS):
            producers.send(before, [key])
        seals = {number: producers.end(number) for number in before}
        found = sealed(found, seals)
        producers.send(found.newest.partitions, range(KEYS))
    stretches = ranked_stretches(found)

    def rank(number: int, offset: int) -> int:
        return next(one.rank for one in stretches[number] if one.first_offset <= offset < one.next_offset)

    for places in producers.sent.values():
        order = [(rank(number, offset), offset) for number, offset in places]
        assert order == sorted(order)
        assert len(set(zip(order, (number for number, _ in places), strict=True))) == len(order)


def test_a_reader_begins_with_the_replay_only_once_everything_before_it_is_sealed() -> None:
    found = bound(
        first_map("/", "all", ShardKind.STREAMS, ShardHash.MODULUS, partitions=partitions(2), definition="{}", at=AT),
        AT,
    )
    found = replaced(found, [Partition(0, "new", start=Offset(9))], ShardHash.MODULUS, "{}", AT)
    assert ShardScope.of(found, version_at(found)).numbers == (0, 1)
    found = bound(found, AT)
    scope = ShardScope.of(found, version_at(found))
    assert (scope.numbers, scope.begins) == ((0, 1, 2), {2: 9})
    found = sealed(found, {0: Offset(1), 1: Offset(1)})
    scope = ShardScope.of(found, version_at(found))
    assert (scope.numbers, scope.begins, scope.left_out) == ((2,), {}, {0, 1})
