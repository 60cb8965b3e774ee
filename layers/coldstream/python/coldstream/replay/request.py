"""What to replay: offsets of one incarnation, fixed when a run begins."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import InvalidQueryError, StreamNotFoundError
from coldstream.manifest.spec import FIRST, AtEnd, AtOffset, AtTimestamp, OffsetSpec, parse_offset_spec
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import offset_of
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import Offset, TimestampMs, format_timestamp, is_relative, parse_time


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Replay the offsets `start` up to, not including, `end` of a stream. A gap among them ends it, unless skipped."""

    stream: StreamId
    start: Offset
    end: Offset
    skip_gaps: bool = False


def parse_bounds(start: str, end: str | None, now: TimestampMs) -> tuple[OffsetSpec, AtOffset | AtTimestamp | None]:
    """Parse where to begin and where to end. Raises InvalidQueryError."""
    until = None if end is None else parse_offset_spec(end, now)
    if isinstance(until, AtEnd):
        raise InvalidQueryError("--to", f"{until} is neither an offset nor a time")
    return parse_offset_spec(start, now), until


def check_start(start: str, now: TimestampMs) -> None:
    """Refuse a start that means another offset in each run: only a run with the same start goes on with a replay.

    Raises InvalidQueryError.
    """
    if is_relative(start):
        fixed = format_timestamp(parse_time(start, now))
        raise InvalidQueryError(
            "--from",
            f"{start} is another time whenever this is run, and only a run from the same time goes on with this replay:"
            f" give {fixed}",
        )


def find_request(
    table: ManifestReads,
    objects: ObjectReads,
    stream: StreamId,
    start: OffsetSpec,
    end: AtOffset | AtTimestamp | None,
    *,
    skip_gaps: bool = False,
) -> tuple[ReplayRequest, int]:
    """Return a request for the offsets between two bounds, and how many of them are archived. It ends at the tail.

    `first` means 0, and an offset means itself, whatever retention has deleted. So the same bounds make the same
    request in each run. Cost: a GetItem, and for a time that of `offset_of`. Raises StreamNotFoundError if nothing
    is archived.
    """
    head = table.head(stream.incarnation)
    if head is None or head.is_deleted or head.first_offset is None or head.next_offset is None:
        raise StreamNotFoundError(f"nothing is archived of {stream}, incarnation {stream.incarnation}")
    first = Offset(0) if start == FIRST else offset_of(table, objects, stream, start)
    last = head.next_offset if end is None else min(head.next_offset, offset_of(table, objects, stream, end))
    return ReplayRequest(stream, first, max(first, last), skip_gaps), max(0, last - max(first, head.first_offset))
