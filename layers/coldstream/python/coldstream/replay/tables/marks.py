"""Marks: which offsets of a stream a table has, and which an interrupted run had begun to write.

A span of offsets is written as one. Its first mark, *begun*, is created before any of its files and holds its end. Its
second, *done*, is created after all of them. Marks are created and never changed, and the name of a *begun* mark has
only the first offset. So of two runs that begin at the same offset one creates the mark, and the other takes over that
span: both write the same files.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import Any

from coldstream.errors import CorruptionError
from coldstream.manifest.stream import StreamId
from coldstream.plain_json import read_json
from coldstream.replay.tables.directory import TableDirectory
from coldstream.replay.tables.layout import marks_directory
from coldstream.units import Offset

_BEGUN = re.compile(r"([0-9]{20})\.begun")
_DONE = re.compile(r"([0-9]{20})-([0-9]{20})\.done")


@dataclass(frozen=True, slots=True, order=True)
class OffsetSpan:
    """The offsets `start` up to, not including, `end`."""

    start: Offset
    end: Offset

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"a span needs 0 <= start < end, got {self.start}..{self.end}")


class Marks:
    """The marks of one stream, or of a time window of it.

    Cost of the constructor: a listing, and a read for each unfinished span.

    `done` are the spans that the table has. `begun` are those of which it may have a part.
    """

    def __init__(self, place: TableDirectory, stream: StreamId, window: str = "") -> None:
        self._place = place
        self._directory = marks_directory(stream, window)
        begun: set[Offset] = set()
        self.done: list[OffsetSpan] = []
        for name in place.names(self._directory):
            mark = name.removeprefix(self._directory)
            if found := _DONE.fullmatch(mark):
                self.done.append(OffsetSpan(Offset(int(found[1])), Offset(int(found[2]))))
            elif found := _BEGUN.fullmatch(mark):
                begun.add(Offset(int(found[1])))
        self.done.sort()
        self.begun = sorted(map(self._begun, begun - {span.start for span in self.done}))

    def done_at(self, offset: Offset) -> OffsetSpan | None:
        """Return the span of `done` that contains an offset."""
        before = self.done[: bisect_right(self.done, offset, key=_start)][-1:]
        return next((span for span in before if offset < span.end), None)

    def done_after(self, offset: Offset) -> Offset | None:
        """Return where the next span of `done` after an offset begins."""
        return next((span.start for span in self.done[bisect_right(self.done, offset, key=_start) :]), None)

    def begin(self, span: OffsetSpan) -> OffsetSpan:
        """Mark a span as begun. If another run has begun one at that offset, return that one instead."""
        content = json.dumps({"end": span.end}).encode()
        return span if self._place.create(self._name(span.start), content) else self._begun(span.start)

    def finish(self, span: OffsetSpan, facts: dict[str, Any]) -> None:
        """Mark a span as done; `facts` are for people who look into the table."""
        content = json.dumps({"start": span.start, "end": span.end} | facts, ensure_ascii=False).encode()
        # No matter who creates it: another run that finished this span has written the same files.
        self._place.create(f"{self._directory}{span.start:020}-{span.end:020}.done", content)
        insort(self.done, span)

    def _name(self, start: Offset) -> str:
        return f"{self._directory}{start:020}.begun"

    def _begun(self, start: Offset) -> OffsetSpan:
        name = self._name(start)
        try:
            return OffsetSpan(start, Offset(int(read_json(self._place.read(name))["end"])))
        except (ValueError, TypeError, KeyError) as err:
            raise CorruptionError(name, 0, "the mark does not hold the end of its span") from err


def _start(span: OffsetSpan) -> Offset:
    return span.start
