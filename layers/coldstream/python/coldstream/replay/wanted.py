"""What is wanted: offsets of a stream, fixed when a run begins."""

from __future__ import annotations

from coldstream.errors import InvalidQueryError, StreamNotFoundError
from coldstream.manifest.spec import FIRST, AtEnd, AtOffset, AtTimestamp, OffsetSpec, parse_offset_spec
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import offset_of
from coldstream.replay.request import ReplayRequest
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import Offset, TimestampMs, format_timestamp, is_relative, parse_time


def parse_bounds(start: str, end: str | None, now: TimestampMs) -> tuple[OffsetSpec, AtOffset | AtTimestamp | None]:
    """Read where to begin and where to end. Raises InvalidQueryError."""
    until = None if end is None else parse_offset_spec(end, now)
    if isinstance(until, AtEnd):
        raise InvalidQueryError("--to", f"{until} is neither an offset nor a time")
    return parse_offset_spec(start, now), until


def check_start(start: str, now: TimestampMs) -> None:
    """Refuse a start that is another one each time: only from the same one a replay goes on that is run again.

    Raises InvalidQueryError.
    """
    if is_relative(start):
        fixed = format_timestamp(parse_time(start, now))
        raise InvalidQueryError(
            "--from",
            f"{start} is another time whenever this is run, and a replay that is run again goes on only from the same"
            f" one: give {fixed}",
        )


def find_source(
    table: ManifestReads,
    objects: ObjectReads,
    stream: StreamId,
    start: OffsetSpec,
    end: AtOffset | AtTimestamp | None,
    *,
    skip_gaps: bool = False,
) -> tuple[ReplayRequest, int]:
    """Turn bounds into offsets, the end being the tail at the latest; and say how many are archived between them.

    `first` is 0, and an offset is itself, whatever retention has deleted: so the same is asked for each time. Cost: a
    GetItem, and that of `offset_of` for a time. Raises StreamNotFoundError where nothing is archived.
    """
    head = table.head(stream.incarnation)
    if head is None or head.first_offset is None or head.next_offset is None:
        raise StreamNotFoundError(f"nothing is archived of {stream}, incarnation {stream.incarnation}")
    first = Offset(0) if start == FIRST else offset_of(table, objects, stream, start)
    last = head.next_offset if end is None else min(head.next_offset, offset_of(table, objects, stream, end))
    return ReplayRequest(stream, first, max(first, last), skip_gaps), max(0, last - max(first, head.first_offset))
