"""Micro-batches, planned as Spark's Python workers have the source plan them, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed")

from coldstream_spark import ColdstreamDataSource
from pyspark.sql.streaming.datasource import ReadAllAvailable

from coldstream.errors import GapError, IncarnationError, InvalidQueryError
from tests.support.source import Emulated, chunks


class Query:
    """A query that is restarted before every batch: all it has is what the checkpoint has."""

    def __init__(self, archive: Emulated, **options: Any) -> None:
        self._options = {**archive.options, **{name: str(value) for name, value in options.items()}}
        self.checkpoint = json.dumps(self.reader().initialOffset())

    def reader(self) -> Any:
        source = ColdstreamDataSource(self._options)
        return source.streamReader(source.schema())

    def next_batch(self, prepare: Callable[[Any], None] = lambda _: None, *, all_of_it: bool = False) -> list[Any]:
        """Return stream and offset of each row."""
        reader, start = self.reader(), json.loads(self.checkpoint)
        prepare(reader)
        limit = ReadAllAvailable() if all_of_it else reader.getDefaultReadLimit()
        end = json.loads(json.dumps(reader.latestOffset(start, limit)))
        rows = [
            (row["stream"], row["offset"])
            for part in reader.partitions(start, end)
            for batch in reader.read(part)
            for row in batch.to_pylist()
        ]
        self.checkpoint = json.dumps(end)
        return rows

    def all_batches(self) -> list[list[Any]]:
        """Return batches until the position does not change any more."""
        found = []
        while True:
            before = self.checkpoint
            rows = self.next_batch()
            if self.checkpoint == before:
                return found
            found.append(rows)


def joined(batches: list[list[Any]], stream: str = "orders") -> list[int]:
    return [offset for batch in batches for name, offset in batch if name == stream]


def test_batches_follow_what_is_archived(archive: Emulated) -> None:
    orders = archive.stream("orders")
    orders.add(0, chunks(2))
    query = Query(archive, stream="orders")
    assert joined([query.next_batch()]) == list(range(10))
    assert query.next_batch() == []
    orders.add(10, chunks(1))
    assert joined([query.next_batch()]) == list(range(10, 15))


def test_a_query_may_begin_before_its_stream(archive: Emulated) -> None:
    query = Query(archive, stream="orders", startingOffsets="latest")
    assert query.next_batch() == []
    archive.stream("orders").add(3, chunks(1))
    assert joined([query.next_batch()]) == list(range(3, 8))


def test_a_query_begins_where_it_is_told(archive: Emulated) -> None:
    archive.stream("orders").add(0, chunks(4))
    assert joined([Query(archive, stream="orders", startingOffsets="18").next_batch()]) == [18, 19]
    assert joined([Query(archive, stream="orders", startingTimestamp="4000").next_batch()]) == list(range(15, 20))
    assert Query(archive, stream="orders", startingOffsets="latest").next_batch() == []


@pytest.mark.parametrize("most", [1, 7, 100])
def test_a_batch_has_no_more_records_than_told(archive: Emulated, most: int) -> None:
    for name, number in (("orders-0", 1), ("orders-1", 4)):
        archive.stream(name).add(0, chunks(number))
    batches = Query(archive, superStream="orders", maxRecordsPerTrigger=most).all_batches()
    assert max(map(len, batches)) <= most
    assert min(map(len, batches[:-1]), default=1) >= 1
    assert joined(batches, "orders-0") == list(range(5))
    assert joined(batches, "orders-1") == list(range(20))


def test_a_batch_is_about_as_large_as_told(archive: Emulated) -> None:
    archive.stream("orders", sparse_bytes=1).add(0, chunks(8))
    batches = Query(archive, stream="orders", maxBytesPerTrigger=400).all_batches()
    assert 3 <= len(batches) <= 8
    assert joined(batches) == list(range(40))


def test_a_batch_without_limit_ignores_those_of_the_options(archive: Emulated) -> None:
    archive.stream("orders").add(0, chunks(4))
    query = Query(archive, stream="orders", maxRecordsPerTrigger=1, maxBytesPerTrigger=1)
    assert len(query.next_batch(all_of_it=True)) == 20


def test_available_now_ends_where_the_archive_did(archive: Emulated) -> None:
    orders = archive.stream("orders")
    orders.add(0, chunks(1))
    query = Query(archive, stream="orders")

    def prepare(reader: Any) -> None:
        reader.prepareForTriggerAvailableNow()
        orders.add(5, chunks(1))

    assert joined([query.next_batch(prepare)]) == list(range(5))
    assert joined([query.next_batch()]) == list(range(5, 10))


def test_new_streams_that_match_are_read_from_their_beginning(archive: Emulated) -> None:
    archive.stream("orders-0").add(0, chunks(1))
    query = Query(archive, superStream="orders", startingOffsets="latest", maxRecordsPerTrigger=4)
    assert query.next_batch() == []
    archive.stream("orders-1").add(7, chunks(1))
    assert joined(query.all_batches(), "orders-1") == list(range(7, 12))


def test_a_gap_fails_or_is_passed_over(archive: Emulated) -> None:
    orders = archive.stream("orders")
    orders.add(0, chunks(1))
    orders.add(50, chunks(1))
    with pytest.raises(GapError):
        Query(archive, stream="orders").next_batch()
    found = Query(archive, stream="orders", failOnDataLoss="false", maxRecordsPerTrigger=20).all_batches()
    assert joined(found) == [*range(5), *range(50, 55)]


def test_what_is_gone_behind_the_checkpoint_is_a_gap(archive: Emulated) -> None:
    archive.stream("orders").add(20, chunks(1))
    query = Query(archive, stream="orders")
    query.checkpoint = query.checkpoint.replace('"offset": 20', '"offset": 10')
    with pytest.raises(GapError, match="10 to 19"):
        query.next_batch()


def test_a_stream_that_was_declared_again_fails_or_is_read_on(archive: Emulated) -> None:
    old = archive.stream("orders", life=1)
    old.add(0, chunks(2))
    strict, lenient = (Query(archive, stream="orders", failOnDataLoss=word) for word in ("true", "false"))
    for query in (strict, lenient):
        query.next_batch()
    old.add(10, chunks(1))
    archive.stream("orders", life=2).add(0, chunks(1))
    with pytest.raises(IncarnationError, match="declared again"):
        strict.next_batch()
    assert joined([lenient.next_batch()]) == [*range(10, 15), *range(5)]
    assert lenient.next_batch() == []


@pytest.mark.parametrize("text", ["{}", '{"streams": 5}', '{"streams": {"a": {"incarnation": "/", "offset": 5}}}'])
def test_another_sources_checkpoint_is_refused(archive: Emulated, text: str) -> None:
    query = Query(archive, stream="orders")
    query.checkpoint = text
    with pytest.raises(InvalidQueryError, match="checkpoint"):
        query.next_batch()


@pytest.mark.parametrize(("end", "last"), [({"endingOffset": 13}, 12), ({"endingTimestamp": 3_500}, 14)])
def test_a_query_goes_no_further_than_it_is_told(archive: Emulated, end: dict[str, int], last: int) -> None:
    orders = archive.stream("orders")
    orders.add(0, chunks(2))
    query = Query(archive, stream="orders", maxRecordsPerTrigger=8, **end)
    assert joined(query.all_batches()) == list(range(10))
    orders.add(10, chunks(3, start_ms=3_000))
    assert joined(query.all_batches()) == list(range(10, last + 1))


def test_a_query_never_goes_back(archive: Emulated) -> None:
    archive.stream("orders").add(0, chunks(2))
    query = Query(archive, stream="orders")
    query.next_batch()
    lower = Query(archive, stream="orders", endingOffset=5)
    lower.checkpoint = query.checkpoint
    assert lower.next_batch() == []
    assert lower.checkpoint == query.checkpoint


def test_before_4_2_spark_gives_no_position_and_gets_all_there_is(
    archive: Emulated, caplog: pytest.LogCaptureFixture
) -> None:
    """Its first answer is all that a query with AvailableNow reads, so limits would be an end."""
    archive.stream("orders").add(0, chunks(4))
    query = Query(archive, stream="orders", maxRecordsPerTrigger=8, maxBytesPerTrigger=1)
    for start in (0, 10):
        reader, checkpoint = query.reader(), json.loads(query.checkpoint.replace('"offset": 0', f'"offset": {start}'))
        assert reader.partitions(checkpoint, checkpoint) == []
        assert [reader.latestOffset()["streams"]["orders"]["offset"] for _ in range(2)] == [20, 20]
    assert "are ignored" in caplog.text
