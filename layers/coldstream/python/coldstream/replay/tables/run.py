"""Replay streams into a table, exactly once, however often it is begun and wherever it is interrupted.

    for each stream
        write again what an interrupted run had begun                    marks
        for each span that is requested and that the table lacks         plan_scan, up to a gap, about SPAN_BYTES
            mark it as begun, write its files, mark it as done

The borders of a span are fixed before any of its files exists, and the names of the files follow from them. So what is
written twice is written to the same files. Runs may overlap in time if they begin at the same offset.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from coldstream.errors import GapError, InvalidQueryError
from coldstream.manifest.entry import Gap
from coldstream.plain_json import read_json
from coldstream.read.scan import ScanSlice, plan_scan
from coldstream.replay.tables.layout import MARKS
from coldstream.replay.tables.marks import Marks, OffsetSpan
from coldstream.replay.tables.report import TableReport
from coldstream.replay.tables.table import Table
from coldstream.replay.tables.write import tell_left_out, write_span
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import MIB, Offset

SPAN_BYTES = 256 * MIB
"""Size of the chunks of a span: what a run after a killed one writes again, at most."""

_SETTINGS = f"{MARKS}/table.json"


def claim_table(table: Table) -> None:
    """Record what a table is like. Raises InvalidQueryError if it exists and is like something else."""
    settings: dict[str, Any] = {"format": table.form, "partition_by": str(table.partitioning)}
    if table.directory.create(_SETTINGS, json.dumps(settings).encode()):
        return
    found = read_json(table.directory.read(_SETTINGS))
    if found != settings:
        raise InvalidQueryError(
            "table", f"the one there is {found['format']}, partitioned by {found['partition_by']}, and stays so"
        )


def replay_to_table(
    manifest: ManifestReads,
    objects: ObjectReads,
    table: Table,
    report: TableReport,
    *,
    span_bytes: int = SPAN_BYTES,
    on_offsets: Callable[[int], None] = lambda _: None,
    on_gap: Callable[[Gap], None] = lambda _: None,
    on_done: Callable[[Offset], None] = lambda _: None,
    resume_at: Offset | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Write the rows of the report's request that the table lacks; call `claim_table` first.

    A span that an interrupted run had begun is written to its end, whatever is requested. `report` is kept up to date,
    also if this raises, and `on_offsets` is called with the number of offsets dealt with, `on_gap` with each gap that
    is passed over, and `on_done` with the offset before which all that is requested is in the table. All before
    `resume_at` is known to be: after it, what the table has already is read once more, to tell what is left out of it.
    Returns between two spans once `should_stop` is true. Raises GapError at a gap, unless gaps are skipped: what lies
    before the gap is in the table then, and the next run looks at the gap again.
    """
    _TableReplay(
        manifest, objects, table, report, span_bytes, on_offsets, on_gap, on_done, resume_at, should_stop
    ).run()


@dataclass(slots=True)
class _TableReplay:
    manifest: ManifestReads
    objects: ObjectReads
    table: Table
    report: TableReport
    span_bytes: int
    on_offsets: Callable[[int], None]
    on_gap: Callable[[Gap], None]
    on_done: Callable[[Offset], None]
    resume_at: Offset | None
    should_stop: Callable[[], bool]
    marks: Marks = field(init=False)

    def __post_init__(self) -> None:
        self.marks = Marks(self.table.directory, self.report.request.stream, self.table.window_identity)

    def run(self) -> None:
        request = self.report.request
        for span in self.marks.begun:
            self._write_again(span)
        at = request.start if self.resume_at is None else max(request.start, self.resume_at)
        while at < request.end:
            if self.should_stop():
                return
            done = self.marks.done_at(at)
            if done is None:
                at = self._add(at, min(request.end, self.marks.done_after(at) or request.end))
                continue
            present = min(request.end, done.end) - at
            self.report.present += present
            if self.resume_at is not None:
                self._tell_left_out(at, min(request.end, done.end))
            self.on_offsets(present)
            at = done.end
            self.on_done(min(at, request.end))
        self.report.is_complete = True

    def _add(self, start: Offset, end: Offset) -> Offset:
        """Write what is archived from `start` up to `end`, of which the table has nothing; return where to go on."""
        at = start
        for step in self._planned(start, end):
            if self.should_stop():
                return at
            if isinstance(step, Gap):
                self._pass_over(step)
                continue
            planned = OffsetSpan(step[0].start, step[-1].end)
            span = self.marks.begin(planned)
            if span != planned:
                # Another run began here with other borders. Its span is written, and the rest is planned anew from its
                # end: our plan would overlap it.
                self._write_again(span)
                return span.end
            self._write(span, step, again=False)
            at = span.end
            self.on_done(at)
        return end

    def _write_again(self, span: OffsetSpan) -> None:
        """Write a span that another run has begun, and may have finished in part."""
        slices: list[ScanSlice] = []
        for step in plan_scan(self.manifest, self.report.request.stream, span.start, span.end):
            if isinstance(step, Gap):
                self._pass_over(step)
            else:
                slices.append(step)
        self._write(span, slices, again=True)

    def _write(self, span: OffsetSpan, slices: list[ScanSlice], *, again: bool) -> None:
        report = self.report
        written = write_span(
            self.objects, self.table, report.request.stream, span, slices, again=again, on_messages=self.on_offsets
        )
        # Last: if the run is killed before this, the next one writes the span again, to the same files.
        self.marks.finish(span, {"messages": written.messages, "rows": written.rows, "files": written.files})
        report.messages += written.messages
        report.rows += written.rows
        report.files += len(written.files)
        report.spans += 1
        report.read_bytes += written.read_bytes
        report.again += again

    def _tell_left_out(self, start: Offset, end: Offset) -> None:
        """Tell what is left out of a span that the table has: whoever wrote it may have died before it was counted."""
        for step in plan_scan(self.manifest, self.report.request.stream, start, end, exactly=True):
            if isinstance(step, Gap):
                self._pass_over(step)
            else:
                tell_left_out(self.objects, self.table, step)

    def _planned(self, start: Offset, end: Offset) -> Iterator[list[ScanSlice] | Gap]:
        """Yield slices that are written as one span, and the gaps between them."""
        request = self.report.request
        joined: list[ScanSlice] = []
        joined_bytes = 0
        for step in plan_scan(self.manifest, request.stream, start, end, exactly=start > request.start):
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

    def _pass_over(self, gap: Gap) -> None:
        """Report a gap, or raise it."""
        request = self.report.request
        if not request.skip_gaps:
            raise GapError(str(request.stream), gap.first_offset, gap.next_offset, gap.reason)
        self.report.gaps.append(gap)
        self.on_gap(gap)
