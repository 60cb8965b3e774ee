"""The partitions of a sharded stream, as the source reads them: all of all versions, each message once.

A stream that was declared again under one name is two partitions, so they are told apart by their numbers. A partition
of which nothing is archived yet is read as soon as something is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from coldstream.errors import LogicalNameError
from coldstream.manifest.entry import Head
from coldstream.manifest.shard_map import Partition, ShardMap
from coldstream.manifest.shard_rank import RankedStretch, ranked_stretches
from coldstream.manifest.shard_starts import ShardScope
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestReads
from coldstream.store.shard_maps import find_map
from coldstream.store.streams import newest
from coldstream.units import Offset
from coldstream_spark.plan_range import OffsetRange

REQUESTS_AT_ONCE = 16

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class ArchivedShard:
    """A partition of which something is archived; it is read from `begins` on, unless the query says later."""

    partition: Partition
    stream: StreamId
    head: Head
    begins: Offset
    stretches: tuple[RankedStretch, ...]

    def cut(self, one: OffsetRange) -> Iterator[OffsetRange]:
        """Cut a range of this partition where its rank changes."""
        exactly = one.exactly
        for stretch in self.stretches:
            start, end = max(one.start, stretch.first_offset), min(one.end, stretch.next_offset)
            if start < end:
                yield replace(one, start=start, end=end, exactly=exactly, stretch=stretch)
                exactly = True


def find_shard_map(table: ManifestReads, vhost: str, name: str) -> ShardMap:
    """Return the map of a sharded stream. Cost: a GetItem. Raises LogicalNameError."""
    found = find_map(table, vhost, name)
    if found is None:
        raise LogicalNameError(f"no sharded stream {name!r} in vhost {vhost!r}; for a stream use the option stream")
    return found


def find_shards(table: ManifestReads, found: ShardMap, version: int) -> list[ArchivedShard]:
    """Return the partitions of a sharded stream that a query reads which began at `version`, by number.

    Cost: a Query and two GetItems for each partition, 16 partitions at a time.
    """
    scope = ShardScope.of(found, version)
    ranks = ranked_stretches(found)

    def archived(number: int) -> ArchivedShard | None:
        partition = found.partitions[number]
        stream = _stream_of(table, found, partition)
        head = None if stream is None else table.head(stream.incarnation)
        if stream is None or head is None or head.is_deleted or head.first_offset is None or head.next_offset is None:
            return None
        return ArchivedShard(partition, stream, head, scope.begins.get(number, Offset(0)), ranks[number])

    return [one for one in at_once(archived, scope.numbers) if one is not None]


def at_once(call: Callable[[int], _Found], numbers: Sequence[int]) -> Iterable[_Found]:
    """Return what calls return, in order, some of them at the same time."""
    with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="shards") as pool:
        return list(pool.map(call, numbers))


def _stream_of(table: ManifestReads, found: ShardMap, partition: Partition) -> StreamId | None:
    if partition.incarnation is not None:
        return StreamId(found.vhost, partition.name, partition.incarnation)
    stream = newest(table, found.vhost, partition.name)
    earlier = {one.incarnation for one in found.partitions if one.name == partition.name}
    # A name that was declared again, and is not archived yet, still means the partition before.
    return None if stream is None or stream.incarnation in earlier else stream
