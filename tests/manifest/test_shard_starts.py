"""Where a reader begins in a map, and what it reads as the map grows: each message once, in the order of keys."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from coldstream.errors import InvalidQueryError
from coldstream.manifest.shard_changes import bound, doubled, first_map, halved, identified, replaced, sealed
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind, ShardMap
from coldstream.manifest.shard_position import ShardPosition
from coldstream.manifest.shard_starts import (
    ShardScope,
    ShardStart,
    check_position,
    first_versions,
    last_seal,
    shard_starts,
    version_after,
    version_at,
)
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp
from coldstream.units import Offset, TimestampMs

AT = TimestampMs(100)
LATER = TimestampMs(200)
END = Offset(40)


def partitions(count: int) -> list[Partition]:
    return [Partition(0, "p") for _ in range(count)]


def first(count: int = 2) -> ShardMap:
    found = first_map(
        "/", "all", ShardKind.STREAMS, ShardHash.MODULUS, partitions=partitions(count), definition="", at=AT
    )
    return bound(found, AT)


def seal_all(found: ShardMap) -> ShardMap:
    return sealed(found, {edge.parent: END for edge in found.unsealed})


def replayed(found: ShardMap, *, start: int = 90) -> ShardMap:
    """Two partitions replaced by one that holds a replay, and is not bound yet."""
    return replaced(found, [Partition(0, "new", start=Offset(start))], ShardHash.MODULUS, "", LATER)


def position(version: int, *offsets: int | None) -> ShardPosition:
    return ShardPosition(version, {at: Offset(one) for at, one in enumerate(offsets) if one is not None})


def at(*offsets: int | None) -> dict[int, AtOffset]:
    return {number: AtOffset(Offset(one)) for number, one in enumerate(offsets) if one is not None}


def test_a_version_that_is_not_bound_yet_is_left_to_a_later_revision() -> None:
    grown = doubled(first(), partitions(2), "", AT)
    assert shard_starts(grown, FIRST) == {0: FIRST, 1: FIRST}
    assert version_at(grown) == version_after(grown, 1, {}) == 1
    after = ShardScope.of(bound(grown, AT), 1)
    assert (after.numbers, after.begins) == ((0, 1, 2, 3), {2: 0, 3: 0})


def test_first_begins_with_a_replay_once_it_is_bound_and_all_before_it_sealed() -> None:
    found = replayed(first())
    assert shard_starts(found, FIRST) == {0: FIRST, 1: FIRST}
    assert shard_starts(bound(found, LATER), FIRST) == {0: FIRST, 1: FIRST, 2: AtOffset(Offset(90))}
    found = bound(seal_all(found), LATER)
    assert shard_starts(found, FIRST) == {2: FIRST}
    assert ShardScope.of(found, version_at(found)).left_out == {0, 1}


def test_nothing_is_left_out_for_new_partitions_without_a_replay() -> None:
    found = seal_all(bound(replayed(first(), start=0), LATER))
    for start in (FIRST, AtTimestamp(LATER), AtOffset(Offset(5))):
        assert shard_starts(found, start) == dict.fromkeys(range(3), start)
    assert ShardScope.of(found, version_at(found)).left_out == frozenset()


def test_a_time_is_read_in_the_era_that_it_is_of() -> None:
    found = bound(seal_all(replayed(first())), LATER)
    before, after = AtTimestamp(TimestampMs(LATER - 1)), AtTimestamp(LATER)
    assert shard_starts(found, before) == {0: before, 1: before, 2: AtOffset(Offset(90))}
    assert shard_starts(found, after) == {2: after}


def test_a_replay_that_is_not_bound_yet_is_after_no_time() -> None:
    start = AtTimestamp(TimestampMs(LATER + 1))
    assert shard_starts(seal_all(replayed(first())), start) == {0: start, 1: start}


@pytest.mark.parametrize("start", [LAST, NEXT])
def test_an_end_is_that_of_what_may_still_be_written(start: ShardStart) -> None:
    found = bound(replayed(first()), LATER)
    assert version_at(found, start) == 2
    assert shard_starts(found, start) == dict.fromkeys(range(3), start)
    assert shard_starts(seal_all(found), start) == {2: start}
    # Halves that ended, and are sealed, get nothing more.
    shrunk = halved(first(4), dict.fromkeys(range(4), END), "", AT)
    assert shard_starts(seal_all(bound(shrunk, AT)), start) == {0: start, 1: start}


def test_an_offset_is_none_within_a_replay_of_what_was_read() -> None:
    found = bound(replayed(first()), LATER)
    assert shard_starts(found, AtOffset(Offset(5)))[2] == AtOffset(Offset(90))
    assert shard_starts(found, AtOffset(Offset(95)))[2] == AtOffset(Offset(95))


@pytest.mark.parametrize(
    ("start", "starts"),
    [
        (position(1, 12, 3), at(12, 3, 90)),
        (position(1, 12), at(12, 0, 90)),
        (position(1, END, END), at(END, END, 90)),
        (position(2, 12, 3, 95), at(12, 3, 95)),  # of a reader that had come to the new partition meanwhile
        (position(2, 12, 3), at(12, 3, 90)),
        (position(2, 12, END, 95), at(12, END, 95)),
        (position(2, END, END, 95), at(None, None, 95)),
        (position(2, None, None, 95), at(None, None, 95)),
        (position(2), at(None, None, 0)),
        (position(1), at(0, 0, 90)),
    ],
    ids=str,
)
def test_a_position_goes_through_its_version_to_the_seals_and_on_after_the_replay(
    start: ShardPosition, starts: dict[int, AtOffset]
) -> None:
    assert shard_starts(bound(seal_all(replayed(first())), LATER), start) == starts


def test_a_reader_comes_to_the_replay_with_the_last_seal_that_it_reads() -> None:
    found = bound(replayed(first()), LATER)
    read = {0: END, 1: END, 2: Offset(90)}
    assert version_after(found, 1, read) == 1
    found = seal_all(found)
    assert version_after(found, 1, {**read, 1: Offset(END - 1)}) == 1
    assert version_after(found, 1, read) == 2


def test_a_reader_past_a_replay_does_not_come_back_for_what_it_left_unread() -> None:
    found = bound(seal_all(replayed(first())), LATER)
    assert version_after(found, 2, {0: Offset(12), 2: Offset(95)}) == 2


def test_a_partition_that_was_not_begun_is_not_read_up_to_a_seal() -> None:
    found = replayed(first())
    found = bound(sealed(found, {edge.parent: Offset(1) for edge in found.unsealed}), LATER)
    assert version_after(found, 1, {0: Offset(1)}) == 1
    assert version_after(found, 1, {0: Offset(1), 1: Offset(1)}) == 2


def test_a_reader_that_began_with_a_replay_comes_to_the_next_one_without_the_partitions_before() -> None:
    found = bound(seal_all(replayed(first())), LATER)
    found = bound(seal_all(replayed(found)), LATER)
    assert version_after(found, 2, {2: END, 3: Offset(90)}) == 3


@pytest.mark.parametrize("bad", [position(3), position(1, 1, 1, 1)])
def test_a_position_of_another_map_is_refused(bad: ShardPosition) -> None:
    check_position(first(), position(1, 1, 1))
    with pytest.raises(InvalidQueryError):
        check_position(first(), bad)


def changed(found: ShardMap, chance: random.Random, ends: dict[int, int]) -> ShardMap:
    """Take a map one random change further, with what producers and a replay do meanwhile."""
    before = found.newest.partitions
    held = {number: Offset(ends.get(number, 0)) for number in before}
    way = chance.choice(["double", "halve", "replay", "replace"])
    if way == "double" and len(before) <= 4:
        found = doubled(found, partitions(len(before)), "", AT)
    elif way == "halve" and len(before) % 2 == 0:
        found = halved(found, held, "", AT)
    else:
        found = replaced(found, partitions(chance.randint(1, 3)), ShardHash.MODULUS, "", AT)
        if way == "replay":
            starts = {number: Offset(chance.randint(1, 9)) for number in found.newest.partitions}
            ends |= starts
            found = identified(found, {}, starts=starts)
    return found


@pytest.mark.parametrize("seed", range(150))
def test_a_reader_that_stops_and_goes_on_reads_each_message_of_its_era_once(seed: int) -> None:
    """A reader of any pace, with a position or with a version of its own, over random changes."""
    chance = random.Random(seed)
    found, ends, revisions = first(chance.randint(1, 3)), dict[int, int](), list[tuple[ShardMap, dict[int, int]]]()

    def produce(number: int) -> None:
        ends[number] = ends.get(number, 0) + chance.randint(0, 5)
        revisions.append((found, dict(ends)))

    for _ in range(chance.randint(1, 5)):
        before = found.newest.partitions
        for number in before:
            produce(number)
        found = changed(found, chance, ends)
        revisions.append((found, dict(ends)))
        found = bound(found, AT)
        for number in {*before, *found.newest.partitions}:
            produce(number)
        found = sealed(found, {edge.parent: Offset(ends.get(edge.parent, 0)) for edge in found.unsealed})
        for number in found.newest.partitions:
            produce(number)
    begin = chance.randrange(len(revisions))
    version = first_version = version_at(revisions[begin][0])
    offsets: dict[int, Offset] = {}
    begun: dict[int, Offset] = {}
    ended: dict[int, Offset] = {}
    for seen, held in [*revisions[begin:], *revisions[-1:] * 2]:
        scope = ShardScope.of(seen, version, offsets)
        if begun and chance.random() < 0.5:
            # It stops, and goes on from its position as another reader does.
            starts = shard_starts(seen, ShardPosition(version, offsets))
            assert starts.keys() == {*scope.numbers}
            offsets = {number: spec.offset for number, spec in starts.items() if isinstance(spec, AtOffset)}
        for number in scope.numbers:
            now = offsets.setdefault(number, scope.begins.get(number, Offset(0)))
            begun.setdefault(number, now)
            end = Offset(max(now, held.get(number, 0)))
            offsets[number] = end if seen is found else Offset(chance.randint(now, end))
            ended[number] = offsets[number]
        version = version_after(seen, version, offsets)
    since = first_versions(found)
    base = {*ShardScope.of(revisions[begin][0], first_version).numbers}
    read = {number for number, first_in in since.items() if number in base or first_in > first_version}
    assert begun == {number: found.partitions[number].start if since[number] > first_version else 0 for number in read}
    assert ended == {number: ends.get(number, 0) for number in read}


def test_a_partition_with_an_edge_that_is_not_sealed_has_no_last_seal() -> None:
    found = seal_all(bound(doubled(first(), partitions(2), "", AT), AT))
    assert last_seal(found, 0) == END
    again = replace(found, lineage=(*found.lineage, replace(found.lineage[0], seal=None)))
    assert last_seal(again, 0) is None
    assert last_seal(found, 3) is None, "it is nobody's parent"


def test_the_offsets_of_another_consumer_are_read_alike() -> None:
    """A position that names what was read of earlier eras means the same with it and without it."""
    found = bound(seal_all(replayed(first())), LATER)
    told = position(2, END, END, 95)
    assert shard_starts(found, told) == shard_starts(found, replace(told, offsets={2: Offset(95)}))
