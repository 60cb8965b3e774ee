"""One segment on this disk, and how it relates to the segments after it.

Two segments that lie side by side by their offsets need not be of one log. Pins of files that the broker has deleted
may overlap others or stand apart from them: after retention, or when a replica was truncated or replicated again while
no agent looked. So `after` is the next segment by its offset, and `following` the next one of the same log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from coldstream.agent.disk.pins import Pin
from coldstream.agent.disk.successions import Successions
from coldstream.agent.disk.walk import Border, SegmentPosition, SegmentWalk, WalkedChunk
from coldstream.ingest.slice import SegmentSlice
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets that are not on this disk any more, between what is archived and the next segment."""

    first_offset: Offset
    next_offset: Offset


@dataclass(frozen=True, slots=True)
class DiskSegment:
    """A pinned segment, the walk over its chunks, and the segment after it. `walk` is as of the last `walked`."""

    pin: Pin
    walk: SegmentWalk = field(compare=False, repr=False)
    after: DiskSegment | None = field(compare=False, repr=False)
    successions: Successions = field(compare=False, repr=False)

    @property
    def first_offset(self) -> Offset:
        """The id of the first chunk."""
        return self.pin.first_offset

    def walked(self) -> SegmentWalk:
        """Walk on to the end of the file, and return the walk. Raises FileNotFoundError."""
        self.walk.advance()
        return self.walk

    def later(self) -> Iterator[DiskSegment]:
        """Yield the segments after this one, in order."""
        later = self.after
        while later is not None:
            yield later
            later = later.after

    def following(self) -> DiskSegment | None:
        """Return the next segment of the same log, None if it is not on this disk."""
        if self.after is None:
            return None
        # What the broker has now is one log, so between two of its files no border has to be compared.
        if self.pin.is_live and self.after.pin.is_live:
            return self.after
        walk = self.walked()
        if walk.is_at_end and walk.last is not None:
            for other in self.later():
                first = other.walked().first if other.first_offset == walk.end.offset else None
                # Not by the offset alone: a lost leader's segment would be proven by the next leader's log.
                if first is not None and self.successions.holds(walk.last.header, first.header):
                    return other
        first, last = self.after.walked().first, walk.last
        if first is None or last is None or first.header.chunk_id < last.end.offset:
            return None
        # One leader wrote both, so they are of one log, even if a segment between them is missing.
        return self.after if first.header.epoch == last.header.epoch else None

    def may_be_followed(self) -> bool:
        """Tell whether a later segment proves this one, or may do so in time."""
        return self.following() is not None or self.after is None or self.after.walked().first is None

    def hole_after(self, archived_to: Offset) -> Hole | None:
        """Return the offsets from `archived_to` up to the next segment, None if no segment begins later."""
        later = next((other for other in self.later() if other.first_offset > archived_to), None)
        return None if later is None else Hole(archived_to, later.first_offset)

    def named_end(self) -> Offset:
        """Return where the next segment begins: the broker names a file by the offset after the last one."""
        return self.walked().end.offset if self.after is None else self.after.first_offset

    def rolled_end(self) -> SegmentPosition:
        """Return the end of a segment that has rolled, whether the next one is pinned or not.

        A damaged segment ends where its file ends: it is to go to quarantine as a whole.
        """
        walk, named_end = self.walked(), self.named_end()
        if walk.is_at_end or named_end <= walk.end.offset:
            return walk.end
        return SegmentPosition(named_end, walk.size_bytes)

    def is_archived(self, archived_to: Offset) -> bool:
        """Tell whether the archive covers all of the segment, and nothing more can come."""
        if self.pin.is_active or (self.after is not None and self.after.first_offset > archived_to):
            return False
        # Of two live files the name decides, without a walk: the broker names a file by where the one before ends.
        if self.after is not None and self.pin.is_live and self.after.pin.is_live:
            return True
        # The name of the next segment is not this one's end if that is another log's, which may begin before it.
        return self.walked().end.offset <= archived_to

    def slice_to(self, archived_to: Offset, end: SegmentPosition) -> SegmentSlice:
        """Return the slice that ends at `end`, and begins at the last border that is not past `archived_to`."""
        walk = self.walk
        start = Border(walk.start) if end.offset > walk.end.offset else walk.border_at_or_before(archived_to)
        return SegmentSlice(walk.path, start.at.offset, end.offset, start.at.position, end.position)

    def witness(self, *, is_own: bool) -> WalkedChunk | None:
        """Return a user chunk that proves the whole segment: its last chunk, or else the first of a later segment.

        A segment that the agent wrote itself (`is_own`) needs no proof: its last chunk serves, of any type.
        """
        # Not walked on here: the witness has to be of the same state of the file as the end of the slice that it
        # proves.
        walk = self.walk
        if walk.is_at_end and walk.last is not None and (walk.last is walk.last_user or is_own):
            return walk.last
        following = self.following()
        while following is not None:
            later = following.walked()
            if later.first_user is not None or following.pin.is_active:
                return later.first_user
            following = following.following()
        return None
