"""Directories and names of a table."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidQueryError
from coldstream.manifest.stream import Incarnation
from coldstream.replay.tables.layout import (
    NO_DATE,
    FileFormat,
    PartitionColumn,
    Partitioning,
    escape,
    file_name,
    file_stem,
    leftovers,
)
from coldstream.units import MAX_TIMESTAMP_MS, Offset, TimestampMs

LATE = TimestampMs(1_763_769_599_999)  # 2025-11-21T23:59:59.999Z


def test_rows_are_by_stream_and_date_unless_told_otherwise() -> None:
    assert Partitioning().directory("orders", LATE) == "stream=orders/date=2025-11-21/"
    assert Partitioning().directory("orders", TimestampMs(LATE + 1)) == "stream=orders/date=2025-11-22/"


def test_partitions_are_as_told_in_that_order() -> None:
    assert Partitioning.parse("date, hour,stream").directory("orders", LATE) == "date=2025-11-21/hour=23/stream=orders/"
    assert Partitioning.parse("none").directory("orders", LATE) == ""
    assert str(Partitioning.parse("none")) == "none"
    assert str(Partitioning.parse("stream,date")) == "stream,date"


@pytest.mark.parametrize("text", ["", "day", "stream,stream", "stream,,date", "none,date"])
def test_partitions_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(InvalidQueryError, match="--partition-by"):
        Partitioning.parse(text)


def test_a_time_that_no_calendar_reaches_has_no_date() -> None:
    assert Partitioning((PartitionColumn.DATE,)).directory("x", TimestampMs(MAX_TIMESTAMP_MS)) == f"date={NO_DATE}/"


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("../../etc", "..%2F..%2Fetc"),
        ("a=b", "a%3Db"),
        ("100%", "100%25"),
        ("a\x00b\nc", "a%00b%0Ac"),
        ("[x]{y", "%5Bx%5D%7By"),
        ("größe ü", "größe ü"),
        ("..", ".."),
    ],
)
def test_names_are_escaped_as_spark_does_it(name: str, escaped: str) -> None:
    assert escape(name) == escaped


def test_a_files_name_is_of_its_span_alone() -> None:
    stem = file_stem(Incarnation("__orders_1763700000000000000"), Offset(7))
    assert file_name(stem, 3, FileFormat.JSONL_GZIP) == f"{stem}0003.jsonl.gz"
    assert stem.endswith("-00000000000000000007-")
    others = [file_stem(Incarnation("__orders_1763700000000000000"), Offset(8)), file_stem(Incarnation("b"), Offset(7))]
    names = [f"d/{prefix}0000.parquet" for prefix in (stem, *others)] + [f"e/{stem}0001.parquet"]
    assert leftovers(names, stem, [names[0]]) == [f"e/{stem}0001.parquet"]
