"""The order of keys, held against a brute-force model: producers, changes of the number, and a reader at random."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.manifest.key_order import KeyOrder
from coldstream.manifest.shard_changes import bound, doubled, halved, sealed
from coldstream.manifest.shard_map import Lineage, ShardMap
from coldstream.units import Offset
from tests.manifest.shard_samples import AT, bound_map, named


class Model:
    """A sharded stream whose keys are numbers: key k is in place k mod N. Each message is (key, its number)."""

    def __init__(self, rng: random.Random, partitions: int) -> None:
        self.rng = rng
        self.map = bound_map(partitions)
        self.messages: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
        self.counts: Counter[int] = Counter()
        self.seen: list[ShardMap] = [self.map]

    def publish(self, most: int, places: tuple[int, ...] | None = None) -> None:
        places = places or self.map.newest.partitions
        for _ in range(self.rng.randrange(most + 1)):
            key = self.rng.randrange(16)
            self.messages[places[key % len(places)]].append((key, self.counts[key]))
            self.counts[key] += 1

    def double(self) -> None:
        n = len(self.map.newest.partitions)
        before = self.map.newest.partitions
        self._note(doubled(self.map, named(range(n, 2 * n)), "{}", AT))
        self.messages += [[] for _ in range(n)]
        self.publish(3, before)
        self._finish()

    def halve(self) -> None:
        before = self.map.newest.partitions
        ends = {number: self._end(number) for number in before[: len(before) // 2]}
        self._note(halved(self.map, ends, "{}", AT))
        self.publish(3, before)
        self._finish()

    def _finish(self) -> None:
        """Bind the version, and seal it: in this model producers move all at once, when it is bound."""
        self._note(bound(self.map, AT))
        seals = {edge.parent: self._end(edge.parent) for edge in self.map.unsealed}
        self.publish(3)
        some = {parent: seal for parent, seal in seals.items() if self.rng.random() < 0.5}
        self._note(sealed(self.map, some))
        self.publish(3)
        self._note(sealed(self.map, seals))

    def _end(self, number: int) -> Offset:
        return Offset(len(self.messages[number]))

    def _note(self, changed: ShardMap) -> None:
        self.map = changed
        self.seen.append(changed)


def read_at_random(rng: random.Random, model: Model, maps: list[ShardMap]) -> None:
    """Read everything, a message of a random partition that may be read; check that each key is in its order."""
    order = KeyOrder(maps[0], {})
    expected: Counter[int] = Counter()
    ahead = list(maps[1:])
    while True:
        readable = [
            number
            for number, held in enumerate(model.messages)
            if number < len(maps[len(maps) - len(ahead) - 1].partitions)
            and order.position(number) < len(held)
            and order.may_read(number, order.position(number))
        ]
        if ahead and (not readable or rng.random() < 0.2):
            order.use(ahead.pop(0))
            continue
        if not readable:
            break
        number = rng.choice(readable)
        offset = order.position(number)
        key, place = model.messages[number][offset]
        assert place == expected[key], f"key {key} of partition {number} at {offset}"
        expected[key] += 1
        order.read_to(number, Offset(offset + 1))
    assert expected == +model.counts, "the reader is stuck"


CHANGES = ["double", "double", "halve", "halve", "double"]


@pytest.mark.parametrize("most", [0, 1, 4, 20])
@pytest.mark.parametrize("seed", range(40))
def test_no_message_of_a_key_comes_before_an_earlier_one(seed: int, most: int) -> None:
    """Growth 2, 4, 8, then 4, 2, then 4 again; with few messages, partitions stay empty between changes."""
    rng = random.Random(seed * 31 + most)
    model = Model(rng, 2)
    model.publish(most)
    for change in CHANGES:
        getattr(model, change)()
        model.publish(most)
    for _ in range(3):
        read_at_random(rng, model, [model.map])


@given(st.randoms(use_true_random=False), st.lists(st.booleans(), max_size=6), st.sampled_from([1, 2, 3]))
def test_any_walk_of_changes_keeps_the_order(rng: random.Random, grows: list[bool], partitions: int) -> None:
    model = Model(rng, partitions)
    model.publish(6)
    for is_growth in grows:
        now = len(model.map.newest.partitions)
        if is_growth and now < 12:
            model.double()
        elif not is_growth and now % 2 == 0:
            model.halve()
        model.publish(6)
    read_at_random(rng, model, [model.map])


def test_a_parent_that_stayed_empty_does_not_hide_its_own_parent() -> None:
    """Partition 1 got nothing between two doublings: partition 3 still waits for partition 0."""
    first = doubled(bound_map(1), named([1]), "{}", AT)
    first = sealed(bound(first, AT), {0: Offset(5)})
    second = doubled(first, named([2, 3]), "{}", AT)
    order = KeyOrder(sealed(bound(second, AT), {0: Offset(9), 1: Offset(0)}), {})
    assert order.limit(3) == 0
    assert [edge.parent for edge in order.waits_for(3)] == [1]
    order.read_to(0, Offset(5))
    assert order.limit(3) is None
    assert order.limit(2) == 0


def test_an_edge_without_a_seal_holds_the_child_back() -> None:
    found = doubled(bound_map(1), named([1]), "{}", AT)
    order = KeyOrder(found, {0: Offset(1000)})
    assert not order.may_read(1, Offset(0))
    assert order.limit(0) is None
    order.finish(0)
    assert not order.may_read(1, Offset(0))
    order.use(sealed(bound(found, AT), {0: Offset(1000)}))
    assert order.may_read(1, Offset(0))


def test_a_partition_that_is_finished_is_waited_for_no_more() -> None:
    found = sealed(bound(doubled(bound_map(1), named([1]), "{}", AT), AT), {0: Offset(1000)})
    order = KeyOrder(found, {})
    assert order.waits_for(1) == (Lineage(1, 0, Offset(0), Offset(1000)),)
    order.finish(0)
    assert order.waits_for(1) == ()


def test_a_kept_partition_is_held_back_only_from_its_end_on() -> None:
    found = halved(bound_map(2), {0: Offset(30)}, "{}", AT)
    order = KeyOrder(sealed(bound(found, AT), {1: Offset(20)}), {})
    assert order.limit(0) == 30
    assert order.may_read(0, Offset(29))
    assert not order.may_read(0, Offset(30))
    order.read_to(1, Offset(20))
    assert order.limit(0) is None


def test_the_least_of_several_limits_counts() -> None:
    found = replace(bound_map(3), lineage=(Lineage(2, 0, Offset(9), Offset(1)), Lineage(2, 1, Offset(5), Offset(1))))
    order = KeyOrder(found, {})
    assert order.limit(2) == 5
    order.read_to(1, Offset(1))
    assert order.limit(2) == 9


def test_an_edge_comes_too_late_if_its_child_is_read_past_where_it_is_held_back() -> None:
    grown = doubled(bound_map(1), named([1]), "{}", AT)
    assert KeyOrder(bound_map(1), {}).use(grown) == ()
    assert KeyOrder(bound_map(1), {1: Offset(5)}).use(grown) == grown.lineage
    assert KeyOrder(grown, {1: Offset(5)}).use(grown) == (), "it is not new"
    read = sealed(bound(grown, AT), {0: Offset(7)})
    assert KeyOrder(bound_map(1), {0: Offset(7), 1: Offset(5)}).use(read) == ()


def test_reading_never_goes_back() -> None:
    order = KeyOrder(bound_map(1), {0: Offset(7)})
    order.read_to(0, Offset(3))
    assert order.position(0) == 7


def test_a_partition_that_is_read_up_to_its_first_offset_is_read_up_to_no_other() -> None:
    order = KeyOrder(bound_map(1), {})
    assert order.position(0) == 0
    order.read_to(0, Offset(0))
    assert order.position(0) == 0
    order.read_to(0, Offset(7))
    order.read_to(0, Offset(3))
    assert order.position(0) == 7
