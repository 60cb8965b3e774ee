"""Which slice of a stream's disk to archive next, and which chunk proves it: oldest first, and without a hole.

Functions of a `DiskLog`, of how far the stream is archived and, for time borders, of the clock. They read segment
headers, and may raise FileNotFoundError when a pin is released meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.agent.disk.disk_log import DiskLog
from coldstream.agent.disk.disk_segment import DiskSegment, Hole
from coldstream.agent.disk.retention import SegmentAge, UnarchivedAge
from coldstream.agent.disk.walk import Border, WalkedChunk
from coldstream.ingest.slice import SegmentSlice
from coldstream.units import Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class ProvableSlice:
    """A slice to archive once everything in it is committed, which the user chunk `witness` can prove."""

    slice: SegmentSlice
    witness: WalkedChunk


def next_slices(log: DiskLog, archived_to: Offset, now: TimestampMs) -> list[ProvableSlice] | Hole:
    """Return the slices that may be archived next, the longest first; none if there is nothing to archive yet."""
    segment = log.holding(archived_to)
    if segment is None:
        return Hole(archived_to, log.segments[0].first_offset) if log.segments else []
    walk = segment.walked()
    found: list[ProvableSlice] = []
    if not segment.pin.is_active:
        end = segment.rolled_end()
        if end.offset <= archived_to:
            return segment.hole_after(archived_to) or []
        witness = segment.witness(is_own=log.is_own)
        if witness is not None:
            found.append(ProvableSlice(segment.slice_to(archived_to, end), witness))
    ends = [walk.last_border(now)]
    if not segment.pin.is_live and walk.last_user is not None and walk.last_user is not walk.last:
        # The broker has no more of this log: the tracking chunks after the last message may never be proven.
        ends.insert(0, Border(walk.last_user.end, walk.last_user))
    found += [
        ProvableSlice(segment.slice_to(archived_to, border.at), border.user_chunk)
        for border in ends
        if border.user_chunk is not None and border.at.offset > archived_to
    ]
    if not found and not segment.pin.is_live and not segment.may_be_followed():
        return segment.hole_after(archived_to) or []
    return found


def waits_for_files(log: DiskLog, archived_to: Offset) -> bool:
    """Tell whether nothing can be archived before a file changes, however late it gets.

    Time alone ends the span of the last message, so that must be archived, unless there are no spans.
    """
    segment = log.holding(archived_to)
    if segment is None or not segment.pin.is_active:
        return False
    last_user = segment.walk.last_user
    return not segment.walk.has_time_borders or last_user is None or last_user.end.offset <= archived_to


def proven_slice(log: DiskLog, archived_to: Offset, committed_to: Offset) -> ProvableSlice | None:
    """Return what may be archived, up to `committed_to`, of a segment that cannot be proven as a whole any more."""
    segment = log.holding(archived_to)
    if segment is None or committed_to <= archived_to:
        return None
    witness = segment.walked().last_user_before(committed_to)
    if witness is None or witness.end.offset <= archived_to:
        return None
    return ProvableSlice(segment.slice_to(archived_to, witness.end), witness)


def chunk_to_prove(log: DiskLog, archived_to: Offset, now: TimestampMs) -> WalkedChunk | None:
    """Return the newest chunk that is worth a proof before its turn: everything up to it then needs none later."""
    if not log.segments:
        return None
    segment = newest_rolled = log.holding(archived_to) or log.segments[0]
    while not segment.pin.is_active:
        newest_rolled = segment
        following = segment.following()
        if following is None:
            break
        segment = following
    closed = segment.walked().last_border(now).user_chunk if segment.pin.is_active else None
    return closed or (None if newest_rolled.pin.is_active else newest_rolled.walked().last_user)


def unproven_offsets(log: DiskLog, archived_to: Offset) -> Hole | None:
    """Return the offsets on this disk past `archived_to`; None if there are none, or tracking chunks alone."""
    end = log.next_offset()
    if end is None or end <= archived_to:
        return None
    newest = log.segments[-1].walked()
    has_messages = newest.last_user is not None and newest.last_user.end.offset > archived_to
    if newest.first_offset <= archived_to and newest.is_at_end and not has_messages:
        return None
    return Hole(archived_to, end)


def unarchived_age(log: DiskLog, archived_to: Offset) -> UnarchivedAge:
    """Return when the oldest chunk that is not archived was written, and what retention looks at in its segment."""
    segment = log.holding(archived_to)
    if segment is None:
        return UnarchivedAge()
    walk = segment.walked()
    if walk.end.offset <= archived_to or walk.last is None:
        return UnarchivedAge()
    header = walk.header_at(walk.border_at_or_before(archived_to).at.position)
    written_at = None if header is None else header.timestamp
    return UnarchivedAge(written_at, _segment_age(log, segment, walk.last.header.timestamp))


def _segment_age(log: DiskLog, segment: DiskSegment, last_at: TimestampMs) -> SegmentAge | None:
    newest = log.segments[-1].walked()
    if segment.pin.is_active or newest.last is None:
        return None
    bytes_after = sum(later.pin.path.stat().st_size for later in segment.later())
    return SegmentAge(last_at, newest.last.header.timestamp, bytes_after)
