"""Streaming queries: what is archived, in batches that Spark keeps account of.

From 4.2 on Spark tells the source where it is when it asks how far the next batch may reach, and before a query with
Trigger.AvailableNow. Before that, a source has to remember what it answered; after a restart it does not know, and so
the first batch is not limited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from coldstream.errors import IncarnationError
from coldstream.manifest.entry import Gap
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.manifest.stream import StreamId
from coldstream.serve.scan import offset_of, plan_scan
from coldstream.store.ports import ManifestReads
from coldstream.units import MIN_TIMESTAMP_MS, Offset
from coldstream_spark.datasource import Task, read_task
from coldstream_spark.options import Options
from coldstream_spark.plan import Range, find_streams, lose, plan_parts
from coldstream_spark.positions import Position, Positions, from_json, to_json

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before Spark 4.2
    ReadAllAvailable = ReadLimit = ReadMaxBytes = ReadMaxRows = SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]


class ColdstreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches: the driver says how far each goes and plans it, tasks read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._target: Positions | None = None
        self._reached: Positions | None = None

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
        """Return how far the next batch goes: to the tails, or to those of when the query began, within the limits."""
        before = self._reached if start is None else from_json(start, self._options.vhost)
        reached = self._target or self._tails()
        is_limited = self._options.max_records or self._options.max_bytes
        if is_limited and before is not None and (limit is None or not isinstance(limit, ReadAllAvailable)):
            reached = self._within(before, reached)
        # A stream that is not found any more stays where it was.
        self._reached = {**(before or {}), **reached}
        return to_json(self._reached)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Return a limit, of which there may be two here: what counts is that it is not `ReadAllAvailable`."""
        if self._options.max_records is not None:
            return ReadMaxRows(self._options.max_records)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Return the tails."""
        return to_json(self._tails())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Fix how far the query goes."""
        self._target = self._tails()

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

    def _tails(self) -> Positions:
        """Return the ends of all streams that match now, of those that anything is archived of."""
        found = {}
        for stream in find_streams(self._table, self._options, may_miss=True):
            tail = self._tail(stream)
            if tail is not None:
                found[stream.name] = Position(stream, tail)
        return found

    def _tail(self, stream: StreamId) -> Offset | None:
        head = self._table.head(stream.incarnation)
        return None if head is None else head.next_offset

    def _within(self, before: Positions, tails: Positions) -> Positions:
        """Return positions that the limits allow, divided among the streams that have more, the smallest backlog first.

        Another life of a stream is entered at its beginning, after what is left of the old one, which is not limited.
        """
        starts: dict[str, Offset] = {}
        for name, tail in tails.items():
            position = before.get(name)
            if position is not None and position.stream == tail.stream:
                starts[name] = position.offset
            else:
                starts[name] = _first(self._table, tail.stream)
        waiting = sorted(
            (name for name in tails if starts[name] < tails[name].offset),
            key=lambda name: (tails[name].offset - starts[name], name),
        )
        records, size_bytes = self._options.max_records, self._options.max_bytes
        reached = {name: replace(tail, offset=max(starts[name], Offset(0))) for name, tail in tails.items()}
        for number, name in enumerate(waiting):
            share = len(waiting) - number
            end = tails[name].offset
            if records is not None:
                end = min(end, Offset(starts[name] + -(-records // share)))
            if size_bytes is not None:
                end, taken = _reach(self._table, tails[name].stream, starts[name], end, -(-size_bytes // share))
                size_bytes = max(0, size_bytes - taken)
            if records is not None:
                records = max(0, records - (end - starts[name]))
            reached[name] = replace(tails[name], offset=end)
        return reached


def _first(table: ManifestReads, stream: StreamId) -> Offset:
    head = table.head(stream.incarnation)
    return Offset(0) if head is None or head.first_offset is None else head.first_offset


def _reach(table: ManifestReads, stream: StreamId, start: Offset, end: Offset, most_bytes: int) -> tuple[Offset, int]:
    """Return up to where, at most `end`, about that many bytes of chunks reach, and how many they are."""
    taken = 0
    if not most_bytes:
        return start, 0
    for step in plan_scan(table, stream, start, end, slice_bytes=1):
        if isinstance(step, Gap):
            continue
        if taken and taken + step.data_bytes > most_bytes:
            return step.start, taken
        taken += step.data_bytes
    return end, taken
