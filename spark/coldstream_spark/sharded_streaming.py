"""Streaming queries of a sharded stream: as those of streams, which are told apart by the partition's number.

{"streams": {number: {"incarnation": incarnation, "offset": next offset to read}}, "version": version of the map}

The version is the one at which the query began. It says of each partition that comes later whether a part of it is a
replay of what the query has read. So Spark has to tell where the query is, as it does from 4.2 on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from coldstream.errors import InvalidQueryError, InvalidSettingError, StreamNotFoundError
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.shard_starts import ShardScope, version_at
from coldstream.manifest.stream import StreamId
from coldstream.units import MIN_TIMESTAMP_MS, Offset
from coldstream_spark.options import SourceOptions
from coldstream_spark.plan import plan_partitions, shard_bounds
from coldstream_spark.plan_range import OffsetRange
from coldstream_spark.positions import Position, Positions, from_json, to_json
from coldstream_spark.read_task import ReadTask
from coldstream_spark.shards import ArchivedShard, at_once, find_shard_map, find_shards
from coldstream_spark.streaming import SPARK_PASSES_START, ColdstreamStreamReader

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

_ALL = 1
"""The version from which on no partition is left out."""


class ShardedStreamReader(ColdstreamStreamReader):
    """Reads micro-batches of all partitions; those that are new, or archived for the first time, as they come."""

    def __init__(self, options: SourceOptions) -> None:
        if not SPARK_PASSES_START:
            raise InvalidSettingError("option shardedStream", "needs Spark 4.2 in a streaming query")
        super().__init__(options)
        self._numbers: Collection[int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Return where a new query begins."""
        version = version_at(self._map())
        self._reached = self._positions(version, 0)
        return to_json(self._reached) | {"version": version}

    def latestOffset(  # noqa: N802  Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return how far the next batch reaches."""
        version = _version(start)
        self._numbers = ShardScope.of(self._map(), version).numbers
        if self._target is not None:
            self._target = {key: end for key, end in self._target.items() if int(key) in self._numbers}
        return super().latestOffset(start, limit) | {"version": version}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a batch. Raises GapError, and StreamNotFoundError for a partition that is gone from the archive."""
        options = self._options
        before, after = from_json(start, options.vhost), from_json(end, options.vhost)
        self._reached = after
        shards = {str(one.partition.number): one for one in find_shards(self._table, self._map(), _version(start))}
        ranges = [one for key in after for one in self._shard_ranges(shards.get(key), before.get(key), after[key])]
        return [
            ReadTask(partition, options.columns, options.location)
            for partition in plan_partitions(self._table, options, ranges, MIN_TIMESTAMP_MS)
        ]

    def _shard_ranges(
        self, shard: ArchivedShard | None, before: Position | None, until: Position
    ) -> Iterator[OffsetRange]:
        if shard is None:
            if self._options.fail_on_data_loss and before != until:
                raise StreamNotFoundError(f"partition {until.stream.name} of {self._options.sharded!r} is not archived")
            return
        first = before or Position(until.stream, shard.begins)
        for one in self._ranges(first, until):
            yield from shard.cut(replace(one, stream=shard.stream, exactly=before is not None and one.exactly))

    def _ends(self) -> Positions:
        found = self._positions(_ALL, 1)
        return {key: end for key, end in found.items() if self._numbers is None or int(key) in self._numbers}

    def _positions(self, version: int, bound: int) -> Positions:
        """Return where each partition begins, or ends now: bound 0 or 1."""
        table, objects = self._table, self._options.location.open_bucket()
        shards = find_shards(table, self._map(), version)
        bounds = at_once(lambda index: shard_bounds(table, objects, self._options, shards[index]), range(len(shards)))
        return {
            str(shard.partition.number): Position(_key(shard), Offset(offsets[bound]))
            for shard, offsets in zip(shards, bounds, strict=True)
        }

    def _map(self) -> ShardMap:
        assert self._options.sharded is not None
        return find_shard_map(self._table, self._options.vhost, self._options.sharded)


def _key(shard: ArchivedShard) -> StreamId:
    """Return the stream by its number, as the checkpoint has it."""
    return replace(shard.stream, name=str(shard.partition.number))


def _version(position: dict[str, Any] | None) -> int:
    version = (position or {}).get("version")
    if type(version) is not int or version < 1:
        raise InvalidQueryError("checkpoint", "was not written by a query of a sharded stream")
    return version
