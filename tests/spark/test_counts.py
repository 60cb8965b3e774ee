"""The option `counts`: how many messages there are, by the manifest."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed")

from coldstream_spark import ColdstreamDataSource
from coldstream_spark.counts import COUNTS, COUNTS_SCHEMA
from pyspark.sql.pandas.types import to_arrow_schema

from coldstream.errors import GapError, InvalidSettingError
from coldstream.format.chunk import ChunkType
from coldstream.store.objects import S3Objects
from tests.support.archive import Spec
from tests.support.source import Emulated, chunks


def rows(archive: Emulated, **options: str) -> list[dict[str, Any]]:
    source = ColdstreamDataSource({**archive.options, **options})
    reader = source.reader(source.schema())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def counts(archive: Emulated, **options: str) -> list[tuple[int, int, int]]:
    found = rows(archive, counts="true", **options)
    return [(row["first_offset"], row["next_offset"], row["messages"]) for row in found]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The objects that are read."""
    found: list[str] = []
    get_range = S3Objects.get_range

    def counted(objects: S3Objects, key: str, *args: Any, **named: Any) -> Any:
        found.append(key)
        return get_range(objects, key, *args, **named)

    monkeypatch.setattr(S3Objects, "get_range", counted)
    return found


@pytest.fixture
def tracked(archive: Emulated) -> Emulated:
    """Offsets 0 to 22 in two fragments; 5, 11 and 17 are of tracking chunks, which hold no messages."""
    stream = archive.stream("orders")
    tracking = Spec(1, 3_000, ChunkType.TRACKING_DELTA)
    stream.add(0, [*chunks(1), tracking, *chunks(1), tracking])
    stream.add(12, [*chunks(1), tracking, *chunks(1)])
    return archive


def test_each_fragment_is_a_row_and_no_object_is_read(orders: Emulated, reads: list[str]) -> None:
    found = rows(orders, stream="orders", counts="true")
    assert [{**row, "first_timestamp": row["first_timestamp"].timestamp()} for row in found] == [
        {
            "stream": "orders",
            "first_offset": first,
            "next_offset": first + 20,
            "messages": 20,
            "first_timestamp": second,
            "last_timestamp": found[number]["last_timestamp"],
        }
        for number, (first, second) in enumerate(((0, 1.0), (20, 5.0)))
    ]
    assert [row["last_timestamp"].timestamp() for row in found] == [4.0, 8.0]
    assert reads == []


def test_a_range_is_counted_to_the_message_and_no_object_is_read(orders: Emulated, reads: list[str]) -> None:
    assert counts(orders, stream="orders", startingOffsets="3", endingOffsets="22") == [(3, 20, 17), (20, 22, 2)]
    assert counts(orders, stream="orders", startingOffsets="3", endingOffsets="5") == [(3, 5, 2)]
    assert reads == []


def test_offsets_of_tracking_chunks_are_no_messages(tracked: Emulated, reads: list[str]) -> None:
    assert counts(tracked, stream="orders") == [(0, 12, 10), (12, 23, 10)]
    assert reads == []


def test_a_part_of_a_fragment_with_tracking_chunks_is_read_to_be_counted(tracked: Emulated, reads: list[str]) -> None:
    assert counts(tracked, stream="orders", startingOffsets="3", endingOffsets="18") == [(3, 12, 7), (12, 18, 5)]
    assert len(set(reads)) == 2


@pytest.mark.parametrize("seed", range(4))
def test_any_range_has_as_many_messages_as_it_has_rows(archive: Emulated, seed: int) -> None:
    dice = random.Random(seed)
    stream = archive.stream("orders")
    end = 0
    for _ in range(3):
        kinds = [dice.choice([ChunkType.USER, ChunkType.USER, ChunkType.TRACKING_DELTA]) for _ in range(4)]
        specs = [Spec(dice.randint(1, 5) if kind is ChunkType.USER else 1, 1_000, kind) for kind in kinds]
        end = stream.add(end, specs).next_offset
    for _ in range(6):
        first = dice.randrange(end)
        options = {
            "stream": "orders",
            "startingOffsets": str(first),
            "endingOffsets": str(dice.randint(first, end)),
        }
        assert sum(count for *_, count in counts(archive, **options)) == len(rows(archive, columns="offset", **options))


def test_times_bound_a_count(orders: Emulated) -> None:
    options = {"startingTimestamp": "3000", "endingTimestamp": "1970-01-01T00:00:06Z"}
    assert counts(orders, stream="orders", **options) == [(10, 20, 10), (20, 25, 5)]


def test_erased_messages_count_as_they_are_rows(orders: Emulated) -> None:
    stream = orders.stream("erased")
    stream.others = {2: b"\x00\x53\x75\xa0\x00"}
    stream.add(0, chunks(1))
    assert counts(orders, stream="erased") == [(0, 5, 5)]


def test_a_gap_fails_a_count_unless_it_may_be_passed_over(holed: Emulated) -> None:
    with pytest.raises(GapError, match=r"offsets 10 to 19"):
        counts(holed, stream="orders")
    assert counts(holed, stream="orders", failOnDataLoss="false") == [(0, 10, 10), (20, 30, 10)]


def test_an_empty_range_has_no_rows(orders: Emulated) -> None:
    assert counts(orders, stream="orders", startingOffsets="latest") == []


@pytest.mark.parametrize("option", [{"columns": "offset"}, {"pushFilters": "one-scan"}])
def test_options_about_messages_are_refused(orders: Emulated, option: dict[str, str]) -> None:
    with pytest.raises(InvalidSettingError, match="counts gives a row a fragment"):
        counts(orders, stream="orders", **option)


def test_a_streaming_query_of_counts_is_refused(orders: Emulated) -> None:
    source = ColdstreamDataSource({**orders.options, "stream": "orders", "counts": "true"})
    with pytest.raises(InvalidSettingError, match="is for batch queries"):
        source.streamReader(source.schema())


def test_the_schemas_of_counts_for_spark_and_for_arrow_are_the_same() -> None:
    assert to_arrow_schema(COUNTS_SCHEMA, timezone="UTC").equals(COUNTS)
