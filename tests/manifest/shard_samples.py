"""Maps of sharded streams for tests."""

from __future__ import annotations

from collections.abc import Iterable

from coldstream.manifest.shard_changes import bound, first_map
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind, ShardMap
from coldstream.units import TimestampMs

AT = TimestampMs(1_763_700_000_000)


def named(numbers: Iterable[int], name: str = "orders") -> list[Partition]:
    """Return partitions of these names' numbers, as a change takes them."""
    return [Partition(0, f"{name}-{number}") for number in numbers]


def sample_map(partitions: int = 2, *, name: str = "orders", hash_: ShardHash = ShardHash.MURMUR3) -> ShardMap:
    """Return a super stream's first map, at revision 1."""
    return first_map(
        "/", name, ShardKind.SUPER_STREAM, hash_, partitions=named(range(partitions), name), definition="{}", at=AT
    )


def bound_map(partitions: int = 2, *, name: str = "orders", hash_: ShardHash = ShardHash.MURMUR3) -> ShardMap:
    """Return the same, bound at the broker, at revision 2."""
    return bound(sample_map(partitions, name=name, hash_=hash_), AT)
