"""What one task of Spark reads: planned by the driver, and sent to an executor."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from coldstream.flow.window import map_ahead
from coldstream.read.scan import read_slice
from coldstream.rows.batches import batches
from coldstream.units import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from coldstream_spark.location import ArchiveLocation
from coldstream_spark.plan import ScanPartition

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
    slices = task.partition.slices
    read = partial(read_slice, task.location.open_bucket())
    with ThreadPoolExecutor(_SLICES_AHEAD) as pool:
        for part, chunks in zip(slices, map_ahead(pool, read, slices, max_calls=_SLICES_AHEAD + 1), strict=True):
            kept = [chunk for chunk in chunks if task.earliest <= chunk.header.timestamp <= task.latest]
            yield from batches(kept, task.partition.name, task.columns, start=part.start, end=part.end, source=part.key)
