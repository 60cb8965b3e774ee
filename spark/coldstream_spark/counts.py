"""Rows of the option `counts`: how many messages each fragment has, out of the manifest. Nothing else is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from coldstream.manifest.entry import Gap
from coldstream.read.counts import FragmentCount, count_messages, plan_counts
from coldstream.rows.schema import TIME, microseconds
from coldstream_spark.filters import ScanFilter
from coldstream_spark.location import ArchiveLocation
from coldstream_spark.options import SourceOptions
from coldstream_spark.plan import batch_ranges, report_loss

TASK_ROWS = 10_000
"""Rows of a task: their counts are in the plan, which travels to it."""

COUNTS = pa.schema(
    [
        pa.field("stream", pa.string(), nullable=False),
        pa.field("first_offset", pa.int64(), nullable=False),
        pa.field("next_offset", pa.int64(), nullable=False),
        pa.field("messages", pa.int64(), nullable=False),
        pa.field("first_timestamp", TIME),
        pa.field("last_timestamp", TIME),
    ]
)
COUNTS_SCHEMA = StructType(
    [
        StructField("stream", StringType(), nullable=False),
        *(StructField(name, LongType(), nullable=False) for name in ("first_offset", "next_offset", "messages")),
        *(StructField(name, TimestampType()) for name in ("first_timestamp", "last_timestamp")),
    ]
)


@dataclass(frozen=True)
class CountTask(InputPartition):
    """What travels to an executor: counts by the stream's name."""

    counts: tuple[tuple[str, FragmentCount], ...]
    location: ArchiveLocation


class CountsReader(DataSourceReader):
    """Reads the counts of a batch query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks. Raises GapError and NotFoundError."""
        options = self._options
        table, bucket = options.location.open_table(), options.location.open_bucket()
        found: list[tuple[str, FragmentCount]] = []
        for one in batch_ranges(table, bucket, options, ScanFilter()):
            for count in plan_counts(table, one.stream, one.start, one.end, exactly=one.exactly):
                if isinstance(count, Gap):
                    report_loss(options, one.stream, count)
                else:
                    found.append((one.stream.name, count))
        return [
            CountTask(tuple(found[at : at + TASK_ROWS]), options.location) for at in range(0, len(found), TASK_ROWS)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a task, as one batch."""
        if isinstance(partition, CountTask):  # Spark makes an empty task of its own if there are none
            yield _batch([(name, _complete(partition, count)) for name, count in partition.counts])


def _complete(task: CountTask, count: FragmentCount) -> FragmentCount:
    """Count what has to be read."""
    if not count.slices:
        return count
    return replace(count, messages=count.messages + count_messages(task.location.open_bucket(), count.slices))


def _batch(counts: Sequence[tuple[str, FragmentCount]]) -> pa.RecordBatch:
    rows = [
        {
            "stream": name,
            "first_offset": count.first_offset,
            "next_offset": count.next_offset,
            "messages": count.messages,
            "first_timestamp": microseconds(count.first_timestamp),
            "last_timestamp": microseconds(count.last_timestamp),
        }
        for name, count in counts
    ]
    return pa.RecordBatch.from_pylist(rows, schema=COUNTS)
