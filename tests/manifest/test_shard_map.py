from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import InvalidInputError
from coldstream.manifest.shard_map import (
    MAX_LINEAGE,
    MAX_PARTITIONS,
    Lineage,
    MapVersion,
    Partition,
    ShardHash,
    ShardMap,
)
from coldstream.units import MAX_OFFSET, Offset
from tests.manifest.shard_samples import AT, bound_map, named, sample_map


def test_the_newest_version_lists_the_current_partitions() -> None:
    found = sample_map(3)
    assert found.newest.version == 1
    assert [one.name for one in found.current] == ["orders-0", "orders-1", "orders-2"]


def test_a_map_is_changing_until_it_is_bound_and_sealed() -> None:
    found = sample_map()
    assert found.is_changing
    assert not bound_map().is_changing
    waiting = replace(bound_map(), lineage=(Lineage(1, 0, Offset(0)),))
    assert waiting.is_changing
    assert waiting.unsealed == waiting.lineage


def test_a_name_that_was_declared_again_means_the_newest_partition() -> None:
    found = sample_map()
    again = replace(found, partitions=(*found.partitions, Partition(2, "orders-1")))
    there = again.partition_named("orders-1")
    assert there is not None
    assert there.number == 2
    assert again.partition_named("orders-9") is None


@pytest.mark.parametrize("name", ["", "x" * 256, "\ud800"])
def test_a_name_that_no_stream_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError):
        Partition(0, name)
    with pytest.raises(InvalidInputError):
        replace(sample_map(), name=name)
    with pytest.raises(InvalidInputError) as caught:
        replace(sample_map(), vhost=name)
    assert caught.value.field == "vhost"


@pytest.mark.parametrize("weight", [0, -1])
def test_a_weight_is_at_least_one(weight: int) -> None:
    with pytest.raises(InvalidInputError, match="weight"):
        Partition(0, "x", weight=weight)


def test_a_version_has_one_to_1024_partitions_each_once() -> None:
    MapVersion(1, tuple(range(MAX_PARTITIONS)), ShardHash.MURMUR3, AT)
    for numbers in ((), tuple(range(MAX_PARTITIONS + 1)), (0, 1, 0)):
        with pytest.raises(InvalidInputError, match="partitions"):
            MapVersion(1, numbers, ShardHash.MURMUR3, AT)


@pytest.mark.parametrize("offset", [-1, MAX_OFFSET + 2])
def test_an_offset_outside_of_64_bits_is_refused(offset: int) -> None:
    for make in (lambda: Lineage(1, 0, Offset(offset)), lambda: Lineage(1, 0, Offset(0), Offset(offset))):
        with pytest.raises(InvalidInputError, match="no offset"):
            make()
    with pytest.raises(InvalidInputError, match="no offset"):
        Partition(0, "x", start=Offset(offset))
    Lineage(1, 0, Offset(MAX_OFFSET + 1), Offset(MAX_OFFSET + 1))


def test_a_partition_is_not_its_own_parent() -> None:
    with pytest.raises(InvalidInputError, match="itself"):
        Lineage(1, 1, Offset(0))


@pytest.mark.parametrize(
    "broken",
    [
        {"versions": ()},
        {"versions": (MapVersion(2, (0,), ShardHash.MURMUR3, AT),)},
        {"versions": (MapVersion(1, (0, 2), ShardHash.MURMUR3, AT),)},
        {"versions": (MapVersion(1, (0, -1), ShardHash.MURMUR3, AT),)},
        {"partitions": (Partition(1, "orders-0"), Partition(0, "orders-1"))},
        {"lineage": (Lineage(2, 0, Offset(0)),)},
        {"lineage": (Lineage(0, 7, Offset(0)),)},
        {"lineage": (Lineage(0, 1, Offset(0)),) * (MAX_LINEAGE + 1)},
    ],
    ids=str,
)
def test_a_map_that_contradicts_itself_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        replace(sample_map(), **broken)  # type: ignore[arg-type]


def test_all_versions_together_have_4096_partitions_at_most() -> None:
    found = sample_map()
    many = [replace(one, number=number) for number, one in enumerate(named(range(4 * MAX_PARTITIONS + 1)))]
    assert isinstance(replace(found, partitions=tuple(many[:-1])), ShardMap)
    with pytest.raises(InvalidInputError, match="4097 of all versions"):
        replace(found, partitions=tuple(many))
