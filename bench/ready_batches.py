"""A source for Spark that has its rows already: what any source in Python costs that hands over Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import pyarrow as pa
from coldstream_spark.schema import spark_schema
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from coldstream.rows.schema import schema_of

COLUMNS = ("value", "stream", "offset", "chunk_timestamp")


class ReadyBatches(DataSource):
    """`rows` rows of `valueBytes` each, in batches of `batchRows`, by `tasks` tasks."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ready"

    def schema(self) -> StructType:
        """Return the columns."""
        return spark_schema(COLUMNS)

    def reader(self, schema: StructType) -> ReadyReader:  # noqa: ARG002  Spark's argument
        """Return the reader."""
        rows, value_bytes, batch_rows, tasks = (
            int(self.options[name]) for name in ("rows", "valueBytes", "batchRows", "tasks")
        )
        return ReadyReader(rows, value_bytes, batch_rows, tasks)


class ReadyReader(DataSourceReader):
    """Hands out the same batch again and again."""

    def __init__(self, rows: int, value_bytes: int, batch_rows: int, tasks: int) -> None:
        self._rows, self._value_bytes, self._batch_rows, self._tasks = rows, value_bytes, batch_rows, tasks

    def partitions(self) -> Sequence[InputPartition]:
        """Return a task for each number."""
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, _: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's share."""
        batch = _batch(self._batch_rows, self._value_bytes)
        for _number in range(self._rows // self._tasks // self._batch_rows):
            yield batch


@cache
def _batch(rows: int, value_bytes: int) -> pa.RecordBatch:
    columns = {
        "value": pa.array([b"o" * value_bytes] * rows, pa.binary()),
        "stream": pa.array(["bench-0"] * rows),
        "offset": pa.array(range(rows)),
        "chunk_timestamp": pa.array([1_763_700_000_000_000] * rows).view(pa.timestamp("us", tz="UTC")),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in COLUMNS], schema=schema_of(COLUMNS))
