"""Shard maps for tests, and how they get into an archive's table."""

from __future__ import annotations

from dataclasses import replace

from coldstream.manifest.shard_changes import bound, doubled, first_map, identified, sealed
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind, ShardMap
from coldstream.manifest.stream import Incarnation
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import ManifestTable
from coldstream.store.shard_maps import ShardMapWriter
from coldstream.units import Offset, TimestampMs
from tests.support.archive import NOW

NAME = "orders & more/ü"


def a_map() -> ShardMap:
    """Return a map of two versions, with everything that a map can have."""
    first = [Partition(0, "a", node="rabbit@one", weight=3), Partition(0, "b", binding_key="eu", start=Offset(7))]
    found = first_map(
        "/", NAME, ShardKind.STREAMS, ShardHash.MODULUS, partitions=first, definition='{"shards":2}', at=TimestampMs(1)
    )
    found = bound(
        doubled(bound(found, TimestampMs(2)), [Partition(0, "c"), Partition(0, "d")], "{}", TimestampMs(3)), NOW
    )
    found = sealed(found, {0: Offset((1 << 64) - 1)})
    return identified(found, {1: Incarnation("life_1763700000000000000")}, deleted={1: TimestampMs(9)})


def map_writer(table: ManifestTable) -> ShardMapWriter:
    """Return what writes maps into a table, and their objects nowhere that a test would look."""
    return ShardMapWriter(table, ControlObjects(MemoryObjects(), Keys()))


def write(table: ManifestTable, found: ShardMap, *, after: int = 0) -> None:
    """Put a map into the table, as if each revision after one had been written."""
    for revision in range(after + 1, found.revision + 1):
        map_writer(table).write(replace(found, revision=revision), ShardEventKind.DECLARE, NOW)
