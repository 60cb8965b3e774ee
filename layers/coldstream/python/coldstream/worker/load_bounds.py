"""Where a job that reads archived streams begins and ends in each: offsets, and a window of time that cuts messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from coldstream.errors import StreamNotFoundError
from coldstream.manifest.entry import Gap, Head
from coldstream.manifest.spec import FIRST, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import offset_of
from coldstream.replay.request import parse_bounds
from coldstream.replay.window import TimeWindow
from coldstream.resolve.attach import attach
from coldstream.resolve.cursor import Cursor
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import Offset, TimestampMs
from coldstream.worker.load_cursor import StreamPosition


@dataclass(frozen=True, slots=True)
class LoadBounds:
    """Where a run begins and ends, with relative times as they were when it began."""

    start: OffsetSpec
    end: AtOffset | AtTimestamp | None
    end_text: str | None
    window: TimeWindow | None
    follow: bool

    @classmethod
    def of_texts(cls, start: str, end: str | None, began: TimestampMs, *, by_message: bool, follow: bool) -> Self:
        """Read what a job says."""
        first, last = parse_bounds(start, end, began)
        from_time = first.timestamp if isinstance(first, AtTimestamp) else None
        to_time = last.timestamp if isinstance(last, AtTimestamp) else None
        window = None if from_time is to_time is None else TimeWindow(from_time, to_time, by_message)
        return cls(first, last, end, window, follow)

    def begin(self, table: ManifestReads, objects: ObjectReads, stream: StreamId) -> StreamPosition:
        """Return the position at which a run begins with a stream, its end included.

        `first` means 0, and an offset itself, whatever retention has deleted: the same in each run. Cost: a GetItem,
        and for times that of `offset_of` and a Query. Raises StreamNotFoundError.
        """
        head = _head(table, stream)
        start = Offset(0) if self.start == FIRST else offset_of(table, objects, stream, self.start)
        first = max(start, head.first_offset or Offset(0))
        return self.ended(table, objects, StreamPosition(stream, start, first, start, start))

    def ended(self, table: ManifestReads, objects: ObjectReads, position: StreamPosition) -> StreamPosition:
        """Return a position with the end as it is now: it moves with the tail if the stream is followed.

        Cost: as of `begin`. Raises StreamNotFoundError.
        """
        tail = _head(table, position.stream).next_offset or position.start
        end, is_final = tail, not self.follow
        match self.end:
            case AtOffset(offset):
                end, is_final = min(tail, offset), is_final or tail >= offset
            case AtTimestamp():
                assert self.window is not None
                assert self.window.scan_end is not None
                found = offset_of(table, objects, position.stream, AtTimestamp(self.window.scan_end))
                end = min(tail, _past_gap(table, position.stream, found))
                # Only what is archived shows that nothing earlier comes any more.
                is_final = is_final or found < tail
        end = max(position.start, end)
        return replace(position, end=end, end_text=self.end_text, is_final=is_final)


def _head(table: ManifestReads, stream: StreamId) -> Head:
    head = table.head(stream.incarnation)
    if head is None or head.is_deleted or head.next_offset is None:
        raise StreamNotFoundError(f"nothing is archived of {stream}, incarnation {stream.incarnation}")
    return head


def _past_gap(table: ManifestReads, stream: StreamId, offset: Offset) -> Offset:
    """Return the end of the gap at an offset, else the offset: what a gap at a window's end hides may be of the window.

    So the gap is met, and counted. Cost: one Query.
    """
    found = attach(table, stream, Cursor(stream.incarnation, offset), 1)
    return found.next_offset if isinstance(found, Gap) else offset
