"""What a task reads: small slices and small streams together, large ones apart."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed")

from coldstream_spark import ColdstreamDataSource, read_task
from coldstream_spark.packing import PARTITION_BYTES, SHARED_BYTES, RangeSlice, ScanPartition, pack
from coldstream_spark.plan_range import OffsetRange

from coldstream.manifest.entry import Encoding
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.read.scan import ScanSlice
from coldstream.store.objects import S3Objects
from coldstream.units import KIB, MIB, ByteRange, Offset, TimestampMs
from tests.support.source import Emulated, chunks

MANY = 40


def slices(name: str, number: int, size_bytes: int) -> list[RangeSlice]:
    stream = StreamId("/", name, Incarnation(f"__{name}_1763700000000000001"))
    found = OffsetRange(stream, Offset(0), Offset(number), exactly=False)
    return [
        (
            found,
            ScanSlice(
                start=Offset(at),
                end=Offset(at + 1),
                key=f"{name}/{at}",
                byte_range=ByteRange(0, size_bytes),
                encoding=Encoding.IDENTITY,
                data_bytes=size_bytes,
                first_offset=Offset(at),
                next_offset=Offset(at + 1),
                first_timestamp=TimestampMs(0),
                latest_timestamp=TimestampMs(0),
            ),
        )
        for at in range(number)
    ]


def keys(found: list[ScanPartition]) -> list[list[str]]:
    return [[one.key for part in partition.parts for one in part.slices] for partition in found]


def test_ten_thousand_small_fragments_are_a_dozen_tasks() -> None:
    given = slices("orders", 10_000, 20 * KIB)
    found = keys(pack(given, 1))
    assert len(found) == 12
    assert [key for one in found for key in one] == [part.key for _, part in given]


def test_full_slices_fill_a_task_with_its_bytes_and_no_more() -> None:
    sizes = [len(one) * 8 * MIB for one in keys(pack(slices("orders", 40, 8 * MIB), 1))]
    assert max(sizes) <= PARTITION_BYTES
    assert len(sizes) == 3


def test_small_streams_share_a_task_and_large_ones_have_their_own() -> None:
    small = [one for number in range(1000) for one in slices(f"s{number}", 1, 20 * KIB)]
    found = pack(small, 1)
    assert len(found) == 10
    assert [part.name for partition in found for part in partition.parts] == [f"s{number}" for number in range(1000)]
    large = [one for name in "abc" for one in slices(name, 5, 8 * MIB)]
    assert [[part.name for part in partition.parts] for partition in pack(large, 1)] == [["a"], ["b"], ["c"]]
    for one in found:
        assert sum(part.slices[0].data_bytes for part in one.parts) <= SHARED_BYTES


@pytest.mark.parametrize("partitions", [2, 7, 100])
def test_there_are_as_many_tasks_as_asked_for_if_there_are_slices(partitions: int) -> None:
    found = keys(pack(slices("orders", 100, 20 * KIB), partitions))
    assert len(found) >= partitions
    assert all(found)


def reader_of(archive: Emulated, **options: str) -> tuple[Any, Any]:
    source = ColdstreamDataSource({**archive.options, **options})
    reader = source.reader(source.schema())
    return reader, reader.partitions()


@pytest.fixture
def small(archive: Emulated) -> Emulated:
    """A stream of many fragments, of five messages each."""
    stream = archive.stream("orders")
    for number in range(MANY):
        stream.add(5 * number, chunks(1, start_ms=1000 * number))
    return archive


def test_small_fragments_are_read_side_by_side_by_one_task(small: Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(read_task.READS_AT_ONCE, timeout=60)
    get_range, calls = S3Objects.get_range, count(1)

    def gathered(objects: S3Objects, key: str, byte_range: ByteRange) -> Any:
        if next(calls) <= read_task.READS_AT_ONCE:
            together.wait()  # passes once so many are in flight
        return get_range(objects, key, byte_range)

    monkeypatch.setattr(S3Objects, "get_range", gathered)
    reader, partitions = reader_of(small, stream="orders")
    assert len(partitions) == 1
    found = [row["offset"] for batch in reader.read(partitions[0]) for row in batch.to_pylist()]
    assert found == list(range(5 * MANY))


def test_slices_in_flight_keep_to_their_bytes(small: Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, (partition,) = reader_of(small, stream="orders")
    sizes = {one.data_bytes for part in partition.partition.parts for one in part.slices}
    monkeypatch.setattr(read_task, "BYTES_AHEAD", 3 * max(sizes))
    lock, flying, most = threading.Lock(), 0, 0
    get_range = S3Objects.get_range

    def counted(objects: S3Objects, key: str, byte_range: ByteRange) -> Any:
        nonlocal flying, most
        with lock:
            flying += 1
            most = max(most, flying)
        try:
            return get_range(objects, key, byte_range)
        finally:
            with lock:
                flying -= 1

    monkeypatch.setattr(S3Objects, "get_range", counted)
    assert sum(batch.num_rows for batch in reader.read(partition)) == 5 * MANY
    assert most <= 3


def test_small_batches_are_joined_and_full_ones_are_not(small: Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, (partition,) = reader_of(small, stream="orders")
    (batch,) = reader.read(partition)
    assert batch.column("offset").to_pylist() == list(range(5 * MANY))
    monkeypatch.setattr(read_task, "JOINED_BYTES", batch.nbytes // 3)
    sizes = [one.nbytes for one in reader.read(partition)]
    assert len(sizes) > 3
    assert max(sizes) <= batch.nbytes // 3
    monkeypatch.setattr(read_task, "SMALL_BATCH_BYTES", 1)
    assert [one.num_rows for one in reader.read(partition)] == [5] * MANY


def test_one_task_reads_several_small_streams_each_under_its_name(archive: Emulated) -> None:
    for name in ("a", "b", "c"):
        archive.stream(name).add(0, chunks(2))
    reader, partitions = reader_of(archive, streams="a,b,c", columns="stream,offset")
    assert len(partitions) == 1
    rows = [tuple(row.values()) for batch in reader.read(partitions[0]) for row in batch.to_pylist()]
    assert rows == [(name, offset) for name in "abc" for offset in range(10)]
