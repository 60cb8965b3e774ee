"""Replay streams into a table, exactly once, however often it is begun and wherever it is interrupted.

    for each stream
        write again what an interrupted run had begun             marks
        for each span of what is wanted and not there yet         plan_scan, up to a gap, about SPAN_BYTES at a time
            mark it as begun, write its files, mark it as done

The borders of a span are fixed before any of its files is there, and the names of the files follow from them. So what
is written twice is written to the same places. Runs may overlap in time where they begin at the same offset.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from coldstream.errors import GapError, InvalidQueryError
from coldstream.manifest.entry import Gap
from coldstream.read.scan import Slice, plan_scan
from coldstream.replay.tables.layout import MARKS
from coldstream.replay.tables.marks import Marks, OffsetSpan
from coldstream.replay.tables.report import TableReport
from coldstream.replay.tables.write import Table, write_span
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import MIB, Offset

SPAN_BYTES = 256 * MIB
"""Of chunks: what a run that is killed has to write again, at most."""

_SETTINGS = f"{MARKS}/table.json"


def claim_table(table: Table) -> None:
    """Write down what a table is like. Raises InvalidQueryError where there is one of another kind."""
    settings: dict[str, Any] = {"format": table.form, "partition_by": str(table.partitioning)}
    if table.place.create(_SETTINGS, json.dumps(settings).encode()):
        return
    found = json.loads(table.place.read(_SETTINGS))
    if found != settings:
        raise InvalidQueryError(
            "table", f"the one there is {found['format']}, partitioned by {found['partition_by']}, and stays so"
        )


def replay_into(
    manifest: ManifestReads,
    objects: ObjectReads,
    table: Table,
    report: TableReport,
    *,
    span_bytes: int = SPAN_BYTES,
    on_offsets: Callable[[int], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Write the rows of the report's source that the table has not yet; `claim_table` comes first.

    A span that an interrupted run had begun is written to its end, whatever is wanted. `report` is kept up to date,
    `on_offsets` is told of each dealt with. Returns after a span where `should_stop` is true. Raises GapError unless
    gaps are to be passed over: what is before the gap is in the table then, and the next run looks at it again.
    """
    _Replay(manifest, objects, table, report, span_bytes, on_offsets, should_stop).run()


@dataclass(slots=True)
class _Replay:
    manifest: ManifestReads
    objects: ObjectReads
    table: Table
    report: TableReport
    span_bytes: int
    on_offsets: Callable[[int], None]
    should_stop: Callable[[], bool]
    marks: Marks = field(init=False)

    def run(self) -> None:
        source = self.report.source
        self.marks = Marks(self.table.place, source.stream)
        for span in self.marks.begun:
            self._write_again(span)
        at = source.start
        while at < source.end:
            if self.should_stop():
                return
            done = self.marks.done_at(at)
            if done is None:
                at = self._add(at, min(source.end, self.marks.done_after(at) or source.end))
                continue
            present = min(source.end, done.end) - at
            self.report.present += present
            self.on_offsets(present)
            at = done.end
        self.report.is_complete = True

    def _add(self, start: Offset, end: Offset) -> Offset:
        """Write what is archived from `start` up to `end`, none of which is there; return where to go on."""
        at = start
        for slices in self._planned(start, end):
            if self.should_stop():
                return at
            if isinstance(slices, Gap):
                self._tell(slices)
                continue
            planned = OffsetSpan(slices[0].start, slices[-1].end)
            span = self.marks.begin(planned)
            if span != planned:  # what comes next depends on where the other run's span ends
                self._write_again(span)
                return span.end
            self._write(span, slices, again=False)
            at = span.end
        return end

    def _write_again(self, span: OffsetSpan) -> None:
        steps = plan_scan(self.manifest, self.report.source.stream, span.start, span.end)
        self._write(span, [step for step in steps if not self._tell(step) and isinstance(step, Slice)], again=True)

    def _write(self, span: OffsetSpan, slices: list[Slice], *, again: bool) -> None:
        report = self.report
        written = write_span(
            self.objects, self.table, report.source.stream, span, slices, again=again, on_messages=self.on_offsets
        )
        self.marks.finish(span, {"messages": written.messages, "rows": written.rows, "files": written.files})
        report.messages += written.messages
        report.rows += written.rows
        report.files += len(written.files)
        report.spans += 1
        report.again += again

    def _planned(self, start: Offset, end: Offset) -> Iterator[list[Slice] | Gap]:
        """Yield slices that are to be written as one, and the gaps between."""
        source = self.report.source
        joined: list[Slice] = []
        joined_bytes = 0
        for step in plan_scan(self.manifest, source.stream, start, end, exactly=start > source.start):
            if joined and (isinstance(step, Gap) or joined_bytes + step.data_bytes > self.span_bytes):
                yield joined
                joined, joined_bytes = [], 0
            if isinstance(step, Gap):
                yield step
            else:
                joined.append(step)
                joined_bytes += step.data_bytes
        if joined:
            yield joined

    def _tell(self, step: Slice | Gap) -> bool:
        """Take note of a gap; return whether it is one."""
        if not isinstance(step, Gap):
            return False
        source = self.report.source
        if not source.skip_gaps:
            raise GapError(str(source.stream), step.first_offset, step.next_offset, step.reason)
        self.report.gaps.append(step)
        return True
