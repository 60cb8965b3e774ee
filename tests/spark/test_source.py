"""Batches, read as Spark's Python workers have the source read, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed")

from coldstream_spark import ColdstreamDataSource
from coldstream_spark.schema import spark_schema
from pyspark.sql import datasource as conditions
from pyspark.sql.pandas.types import to_arrow_schema

from coldstream.errors import (
    BadCrcError,
    GapError,
    InvalidSettingError,
    ObjectNotFoundError,
    StreamNotFoundError,
)
from coldstream.rows.schema import schema_of
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import ByteRange
from tests.support.amqp_samples import encode
from tests.support.source import Emulated, body, chunks


def load(archive: Emulated, filters: Any = None, **options: Any) -> list[list[dict[str, Any]]]:
    """Return the rows of each partition."""
    source = ColdstreamDataSource({**archive.options, **{name: str(value) for name, value in options.items()}})
    reader = source.reader(source.schema())
    if filters is not None:
        list(reader.pushFilters(filters))
    return [[row for batch in reader.read(part) for row in batch.to_pylist()] for part in reader.partitions()]


def rows(archive: Emulated, filters: Any = None, **options: Any) -> list[dict[str, Any]]:
    return [row for part in load(archive, filters, **options) for row in part]


def offsets(archive: Emulated, filters: Any = None, **options: Any) -> list[int]:
    return [row["offset"] for row in rows(archive, filters, **options)]


def names(archive: Emulated, **options: str) -> list[str]:
    return sorted({row["stream"] for row in rows(archive, columns="stream", **options)})


def test_every_message_is_a_row(orders: Emulated) -> None:
    nothing = dict.fromkeys(
        ("properties", "application_properties", "message_annotations", "creation_time", "routing_key")
    )
    assert rows(orders, stream="orders") == [
        {
            "value": body(offset),
            "stream": "orders",
            "offset": offset,
            "chunk_timestamp": datetime.fromtimestamp(1 + offset // 5, UTC),
            **nothing,
        }
        for offset in range(40)
    ]


def test_columns_are_those_asked_for_in_that_order(orders: Emulated) -> None:
    found = rows(orders, stream="orders", columns="offset, value", startingOffsets="38")
    assert [list(row.items()) for row in found] == [
        [("offset", offset), ("value", body(offset))] for offset in (38, 39)
    ]


def test_the_schemas_for_spark_and_for_arrow_are_the_same() -> None:
    columns = ColdstreamDataSource({"stream": "a", "table": "t", "bucket": "b"}).schema().names
    assert to_arrow_schema(spark_schema(columns), timezone="UTC").equals(schema_of(columns))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "7", "endingOffsets": "13"}, range(7, 13)),
        ({"startingOffsets": "offset", "startingOffset": "38"}, range(38, 40)),
        ({"endingOffset": "3"}, range(3)),
        ({"startingOffsets": '{"orders": 36}', "endingOffsets": '{"orders": "latest"}'}, range(36, 40)),
        ({"startingOffsets": "latest"}, range(0)),
        ({"startingOffsets": "5", "endingOffsets": "5"}, range(0)),
        ({"startingTimestamp": "6000", "endingTimestamp": "1970-01-01T00:00:07Z"}, range(25, 30)),
        ({"startingOffsets": "timestamp", "startingTimestamp": "99000"}, range(0)),
    ],
)
def test_a_range_is_kept_to_the_row(orders: Emulated, options: dict[str, str], expected: range) -> None:
    assert offsets(orders, stream="orders", **options) == list(expected)


@pytest.mark.parametrize("partitions", [1, 2, 6, 1000])
def test_at_least_so_many_partitions_have_every_row_once_and_read_every_byte_once(
    archive: Emulated, partitions: int, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = archive.stream("orders", sparse_bytes=1)
    stream.add(0, chunks(4))
    stream.add(20, chunks(4, start_ms=5_000))
    reads: list[tuple[str, int, int]] = []
    get_range = S3Objects.get_range

    def counted(objects: S3Objects, key: str, byte_range: ByteRange) -> Any:
        reads.append((key, byte_range.start, byte_range.end))
        return get_range(objects, key, byte_range)

    monkeypatch.setattr(S3Objects, "get_range", counted)
    found = load(archive, stream="orders", minPartitions=partitions)
    assert len(found) >= min(partitions, 8)
    assert all(found)
    assert [row["offset"] for part in found for row in part] == list(range(40))
    reads.sort()
    for (key, _, end), (next_key, start, _) in pairwise(reads):
        assert key != next_key or end <= start
    keys = s3.list_objects_v2(Bucket=archive.options["bucket"])["Contents"]
    assert sum(end - start for _, start, end in reads) < sum(one["Size"] for one in keys)


def test_several_streams_and_those_of_a_pattern_are_read_at_once(archive: Emulated) -> None:
    for name in ("sales-0", "sales-1", "sales-eu-0", "salesmen", "a,b"):
        archive.stream(name).add(0, chunks(1))
    archive.stream("sales-2", vhost="other").add(0, chunks(1))

    assert names(archive, superStream="sales") == ["sales-0", "sales-1"]
    assert names(archive, streams="sales-0, salesmen") == ["sales-0", "salesmen"]
    assert names(archive, streams='["a,b", "salesmen"]') == ["a,b", "salesmen"]
    assert names(archive, streamPattern="sales.*0") == ["sales-0", "sales-eu-0"]
    assert names(archive, streamPattern=".*", vhost="other") == ["sales-2"]


def test_the_newest_incarnation_is_read_unless_another_is_named(archive: Emulated) -> None:
    first, second = (archive.stream("orders", life=life) for life in (1, 2))
    first.add(0, chunks(1))
    second.add(0, chunks(2))
    assert len(offsets(archive, stream="orders")) == 10
    assert len(offsets(archive, streamPattern="orders")) == 10
    assert len(offsets(archive, stream="orders", incarnation=first.stream.incarnation)) == 5


def test_a_gap_fails_the_query_and_is_named(holed: Emulated) -> None:
    with pytest.raises(GapError, match=r"stream 'orders' in vhost '/' has a gap: offsets 10 to 19"):
        rows(holed, stream="orders")


def test_a_gap_is_passed_over_and_told_when_asked_for(holed: Emulated, caplog: pytest.LogCaptureFixture) -> None:
    assert offsets(holed, stream="orders", failOnDataLoss="false") == [*range(10), *range(20, 30)]
    assert "offsets 10 to 19" in caplog.text


def test_a_gap_outside_of_the_range_does_not_matter(holed: Emulated) -> None:
    assert offsets(holed, stream="orders", endingOffsets="10") == list(range(10))
    assert offsets(holed, stream="orders", startingOffsets="20") == list(range(20, 30))


@pytest.mark.parametrize("options", [{"startingOffsets": "2"}, {"endingOffsets": "11"}, {"startingOffsets": "50"}])
def test_offsets_that_are_not_archived_fail_the_query(archive: Emulated, options: dict[str, str]) -> None:
    archive.stream("orders").add(5, chunks(1))
    with pytest.raises(GapError):
        rows(archive, stream="orders", **options)
    assert set(offsets(archive, stream="orders", failOnDataLoss="false", **options)) <= set(range(5, 10))


@pytest.mark.parametrize("which", ["stream", "streamPattern", "superStream"])
def test_a_stream_that_is_not_archived_is_not_found(archive: Emulated, which: str) -> None:
    with pytest.raises(StreamNotFoundError, match="nothing"):
        rows(archive, **{which: "nothing"})


def test_another_schema_is_refused() -> None:
    source = ColdstreamDataSource({"stream": "a", "table": "t", "bucket": "b"})
    with pytest.raises(InvalidSettingError, match="schema"):
        source.reader(spark_schema(["offset"]))


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("GreaterThanOrEqual", "offset", 7), ("LessThan", "offset", 12)], range(7, 12)),
        ([("GreaterThan", "offset", 36), ("LessThanOrEqual", "offset", 38)], range(37, 39)),
        ([("EqualTo", "offset", 39)], range(39, 40)),
        ([("LessThan", "offset", -5)], range(0)),
        ([("GreaterThan", "offset", 100)], range(0)),
        ([("GreaterThanOrEqual", "chunk_timestamp", at(8))], range(35, 40)),
        ([("GreaterThan", "chunk_timestamp", at(7.0000001)), ("LessThan", "chunk_timestamp", at(8.5))], range(30, 40)),
        ([("LessThan", "chunk_timestamp", at(1.5))], range(5)),
        ([("EqualTo", "chunk_timestamp", at(3))], range(10, 15)),
        ([("EqualTo", "stream", "another")], range(0)),
        ([("In", "stream", ("orders", "x")), ("IsNotNull", "offset", None)], range(40)),
        ([("In", "offset", (3, 4)), ("IsNull", "properties", None), ("EqualTo", "offset", None)], range(40)),
    ],
)
def test_conditions_leave_out_nothing_that_they_allow(
    orders: Emulated, filters: list[tuple[str, str, Any]], expected: range
) -> None:
    made = [
        getattr(conditions, kind)((column,))
        if value is None and "Null" in kind
        else getattr(conditions, kind)((column,), value)
        for kind, column, value in filters
    ]
    assert offsets(orders, made, stream="orders", pushFilters="one-scan") == list(expected)


def test_fragments_before_an_earliest_time_are_not_even_listed(
    archive: Emulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = archive.stream("orders")
    for number in range(6):
        stream.add(5 * number, chunks(1, start_ms=1000 * (1 + number)))
    listed: list[int] = []
    log_from_offset = DynamoTable.log_from_offset

    def counted(table: DynamoTable, incarnation: Any, offset: Any, limit: int) -> Any:
        page = log_from_offset(table, incarnation, offset, limit)
        listed.extend(entry.first_offset for entry in page.entries)
        return page

    monkeypatch.setattr(DynamoTable, "log_from_offset", counted)
    since = [conditions.GreaterThanOrEqual(("chunk_timestamp",), at(5))]
    assert offsets(archive, since, stream="orders", pushFilters="one-scan") == list(range(20, 30))
    assert min(listed) == 20
    after_all = [conditions.GreaterThan(("chunk_timestamp",), at(60))]
    assert offsets(archive, after_all, stream="orders", pushFilters="one-scan") == []


def test_conditions_on_offsets_are_kept_to_the_row_and_those_on_times_left_to_spark() -> None:
    source = ColdstreamDataSource({"stream": "a", "table": "t", "bucket": "b", "pushFilters": "one-scan"})
    exact = [conditions.LessThan(("offset",), 5), conditions.EqualTo(("stream",), "a")]
    rough = [conditions.LessThan(("chunk_timestamp",), at(5)), conditions.In(("offset",), (1, 2))]
    assert list(source.reader(source.schema()).pushFilters([*exact, *rough])) == rough


def test_what_conditions_leave_out_is_not_read(orders: Emulated, s3: Any) -> None:
    """The second fragment is not there any more."""
    listed = s3.list_objects_v2(Bucket=orders.options["bucket"])["Contents"]
    s3.delete_object(Bucket=orders.options["bucket"], Key=max(one["Key"] for one in listed))
    below = [conditions.LessThan(("offset",), 20)]
    assert offsets(orders, below, stream="orders", pushFilters="one-scan") == list(range(20))
    with pytest.raises(ObjectNotFoundError):
        rows(orders, stream="orders")


def test_damage_is_loud(orders: Emulated, s3: Any) -> None:
    bucket = orders.options["bucket"]
    key = s3.list_objects_v2(Bucket=bucket)["Contents"][0]["Key"]
    data = bytearray(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    data[100] ^= 1
    s3.put_object(Bucket=bucket, Key=key, Body=bytes(data))
    with pytest.raises(BadCrcError):
        rows(orders, stream="orders")


def test_other_messages_among_plain_ones_keep_their_places(archive: Emulated) -> None:
    stream = archive.stream("orders")
    stream.others = {
        3: encode(body=b"three", application_properties={"n": 3}),
        7: b"not AMQP at all",
        8: b"",
    }
    stream.add(0, chunks(3, 3))
    found = rows(archive, stream="orders", columns="value,application_properties")
    assert [(row["value"], row["application_properties"]) for row in found] == [
        *((body(offset), None) for offset in range(3)),
        (b"three", [("n", "3")]),
        *((body(offset), None) for offset in range(4, 7)),
        (b"not AMQP at all", None),
        (body(8), None),
    ]
