"""Streaming queries: what is archived, in batches that Spark keeps account of.

From 4.2 on Spark tells the source where it is when it asks how far the next batch may reach, and before a query with
Trigger.AvailableNow. Before that it does not say which trigger a query has, and takes the first answer for all that an
AvailableNow query is to read: so there every batch goes as far as the archive, whatever the limits.
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
from coldstream.store.ports import ManifestReads
from coldstream.units import MIN_TIMESTAMP_MS, Offset
from coldstream_spark.datasource import Task, read_task
from coldstream_spark.limits import within
from coldstream_spark.options import Options
from coldstream_spark.plan import Range, find_streams, lose, plan_parts
from coldstream_spark.positions import Position, Positions, from_json, never_back, to_json

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    SAYS_WHERE_IT_IS = True
except ImportError:  # before Spark 4.2
    SAYS_WHERE_IT_IS = False
    ReadAllAvailable = ReadLimit = ReadMaxBytes = ReadMaxRows = SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]

_log = logging.getLogger(__name__)


class ColdstreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches: the driver says how far each goes and plans it, tasks read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._target: Positions | None = None
        self._reached: Positions = {}
        self._is_told = False

    @property
    def _table(self) -> ManifestReads:
        # Not kept: the reader travels to the executors.
        return self._options.place.open_table()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Return where a new query begins. A stream that is not archived yet begins with its first offset."""
        options, table = self._options, self._table
        objects = options.place.open_bucket()
        found: dict[str, Position] = {}
        for stream in find_streams(table, options, may_miss=True):
            spec = options.start.of(stream.name)
            head = table.head(stream.incarnation)
            if head is None or head.next_offset is None or head.first_offset is None:
                continue
            start = head.first_offset if spec == FIRST else offset_of(table, objects, stream, spec)
            if start > head.next_offset:
                lose(options, stream, Gap(head.next_offset, start, "not archived yet"))
                start = head.next_offset
            if isinstance(spec, AtOffset) and start < head.first_offset:
                lose(options, stream, Gap(start, head.first_offset, None))
            found[stream.name] = Position(stream, start)
        self._reached = found
        return to_json(found)

    def latestOffset(  # noqa: N802  Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return how far the next batch goes: to the ends, or to those of when the query began, within the limits."""
        options = self._options
        before = self._reached if start is None else from_json(start, options.vhost)
        reached = self._ends() if self._target is None else self._target
        if options.max_records or options.max_bytes:
            if start is None:
                self._tell_of_limits()
            elif not isinstance(limit, ReadAllAvailable):
                reached = within(
                    self._table, before, reached, records=options.max_records, size_bytes=options.max_bytes
                )
        self._reached = never_back(before, reached)
        return to_json(self._reached)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Return a limit, of which there may be two here: what counts is that it is not `ReadAllAvailable`."""
        if self._options.max_records is not None:
            return ReadMaxRows(self._options.max_records)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Return the ends."""
        return to_json(self._ends())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Fix how far the query goes."""
        self._target = self._ends()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a batch. Raises GapError, and IncarnationError for a stream that was declared again meanwhile."""
        options = self._options
        before, after = from_json(start, options.vhost), from_json(end, options.vhost)
        self._reached = after
        ranges = [one for name, until in after.items() for one in self._ranges(before.get(name), until)]
        return [
            Task(part, options.columns, options.place)
            for part in plan_parts(self._table, options, ranges, MIN_TIMESTAMP_MS)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read what a task is to."""
        return read_task(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the checkpoint is Spark's, and nothing waits here for being read."""

    def _tell_of_limits(self) -> None:
        if not self._is_told:
            self._is_told = True
            _log.warning("Spark before 4.2 has no limits for a source in Python: each batch is all that is archived")

    def _ranges(self, before: Position | None, until: Position) -> Iterator[Range]:
        """Yield what lies between two positions; where the stream was declared again, the end of its old life first."""
        start = Offset(0) if before is None else before.offset
        is_known = before is not None
        if before is not None and before.stream != until.stream:
            self._renewed(until.stream)
            tail = self._tail(before.stream)
            if tail is not None and start < tail:
                yield Range(before.stream, start, tail, exactly=True)
            start, is_known = Offset(0), False
        if start < until.offset:
            yield Range(until.stream, start, until.offset, exactly=is_known)

    def _renewed(self, stream: StreamId) -> None:
        if self._options.fail_on_data_loss:
            raise IncarnationError(
                f"{stream} was deleted and declared again: begin a new checkpoint, or read on in its new life with"
                " failOnDataLoss=false"
            )

    def _ends(self) -> Positions:
        """Return how far all streams that match can be read now, of those that anything is archived of."""
        table, options = self._table, self._options
        found = {}
        for stream in find_streams(table, options, may_miss=True):
            tail = self._tail(stream)
            if tail is not None:
                spec = options.end.of(stream.name)
                end = tail if spec == NEXT else offset_of(table, options.place.open_bucket(), stream, spec)
                found[stream.name] = Position(stream, min(tail, end))
        return found

    def _tail(self, stream: StreamId) -> Offset | None:
        head = self._table.head(stream.incarnation)
        return None if head is None else head.next_offset
