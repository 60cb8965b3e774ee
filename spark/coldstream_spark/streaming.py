"""Streaming queries: the archive in micro-batches. Spark's checkpoint keeps how far a query is.

From 4.2 on, Spark tells the source where the query is when it asks how far the next batch reaches, and it announces a
query with Trigger.AvailableNow. Earlier versions do neither, and take the first answer for all that an AvailableNow
query is to read. So with those every batch reaches the end of the archive, whatever the limits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from coldstream.errors import IncarnationError
from coldstream.manifest.entry import Gap
from coldstream.manifest.spec import FIRST, NEXT, AtOffset
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import offset_of
from coldstream.resolve.attach import REMOVED
from coldstream.store.ports import ManifestReads
from coldstream.units import MIN_TIMESTAMP_MS, Offset
from coldstream_spark.limits import limit_positions
from coldstream_spark.options import SourceOptions
from coldstream_spark.plan import find_streams, plan_partitions, report_loss
from coldstream_spark.plan_range import OffsetRange
from coldstream_spark.positions import Position, Positions, from_json, never_back, to_json
from coldstream_spark.read_task import ReadTask, read_task

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    SPARK_PASSES_START = True
except ImportError:  # before Spark 4.2
    SPARK_PASSES_START = False
    ReadAllAvailable = ReadLimit = ReadMaxBytes = ReadMaxRows = SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]

_log = logging.getLogger(__name__)


class ColdstreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches: the driver decides how far each reaches and plans it, tasks read.

    Spark may plan the same batch again, after a restart: `partitions` depends on its two positions and the archive
    alone, and what is archived stays, so the batch has the same rows.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._target: Positions | None = None
        self._reached: Positions = {}
        self._has_warned = False

    @property
    def _table(self) -> ManifestReads:
        # Not kept in an attribute: the reader is pickled for the executors, and a client is not.
        return self._options.location.open_table()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Return where a new query begins. A stream that is archived later begins with its first offset."""
        options, table = self._options, self._table
        objects = options.location.open_bucket()
        found: dict[str, Position] = {}
        for stream in find_streams(table, options, may_miss=True):
            spec = options.start.of(stream.name)
            head = table.head(stream.incarnation)
            if head is None or head.is_deleted or head.next_offset is None or head.first_offset is None:
                continue
            start = head.first_offset if spec == FIRST else offset_of(table, objects, stream, spec)
            if start > head.next_offset:
                report_loss(options, stream, Gap(head.next_offset, start, "not archived yet"))
                start = head.next_offset
            if isinstance(spec, AtOffset) and start < head.first_offset:
                report_loss(options, stream, Gap(start, head.first_offset, REMOVED if start < head.floor else None))
            found[stream.name] = Position(stream, start)
        self._reached = found
        return to_json(found)

    def latestOffset(  # noqa: N802  Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return how far the next batch reaches, within the limits: to the ends, of now or of when the query began."""
        options = self._options
        before = self._reached if start is None else from_json(start, options.vhost)
        reached = self._ends() if self._target is None else self._target
        if options.max_records or options.max_bytes:
            if start is None:
                self._warn_of_limits()
            elif not isinstance(limit, ReadAllAvailable):
                reached = limit_positions(
                    self._table, before, reached, records=options.max_records, size_bytes=options.max_bytes
                )
        self._reached = never_back(before, reached)
        return to_json(self._reached)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Return a limit. There may be two, but to Spark it only matters that it is not `ReadAllAvailable`."""
        if self._options.max_records is not None:
            return ReadMaxRows(self._options.max_records)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Return how far all streams can be read now."""
        return to_json(self._ends())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Fix the end of the query: what is archived later is not part of it."""
        self._target = self._ends()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a batch. Raises GapError, and IncarnationError for a stream that was declared again."""
        options = self._options
        before, after = from_json(start, options.vhost), from_json(end, options.vhost)
        # Before 4.2 Spark does not say where the query is, so `latestOffset` takes it from here.
        self._reached = after
        ranges = [one for name, until in after.items() for one in self._ranges(before.get(name), until)]
        return [
            ReadTask(partition, options.columns, options.location)
            for partition in plan_partitions(self._table, options, ranges, MIN_TIMESTAMP_MS)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a task."""
        return read_task(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark keeps the checkpoint, and the archive releases nothing because it was read."""

    def _warn_of_limits(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "maxRecordsPerTrigger and maxBytesPerTrigger are ignored: they need Spark 4.2; each batch is all that"
                " is archived"
            )

    def _ranges(self, before: Position | None, until: Position) -> Iterator[OffsetRange]:
        """Yield what lies between two positions; for a stream that was declared again, first the end of the old one."""
        start = Offset(0) if before is None else before.offset
        is_known = before is not None
        if before is not None and before.stream != until.stream:
            self._check_renewal(until.stream)
            tail = self._tail(before.stream)
            if tail is not None and start < tail:
                yield OffsetRange(before.stream, start, tail, exactly=True)
            start, is_known = Offset(0), False
        if start < until.offset:
            yield OffsetRange(until.stream, start, until.offset, exactly=is_known)

    def _check_renewal(self, stream: StreamId) -> None:
        """Raise IncarnationError, unless the query may go on with another incarnation."""
        if self._options.fail_on_data_loss:
            raise IncarnationError(
                f"{stream} was deleted and declared again: begin a new checkpoint, or read on in its new incarnation"
                " with failOnDataLoss=false"
            )

    def _ends(self) -> Positions:
        """Return how far each matching stream can be read now, if anything of it is archived."""
        table, options = self._table, self._options
        found = {}
        for stream in find_streams(table, options, may_miss=True):
            tail = self._tail(stream)
            if tail is not None:
                spec = options.end.of(stream.name)
                end = tail if spec == NEXT else offset_of(table, options.location.open_bucket(), stream, spec)
                found[stream.name] = Position(stream, min(tail, end))
        return found

    def _tail(self, stream: StreamId) -> Offset | None:
        head = self._table.head(stream.incarnation)
        return None if head is None or head.is_deleted else head.next_offset
