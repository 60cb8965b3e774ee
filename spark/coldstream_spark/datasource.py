"""The data source: what Spark asks of `format("coldstream")`, in the Python workers of driver and executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from coldstream.errors import InvalidSettingError
from coldstream_spark.counts import COUNTS_SCHEMA, CountsReader
from coldstream_spark.filters import ScanFilter
from coldstream_spark.options import SourceOptions
from coldstream_spark.plan import batch_ranges, plan_partitions
from coldstream_spark.read_task import ReadTask, read_task
from coldstream_spark.schema import spark_schema
from coldstream_spark.sharded_streaming import ShardedStreamReader
from coldstream_spark.streaming import ColdstreamStreamReader


class ColdstreamDataSource(DataSource):
    """`format("coldstream")`. The constructor checks the options, so that a wrong one is an error of `load`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._parsed = SourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "coldstream"

    def schema(self) -> StructType:
        """Return the columns that the options name, or those of counts."""
        return COUNTS_SCHEMA if self._parsed.counts else spark_schema(self._parsed.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        self._check(schema)
        if self._parsed.counts:
            return CountsReader(self._parsed)
        return (PushingReader if self._parsed.push_filters else ColdstreamReader)(self._parsed)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """Return the reader of a streaming query."""
        self._check(schema)
        if self._parsed.counts:
            raise InvalidSettingError("option counts", "is for batch queries")
        return (ColdstreamStreamReader if self._parsed.sharded is None else ShardedStreamReader)(self._parsed)

    def _check(self, schema: StructType) -> None:
        if schema != self.schema():
            raise InvalidSettingError("schema", "is given by this source; choose columns with the option columns")


class ColdstreamReader(DataSourceReader):
    """Reads a batch query: the driver plans, tasks read."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._filter = ScanFilter()

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks. Raises GapError and NotFoundError."""
        options, conditions = self._options, self._filter
        table, bucket = options.location.open_table(), options.location.open_bucket()
        ranges = batch_ranges(table, bucket, options, conditions)
        return [
            ReadTask(partition, options.columns, options.location, conditions.earliest, conditions.latest)
            for partition in plan_partitions(table, options, ranges, conditions.earliest)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a task."""
        return read_task(partition)


class PushingReader(ColdstreamReader):
    """Reads less if Spark passes on conditions of the query. Only the option pushFilters asks for it.

    Spark keeps the plan that was made with the conditions of one query for other queries of the same DataFrame or view
    (seen with 4.3.0), which then miss rows. And it refuses a source that has this method while
    `spark.sql.python.filterPushdown.enabled` is off, as it is by default.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802  Spark's name
        """Take conditions into account, and return those that Spark still has to apply."""
        return [condition for condition in filters if not self._filter.narrow(condition)]
