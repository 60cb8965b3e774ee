"""Messages that are not where the hash of the map puts their keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coldstream.errors import InvalidInputError
from coldstream.format.writer import SegmentWriter
from coldstream.manifest.shard_changes import first_map
from coldstream.manifest.shard_map import Lineage, Partition, ShardHash, ShardKind, ShardMap
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.replay.routing import RoutingKey
from coldstream.routing.detect import ClientHash, rstream_partition_of
from coldstream.routing.modulus import modulus_hash
from coldstream.routing.murmur3 import partition_of
from coldstream.shards.key_check import KeyCheck, check_keys
from coldstream.units import Offset, TimestampMs
from tests.support.amqp_samples import encode
from tests.support.segments import START, MemoryArchive

KEYS = [f"key {number}" for number in range(60)]
FIELD = RoutingKey("application_properties", "key")


def mapped(hash_: ShardHash) -> ShardMap:
    partitions = [Partition(0, f"orders-{key}", binding_key=key) for key in ("eu", "us")]
    return first_map(
        "/", "orders", ShardKind.SUPER_STREAM, hash_, partitions=partitions, definition="{}", at=TimestampMs(0)
    )


def archive_of(directory: Path, place_of: Callable[[str], int], keys: list[str]) -> MemoryArchive:
    """Archive messages of these keys; the last segment of each partition is active, and not archived."""
    first = MemoryArchive()
    for place, name in enumerate(("orders-eu", "orders-us")):
        one = MemoryArchive(stream=StreamId("/", name, Incarnation(f"__{name}_176370000000000000{place}")))
        one.use(table=first.table, objects=first.objects)
        (directory / name).mkdir()
        with SegmentWriter(directory / name, max_segment_chunks=1) as writer:
            for key in [one for one in keys if place_of(one) == place] + ["active"]:
                message = encode(application_properties={"key": key}, body=b"x")
                writer.write([message], timestamp=START)
        one.announce(directory / name)
    return first


def checked(archive: MemoryArchive, found: ShardMap, field: RoutingKey = FIELD) -> KeyCheck:
    return check_keys(archive.table, archive.objects, found, field)


def test_messages_in_their_place_are_counted(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, lambda key: partition_of(key, 2), KEYS)
    assert checked(archive, mapped(ShardHash.MURMUR3)) == KeyCheck(60, 60, 0, (), ClientHash.MURMUR3)


def test_the_hash_of_rstream_is_known_and_misrouted_offsets_are_named(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, lambda key: rstream_partition_of(key, 2), KEYS)
    found = checked(archive, mapped(ShardHash.MURMUR3))
    assert found.clients is ClientHash.RSTREAM
    wrong = [key for key in KEYS if rstream_partition_of(key, 2) != partition_of(key, 2)]
    assert found.in_place == 60 - len(wrong)
    assert len(found.misrouted) == 10
    for one in found.misrouted:
        assert (one.belongs, one.partition) == (partition_of(one.key, 2), rstream_partition_of(one.key, 2))
        place = [key for key in KEYS if rstream_partition_of(key, 2) == one.partition]
        assert place[one.offset] == one.key


def test_modulus_is_phash2_of_the_key(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, lambda key: modulus_hash(key) % 2, KEYS)
    assert checked(archive, mapped(ShardHash.MODULUS)) == KeyCheck(60, 60, 0, (), None)


def test_a_key_that_no_partition_has_belongs_nowhere(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, lambda key: int(key != "eu"), ["eu", "us", "asia"])
    found = checked(archive, mapped(ShardHash.BINDING_KEY))
    assert (found.looked_at, found.in_place) == (3, 2)
    assert [(one.key, one.partition, one.offset, one.belongs) for one in found.misrouted] == [("asia", 1, 1, None)]


def test_messages_without_a_key_are_counted(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, lambda _: 0, KEYS)
    found = checked(archive, mapped(ShardHash.MURMUR3), RoutingKey("application_properties", "other"))
    assert (found.looked_at, found.in_place, found.without_key) == (60, 0, 60)


def test_messages_of_an_earlier_version_are_passed_over(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, lambda _: 0, KEYS)
    found = mapped(ShardHash.MURMUR3)
    sealed = replace(found, lineage=(Lineage(1, 0, Offset(0), Offset(50)),))
    assert checked(archive, sealed).looked_at == 10
    assert checked(archive, replace(found, lineage=(Lineage(1, 0, Offset(0)),))).looked_at == 0


@pytest.mark.parametrize("hash_", [ShardHash.CONSISTENT, ShardHash.RANDOM])
def test_what_no_key_alone_decides_is_not_checked(tmp_path: Path, hash_: ShardHash) -> None:
    archive = archive_of(tmp_path, lambda _: 0, KEYS)
    with pytest.raises(InvalidInputError, match="no key alone decides"):
        checked(archive, mapped(hash_))
