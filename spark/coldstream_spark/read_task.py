"""What one task of Spark reads: planned by the driver, and sent to an executor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from coldstream.flow.window import map_ahead
from coldstream.format.stored import StoredChunks
from coldstream.manifest.shard_rank import RankedStretch
from coldstream.read.chunkrange import stored_chunks
from coldstream.read.scan import ScanSlice, read_bytes
from coldstream.rows.batches import batches_in
from coldstream.store.ports import ObjectReads
from coldstream.units import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from coldstream_spark.location import ArchiveLocation
from coldstream_spark.plan import ScanPartition
from coldstream_spark.schema import SHARD_COLUMNS

_SLICES_AHEAD = 2
"""Slices that are fetched while one is decoded. More would multiply the memory of an executor by its cores."""


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """What travels to an executor. It may leave out chunks with times before `earliest` or after `latest`, in ms."""

    partition: ScanPartition
    columns: tuple[str, ...]
    location: ArchiveLocation
    earliest: int = MIN_TIMESTAMP_MS
    latest: int = MAX_TIMESTAMP_MS


def read_task(task: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read the slices of a task one after another, and fetch the next ones meanwhile. Raises CorruptionError."""
    if not isinstance(task, ReadTask):
        return  # Spark makes an empty task of its own if there are none
    slices, stretch = task.partition.slices, task.partition.stretch
    # A batch says by a column how many rows it has.
    columns = [name for name in task.columns if name not in SHARD_COLUMNS] or ["offset"]
    read = partial(_stored_chunks, task.location.open_bucket())
    with ThreadPoolExecutor(_SLICES_AHEAD) as pool:
        for part, stored in zip(slices, map_ahead(pool, read, slices, max_calls=_SLICES_AHEAD + 1), strict=True):
            found = batches_in(
                stored,
                task.partition.name,
                columns,
                start=part.start,
                end=part.end,
                earliest=task.earliest,
                latest=task.latest,
            )
            yield from found if stretch is None else (_with_shard(one, stretch, task.columns) for one in found)


def _stored_chunks(objects: ObjectReads, part: ScanSlice) -> StoredChunks:
    """Read a slice, and unpack it."""
    return stored_chunks(part, read_bytes(objects, part))


def _with_shard(batch: pa.RecordBatch, stretch: RankedStretch, columns: Sequence[str]) -> pa.RecordBatch:
    """Add the columns of a sharded stream, where `columns` has them."""
    same = {"shard": stretch.number, "shard_rank": stretch.rank}
    held = dict(zip(batch.schema.names, zip(batch.schema, batch.columns, strict=True), strict=True))
    for name, value in same.items():
        values = pa.repeat(pa.scalar(value, pa.int64()), batch.num_rows)
        held[name] = (pa.field(name, pa.int64(), nullable=False), values)
    chosen = [held[name] for name in columns]
    return pa.RecordBatch.from_arrays([values for _, values in chosen], schema=pa.schema([one for one, _ in chosen]))
