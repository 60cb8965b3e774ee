"""The data source: what Spark asks of `format("coldstream")`, in the driver's and the executors' Python workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from coldstream.errors import InvalidSettingError
from coldstream.read.scan import read_slice
from coldstream.rows.batches import batches
from coldstream.units import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from coldstream_spark.filters import Wanted
from coldstream_spark.options import Options
from coldstream_spark.place import Place
from coldstream_spark.plan import Part, batch_ranges, plan_parts
from coldstream_spark.schema import spark_schema

_AHEAD = 2
"""Slices fetched while one is decoded."""


class ColdstreamDataSource(DataSource):
    """`format("coldstream")`. Options are checked here, so that a wrong one is an error of `load`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._parsed = Options.parse(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "coldstream"

    def schema(self) -> StructType:
        """Return the columns that are asked for."""
        return spark_schema(self._parsed.columns)

    def reader(self, schema: StructType) -> ColdstreamReader:
        """Return what reads a batch."""
        self._check(schema)
        return (PushingReader if self._parsed.push_filters else ColdstreamReader)(self._parsed)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """Return what reads micro-batches."""
        from coldstream_spark.streaming import ColdstreamStreamReader  # noqa: PLC0415  batches do without

        self._check(schema)
        return ColdstreamStreamReader(self._parsed)

    def _check(self, schema: StructType) -> None:
        if schema != self.schema():
            raise InvalidSettingError("schema", "is this source's own; choose with the option columns")


@dataclass(frozen=True)
class Task(InputPartition):
    """What travels to an executor. Chunks of other times than `earliest` to `latest`, in ms, may be left out."""

    part: Part
    columns: tuple[str, ...]
    place: Place
    earliest: int = MIN_TIMESTAMP_MS
    latest: int = MAX_TIMESTAMP_MS


class ColdstreamReader(DataSourceReader):
    """Reads a batch: the driver plans, tasks read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._wanted = Wanted()

    def partitions(self) -> Sequence[InputPartition]:
        """Plan. Raises GapError and NotFoundError."""
        options, wanted = self._options, self._wanted
        table, bucket = options.place.open_table(), options.place.open_bucket()
        ranges = batch_ranges(table, bucket, options, wanted)
        return [
            Task(part, options.columns, options.place, wanted.earliest, wanted.latest)
            for part in plan_parts(table, options, ranges, wanted.earliest)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read what a task is to."""
        return read_task(partition)


class PushingReader(ColdstreamReader):
    """Reads less where Spark passes conditions on, which only the option pushFilters asks for.

    Spark keeps what was planned with the conditions of one query for others of the same DataFrame or view (seen with
    4.3.0), where they then miss rows; and it refuses a source that has this method while
    `spark.sql.python.filterPushdown.enabled` is off, as it is by default.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802  Spark's name
        """Take conditions, and return those that Spark still has to look at."""
        return [condition for condition in filters if not self._wanted.narrow(condition)]


def read_task(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read a task's slices one after another, the next ones being fetched meanwhile. Raises CorruptionError."""
    if not isinstance(partition, Task):
        return  # Spark makes one of nothing where there are none
    objects = partition.place.open_bucket()
    part = partition.part
    with ThreadPoolExecutor(_AHEAD) as fetching:
        coming = [fetching.submit(read_slice, objects, one) for one in part.slices[:_AHEAD]]
        for number, one in enumerate(part.slices):
            chunks = [
                chunk
                for chunk in coming.pop(0).result()
                if partition.earliest <= chunk.header.timestamp <= partition.latest
            ]
            if number + _AHEAD < len(part.slices):
                coming.append(fetching.submit(read_slice, objects, part.slices[number + _AHEAD]))
            yield from batches(chunks, part.name, partition.columns, start=one.start, end=one.end, source=one.key)
