"""A sharded stream as one table, read as Spark's Python workers have the source read."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed")

from coldstream_spark import ColdstreamDataSource
from coldstream_spark.schema import COLUMNS, SHARD_COLUMNS
from coldstream_spark.streaming import SPARK_PASSES_START

from coldstream.errors import InvalidSettingError, LogicalNameError
from coldstream.manifest.shard_changes import bound, doubled, first_map, halved, identified, replaced, sealed
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind, ShardMap
from coldstream.store.shard_maps import find_map
from coldstream.units import Offset
from tests.support import written_maps
from tests.support.archive import NOW
from tests.support.source import Emulated, chunks


def load(archive: Emulated, **options: str) -> list[dict[str, Any]]:
    source = ColdstreamDataSource({**archive.options, "shardedStream": "all"} | options)
    reader = source.reader(source.schema())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return sorted((row["shard_rank"], row["shard"], row["offset"]) for row in rows)


def write(archive: Emulated, found: ShardMap) -> ShardMap:
    held = find_map(archive.table, "/", "all")
    written_maps.write(archive.table, found, after=0 if held is None else held.revision)
    return found


def first(names: list[str]) -> ShardMap:
    found = [Partition(0, name) for name in names]
    return bound(
        first_map("/", "all", ShardKind.SUPER_STREAM, ShardHash.MURMUR3, partitions=found, definition="{}", at=NOW), NOW
    )


@pytest.fixture
def grown(archive: Emulated) -> ShardMap:
    """One partition that doubled at 10, and was halved again: the child's 5 messages come before 15 and later."""
    archive.stream("a").add(0, chunks(4))
    archive.stream("b").add(0, chunks(1, start_ms=2_500))
    found = sealed(bound(doubled(first(["a"]), [Partition(0, "b")], "{}", NOW), NOW), {0: Offset(10)})
    found = sealed(bound(halved(found, {0: Offset(15)}, "{}", NOW), NOW), {1: Offset(5)})
    return write(archive, found)


@pytest.mark.usefixtures("grown")
def test_all_partitions_of_all_versions_are_rows_and_rank_then_offset_is_the_order_of_a_key(archive: Emulated) -> None:
    rows = load(archive)
    parent = [(0, 0, offset) for offset in range(15)]
    assert places(rows) == parent + [(1, 1, offset) for offset in range(5)] + [(2, 0, at) for at in range(15, 20)]
    assert set(rows[0]) == {*COLUMNS, *SHARD_COLUMNS}
    assert {row["stream"] for row in rows} == {"a", "b"}


@pytest.mark.usefixtures("grown")
def test_times_are_pushed_down_to_every_partition(archive: Emulated) -> None:
    rows = load(archive, startingTimestamp="2500", endingTimestamp="4000")
    assert places(rows) == [(0, 0, at) for at in range(10, 15)] + [(1, 1, at) for at in range(5)]


@pytest.mark.usefixtures("grown")
def test_columns_of_the_partition_alone_are_read(archive: Emulated) -> None:
    rows = load(archive, columns="shard_rank,shard")
    assert len(rows) == 25
    assert list(rows[0]) == ["shard_rank", "shard"]


def test_a_name_that_was_declared_again_is_two_partitions(archive: Emulated, grown: ShardMap) -> None:
    old = archive.stream("b").stream.incarnation
    found = identified(grown, {1: old}, deleted={1: NOW})
    found = write(archive, bound(doubled(found, [Partition(0, "b")], "{}", NOW), NOW))
    assert {shard for _, shard, _ in places(load(archive))} == {0, 1}
    archive.stream("b", life=2).add(0, chunks(1))
    assert [place for place in places(load(archive)) if place[1] == 2] == [(3, 2, offset) for offset in range(5)]


def test_of_a_replacement_the_replay_is_read_and_not_what_it_replaces(archive: Emulated) -> None:
    archive.stream("a").add(0, chunks(2))
    archive.stream("c").add(0, chunks(3))
    found = replaced(first(["a"]), [Partition(0, "c", start=Offset(10))], ShardHash.MURMUR3, "{}", NOW)
    found = write(archive, bound(found, NOW))
    both = [(0, 0, at) for at in range(10)] + [(1, 1, at) for at in range(10, 15)]
    assert places(load(archive)) == both
    write(archive, sealed(found, {0: Offset(10)}))
    assert {shard for _, shard, _ in places(load(archive))} == {1}
    assert len(load(archive)) == 15


def test_a_name_without_a_map_is_told(archive: Emulated) -> None:
    with pytest.raises(LogicalNameError):
        load(archive)


@pytest.mark.parametrize("name", ["startingOffset", "endingOffset", "startingOffsets", "endingOffsets"])
def test_an_offset_means_nothing_in_a_sharded_stream(archive: Emulated, name: str) -> None:
    with pytest.raises(InvalidSettingError, match=name):
        load(archive, **{name: "5"})


@pytest.mark.skipif(not SPARK_PASSES_START, reason="before Spark 4.2")
def test_a_streaming_query_follows_growth_and_reads_each_message_once(archive: Emulated) -> None:
    archive.stream("a").add(0, chunks(2))
    found = write(archive, first(["a"]))

    def batch(start: dict[str, Any] | None) -> tuple[dict[str, Any], list[tuple[int, int, int]]]:
        # A new reader for each batch, as after a restart.
        source = ColdstreamDataSource({**archive.options, "shardedStream": "all"})
        reader: Any = source.streamReader(source.schema())
        begin = reader.initialOffset() if start is None else start
        end = reader.latestOffset(begin, reader.getDefaultReadLimit())
        rows = [row for part in reader.partitions(begin, end) for one in reader.read(part) for row in one.to_pylist()]
        return end, places(rows)

    at, rows = batch(None)
    assert rows == [(0, 0, offset) for offset in range(10)]
    assert batch(at)[1] == []
    found = sealed(bound(doubled(found, [Partition(0, "b")], "{}", NOW), NOW), {0: Offset(10)})
    write(archive, found)
    archive.stream("b").add(0, chunks(1))
    at, rows = batch(at)
    assert rows == [(1, 1, offset) for offset in range(5)]
    found = replaced(found, [Partition(0, "c", start=Offset(15))], ShardHash.MURMUR3, "{}", NOW)
    write(archive, sealed(bound(found, NOW), {0: Offset(10), 1: Offset(5)}))
    archive.stream("c").add(0, chunks(4))
    at, rows = batch(at)
    assert rows == [(2, 2, offset) for offset in range(15, 20)]
    assert batch(at)[1] == []
