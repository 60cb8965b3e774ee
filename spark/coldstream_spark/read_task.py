"""What one task of Spark reads: planned by the driver, and sent to an executor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from coldstream.flow.window import map_ahead
from coldstream.format.stored import StoredChunks
from coldstream.manifest.shard_rank import RankedStretch
from coldstream.read.chunkrange import stored_chunks
from coldstream.read.scan import SLICE_BYTES, ScanSlice, read_bytes
from coldstream.rows.batches import batches_in
from coldstream.units import KIB, MAX_TIMESTAMP_MS, MIB, MIN_TIMESTAMP_MS
from coldstream_spark.location import ArchiveLocation
from coldstream_spark.packing import ScanPartition, StreamPart
from coldstream_spark.schema import SHARD_COLUMNS

READS_AT_ONCE = 16
"""GETs in flight. A GET takes 20 ms, however small it is, so a task reads many of small slices at the same time."""

BYTES_AHEAD = 3 * SLICE_BYTES
"""Most bytes of chunks in memory, with the slice that is decoded: of full ones, two are fetched meanwhile. More would
multiply the memory of an executor by its cores."""

SMALL_BATCH_BYTES = 64 * KIB
"""Batches below this are joined, up to JOINED_BYTES: each costs a fraction of a ms in Python, and another in Spark."""

JOINED_BYTES = MIB


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """What travels to an executor. It may leave out chunks with times before `earliest` or after `latest`, in ms."""

    partition: ScanPartition
    columns: tuple[str, ...]
    location: ArchiveLocation
    earliest: int = MIN_TIMESTAMP_MS
    latest: int = MAX_TIMESTAMP_MS


def read_task(task: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read the slices of a task in their order, and fetch the next ones meanwhile. Raises CorruptionError."""
    if not isinstance(task, ReadTask):
        return iter(())  # Spark makes an empty task of its own if there are none
    return _joined(_batches(task))


def _batches(task: ReadTask) -> Iterator[pa.RecordBatch]:
    # A batch says by a column how many rows it has.
    columns = [name for name in task.columns if name not in SHARD_COLUMNS] or ["offset"]
    objects = task.location.open_bucket(READS_AT_ONCE)
    slices = [(part, one) for part in task.partition.parts for one in part.slices]

    def read(found: tuple[StreamPart, ScanSlice]) -> StoredChunks:
        """Read a slice, and unpack it."""
        return stored_chunks(found[1], read_bytes(objects, found[1]))

    with ThreadPoolExecutor(READS_AT_ONCE) as pool:
        ahead = map_ahead(
            pool, read, slices, max_calls=READS_AT_ONCE, max_weight=BYTES_AHEAD, weigh=lambda found: found[1].data_bytes
        )
        for (part, one), stored in zip(slices, ahead, strict=True):
            found = batches_in(
                stored, part.name, columns, start=one.start, end=one.end, earliest=task.earliest, latest=task.latest
            )
            stretch = part.stretch
            yield from found if stretch is None else (_with_shard(batch, stretch, task.columns) for batch in found)


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches that follow each other."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if held and (batch.nbytes >= SMALL_BATCH_BYTES or held_bytes + batch.nbytes > JOINED_BYTES):
            yield _concatenated(held)
            held, held_bytes = [], 0
        if batch.nbytes >= SMALL_BATCH_BYTES:
            yield batch
        else:
            held.append(batch)
            held_bytes += batch.nbytes
    if held:
        yield _concatenated(held)


def _concatenated(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _with_shard(batch: pa.RecordBatch, stretch: RankedStretch, columns: Sequence[str]) -> pa.RecordBatch:
    """Add the columns of a sharded stream, where `columns` has them."""
    same = {"shard": stretch.number, "shard_rank": stretch.rank}
    held = dict(zip(batch.schema.names, zip(batch.schema, batch.columns, strict=True), strict=True))
    for name, value in same.items():
        values = pa.repeat(pa.scalar(value, pa.int64()), batch.num_rows)
        held[name] = (pa.field(name, pa.int64(), nullable=False), values)
    chosen = [held[name] for name in columns]
    return pa.RecordBatch.from_arrays([values for _, values in chosen], schema=pa.schema([one for one, _ in chosen]))
