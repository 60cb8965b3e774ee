from __future__ import annotations

import pytest

from coldstream.errors import InvalidInputError, ShardChangeError
from coldstream.manifest.shard_changes import bound, doubled, halved, identified, rearranged, replaced, sealed
from coldstream.manifest.shard_map import Lineage, ShardHash, ShardMap
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset, TimestampMs
from tests.manifest.shard_samples import AT, bound_map, named, sample_map


def grown(found: ShardMap) -> ShardMap:
    n = len(found.newest.partitions)
    return doubled(found, named(range(n, 2 * n)), "{}", AT)


def settled(found: ShardMap, seal: int = 10) -> ShardMap:
    seen = bound(found, AT)
    return sealed(seen, {edge.parent: Offset(seal) for edge in seen.unsealed})


def test_doubling_gives_each_new_partition_the_parent_that_had_its_keys() -> None:
    found = grown(bound_map(2))
    assert (found.revision, found.newest.version, found.newest.partitions) == (3, 2, (0, 1, 2, 3))
    assert found.lineage == (Lineage(2, 0, Offset(0)), Lineage(3, 1, Offset(0)))
    assert found.is_changing
    assert found.versions[0] == bound_map(2).versions[0]


def test_halving_gives_each_kept_partition_the_one_whose_keys_it_takes_over() -> None:
    four = settled(grown(bound_map(2)))
    found = halved(four, {0: Offset(100), 1: Offset(200)}, "{}", AT)
    assert found.newest.partitions == (0, 1)
    assert found.lineage[2:] == (Lineage(0, 2, Offset(100)), Lineage(1, 3, Offset(200)))
    assert found.partitions == four.partitions


def test_growing_again_after_halving_makes_new_partitions_of_the_same_names() -> None:
    two = settled(halved(settled(grown(bound_map(2))), {0: Offset(1), 1: Offset(2)}, "{}", AT))
    found = grown(two)
    assert found.newest.partitions == (0, 1, 4, 5)
    assert [one.name for one in found.current] == ["orders-0", "orders-1", "orders-2", "orders-3"]
    there = found.partition_named("orders-2")
    assert there is not None
    assert there.number == 4


def test_a_replacement_comes_after_all_earlier_partitions_from_its_start() -> None:
    found = replaced(bound_map(2), named(range(10, 13)), ShardHash.BINDING_KEY, '{"b":1}', AT)
    assert found.newest.partitions == (2, 3, 4)
    assert found.newest.hash is ShardHash.BINDING_KEY
    assert len(found.lineage) == 6
    started = identified(found, {}, starts={2: Offset(50)})
    assert {edge.child_from for edge in started.lineage if edge.child == 2} == {50}
    assert {edge.child_from for edge in started.lineage if edge.child == 3} == {0}
    assert started.partitions[2].start == 50


def test_a_seal_is_recorded_once_and_stays() -> None:
    found = settled(grown(bound_map(2)), seal=7)
    assert [edge.seal for edge in found.lineage] == [7, 7]
    assert not found.is_changing
    assert [edge.seal for edge in sealed(found, {0: Offset(99)}).lineage] == [7, 7]


def test_a_version_that_is_not_bound_is_not_sealed() -> None:
    with pytest.raises(ShardChangeError, match="not bound"):
        sealed(grown(bound_map(2)), {0: Offset(7)})
    with pytest.raises(ShardChangeError, match="not bound"):
        sealed(sample_map(), {})


def test_partitions_are_added_only_where_keys_have_no_order() -> None:
    added = rearranged(bound_map(2, hash_=ShardHash.RANDOM), named([2]), "{}", AT)
    assert (added.newest.partitions, added.lineage) == ((0, 1, 2), ())
    with pytest.raises(ShardChangeError, match="keep an order"):
        rearranged(bound_map(2), named([2]), "{}", AT)


@pytest.mark.parametrize("found", [sample_map(2), grown(bound_map(2)), bound(grown(bound_map(2)), AT)])
def test_nothing_begins_before_the_last_change_is_finished(found: ShardMap) -> None:
    with pytest.raises(ShardChangeError, match="still being changed"):
        doubled(found, named(range(9)), "{}", AT)
    with pytest.raises(ShardChangeError, match="still being changed"):
        halved(found, {}, "{}", AT)
    with pytest.raises(ShardChangeError, match="still being changed"):
        replaced(found, named([1]), ShardHash.MURMUR3, "{}", AT)


@pytest.mark.parametrize("hash_", [ShardHash.BINDING_KEY, ShardHash.CONSISTENT, ShardHash.RANDOM])
def test_only_a_hash_modulo_the_number_doubles_and_halves(hash_: ShardHash) -> None:
    found = bound_map(2, hash_=hash_)
    with pytest.raises(ShardChangeError, match="murmur3 and modulus"):
        doubled(found, named([2, 3]), "{}", AT)
    with pytest.raises(ShardChangeError, match="murmur3 or modulus"):
        halved(found, {0: Offset(1)}, "{}", AT)


def test_doubling_takes_as_many_names_as_there_are_partitions() -> None:
    with pytest.raises(ShardChangeError, match="from 2 partitions"):
        doubled(bound_map(2), named([2, 3, 4]), "{}", AT)


@pytest.mark.parametrize("partitions", [1, 3])
def test_an_odd_number_is_not_halved(partitions: int) -> None:
    with pytest.raises(ShardChangeError, match="even number"):
        halved(bound_map(partitions), {0: Offset(1)}, "{}", AT)


def test_a_version_never_has_more_than_1024_partitions() -> None:
    found = settled(grown(bound_map(512)))
    assert len(found.newest.partitions) == 1024
    with pytest.raises(InvalidInputError, match="2048 is not 1 to 1024"):
        grown(found)


def test_a_replacement_of_more_edges_than_a_map_holds_is_refused() -> None:
    assert len(replaced(bound_map(256), named(range(256)), ShardHash.MURMUR3, "{}", AT).lineage) == 65_536
    with pytest.raises(ShardChangeError, match="fewer partitions"):
        replaced(bound_map(256), named(range(257)), ShardHash.MURMUR3, "{}", AT)


def test_incarnations_and_deletions_are_recorded_by_number() -> None:
    life = Incarnation("__orders-1_1763700000000000000")
    found = identified(bound_map(2), {1: life})
    assert [one.incarnation for one in found.partitions] == [None, life]
    gone = identified(found, {}, deleted={1: TimestampMs(5)})
    assert gone.partitions[1].incarnation == life
    assert [one.deleted_at for one in gone.partitions] == [None, 5]
    assert gone.revision == found.revision + 1
