"""Queries in a real Spark, on the emulated AWS."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed")

import coldstream_spark
from coldstream_spark.streaming import SPARK_PASSES_START

import coldstream
from coldstream.manifest.shard_changes import bound, doubled, first_map, sealed
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind
from coldstream.units import Offset
from tests.support.archive import NOW
from tests.support.source import Emulated, body, chunks
from tests.support.written_maps import write


def load(source: Any, archive: Emulated, **options: Any) -> Any:
    return source.read.format("coldstream").options(**archive.options, **options).load()


def test_rows_arrive_in_their_partitions(source: Any, orders: Emulated) -> None:
    frame = load(source, orders, stream="orders", minPartitions=2)
    rows = frame.selectExpr("value", "offset", "unix_millis(chunk_timestamp) AS ms", "spark_partition_id() AS part")
    found = [tuple(row) for row in rows.collect()]
    assert [row[:3] for row in found] == [(body(n), n, 1000 * (1 + n // 5)) for n in range(40)]
    assert len({row[3] for row in found}) >= 2


def test_sql_reads_through_a_view(source: Any, orders: Emulated) -> None:
    source.sql(
        "CREATE OR REPLACE TEMPORARY VIEW view_of_orders USING coldstream OPTIONS"
        f" (stream 'orders', table '{orders.options['table']}', bucket '{orders.options['bucket']}')"
    )
    (row,) = source.sql("SELECT count(*) AS n, max(offset) AS last FROM view_of_orders WHERE offset >= 10").collect()
    assert (row.n, row.last) == (30, 39)


def test_sql_counts_messages_by_the_manifest(source: Any, orders: Emulated) -> None:
    source.sql(
        "CREATE OR REPLACE TEMPORARY VIEW counts_of_orders USING coldstream OPTIONS (counts 'true',"
        f" stream 'orders', table '{orders.options['table']}', bucket '{orders.options['bucket']}')"
    )
    (row,) = source.sql("SELECT sum(messages) AS n, max(next_offset) AS end FROM counts_of_orders").collect()
    assert (row.n, row.end) == (40, 40)
    assert load(source, orders, stream="orders", counts="true", startingOffsets="latest").count() == 0


def test_a_table_would_lose_its_options_so_there_is_none(source: Any, orders: Emulated) -> None:
    options = ", ".join(f"{name} '{value}'" for name, value in {**orders.options, "stream": "orders"}.items())
    with pytest.raises(Exception, match=r"Spark does not hand the options on .* CREATE TEMPORARY VIEW"):
        source.sql(f"CREATE TABLE orders_by_options USING coldstream OPTIONS ({options})")
    source.sql(f"CREATE TABLE orders_with_columns (offset BIGINT) USING coldstream OPTIONS ({options})")
    try:
        with pytest.raises(Exception, match="there are none; for a table, Spark does not hand the options on"):
            source.sql("SELECT count(*) FROM orders_with_columns").collect()
    finally:
        source.sql("DROP TABLE orders_with_columns")


def test_a_range_without_messages_has_no_rows(source: Any, orders: Emulated) -> None:
    assert load(source, orders, stream="orders", startingOffsets="latest").count() == 0


def test_errors_say_what_is_wrong(source: Any, holed: Emulated) -> None:
    with pytest.raises(Exception, match=r"InvalidSettingError: option 'starting[oO]fsets': is not one of stream,"):
        load(source, holed, stream="orders", startingOfsets="5")
    with pytest.raises(Exception, match="GapError: stream 'orders' in vhost '/' has a gap: offsets 10 to 19"):
        load(source, holed, stream="orders").collect()


def test_conditions_are_passed_on_where_spark_does_and_it_was_asked_for(source: Any, orders: Emulated) -> None:
    source.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        kept = load(source, orders, stream="orders")
        assert (kept.where("offset < 7").count(), kept.count()) == (7, 40)
        frame = load(source, orders, stream="orders", pushFilters="one-scan")
        late = frame.where("chunk_timestamp >= '1970-01-01 00:00:07' AND offset < 38 AND stream = 'orders'")
        assert sorted(row.offset for row in late.collect()) == list(range(30, 38))
    finally:
        source.conf.unset("spark.sql.python.filterPushdown.enabled")


def run(source: Any, archive: Emulated, directory: Path, **options: Any) -> list[Any]:
    """Run a streaming query over what is available; return the rows of all batches so far, and of how many."""
    frame = source.readStream.format("coldstream").options(**archive.options, **options).load()
    query = (
        frame.select("stream", "offset")
        .writeStream.format("parquet")
        .option("path", str(directory / "table"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = source.read.parquet(str(directory / "table")).collect()
    return sorted((row.stream, row.offset) for row in rows)


def test_a_streaming_query_resumes_from_its_checkpoint(source: Any, archive: Emulated, tmp_path: Path) -> None:
    orders = archive.stream("orders-0")
    orders.add(0, chunks(2))
    options = {"superStream": "orders", "maxRecordsPerTrigger": 8}
    assert run(source, archive, tmp_path, **options) == [("orders-0", offset) for offset in range(10)]
    orders.add(10, chunks(1))
    archive.stream("orders-1").add(0, chunks(1))
    assert run(source, archive, tmp_path, **options) == [
        *(("orders-0", offset) for offset in range(15)),
        *(("orders-1", offset) for offset in range(5)),
    ]
    batches = {int(one.name) for one in (tmp_path / "checkpoint/commits").iterdir() if one.name.isdigit()}
    assert len(batches) >= (4 if SPARK_PASSES_START else 2)


def test_processes_that_plan_streams_are_told_where_the_packages_are(source: Any) -> None:
    known = source.sparkContext.environment["PYTHONPATH"].split(os.pathsep)
    assert {str(Path(module.__file__).parents[1]) for module in (coldstream, coldstream_spark)} <= set(known)
    coldstream_spark.register(source)
    assert source.sparkContext.environment["PYTHONPATH"].split(os.pathsep) == known


def test_a_sharded_stream_is_one_table_in_which_keys_are_in_order(source: Any, archive: Emulated) -> None:
    archive.stream("all-0").add(0, chunks(2))
    archive.stream("all-1").add(0, chunks(1))
    first = [Partition(0, "all-0")]
    found = first_map("/", "all", ShardKind.SUPER_STREAM, ShardHash.MURMUR3, partitions=first, definition="{}", at=NOW)
    found = bound(doubled(bound(found, NOW), [Partition(0, "all-1")], "{}", NOW), NOW)
    write(archive.table, sealed(found, {0: Offset(10)}))
    frame = load(source, archive, shardedStream="all").orderBy("shard_rank", "shard", "offset")
    found_rows = [(row.stream, row.shard, row.shard_rank, row.offset) for row in frame.collect()]
    assert found_rows == [("all-0", 0, 0, at) for at in range(10)] + [("all-1", 1, 1, at) for at in range(5)]
    assert load(source, archive, shardedStream="all").where("shard = 1").count() == 5


@pytest.mark.skipif(not SPARK_PASSES_START, reason="before Spark 4.2 a streaming query of a sharded stream is refused")
def test_a_streaming_query_of_a_sharded_stream_resumes_with_its_new_partitions(
    source: Any, archive: Emulated, tmp_path: Path
) -> None:
    archive.stream("all-0").add(0, chunks(2))
    first = [Partition(0, "all-0")]
    found = bound(
        first_map("/", "all", ShardKind.SUPER_STREAM, ShardHash.MURMUR3, partitions=first, definition="{}", at=NOW), NOW
    )
    write(archive.table, found)
    options = {"shardedStream": "all", "maxRecordsPerTrigger": 8}
    old = [("all-0", offset) for offset in range(10)]
    assert run(source, archive, tmp_path, **options) == old
    write(archive.table, bound(doubled(found, [Partition(0, "all-1")], "{}", NOW), NOW), after=found.revision)
    archive.stream("all-1").add(0, chunks(1))
    assert run(source, archive, tmp_path, **options) == old + [("all-1", offset) for offset in range(5)]
