"""All segments of a stream on this disk, oldest first, and how to find a chunk in them.

Methods read segment headers, and may raise FileNotFoundError when a pin is released meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from coldstream.agent.disk.disk_segment import DiskSegment
from coldstream.agent.disk.pins import Pin
from coldstream.agent.disk.successions import Successions
from coldstream.agent.disk.walk import SegmentWalk, WalkedChunk
from coldstream.format.chunk import ChunkHeader
from coldstream.units import ChunkId, Offset

GOLDEN_RATIO = 0.618033988749895
"""The fractional parts of its multiples come near every number between 0 and 1."""


@dataclass(frozen=True, slots=True)
class DiskLog:
    """The segments, oldest first. `is_own` says that the agent wrote them itself, so that all in them is committed.

    The pins are of one log for as long as the broker has their files. If two segments hold an offset, the broker's own
    comes first, and after that the oldest, until the broker shows that the oldest is of another log.
    """

    segments: tuple[DiskSegment, ...]
    is_own: bool

    @classmethod
    def of(
        cls, pins: Iterable[Pin], walks: Mapping[Offset, SegmentWalk], successions: Successions, *, is_own: bool
    ) -> DiskLog:
        """Make one of pins, oldest first, of their walks by first offset, and of what followed what."""
        segments: list[DiskSegment] = []
        # From the newest back: a segment is frozen, and refers to the one after it.
        for pin in reversed(list(pins)):
            after = segments[-1] if segments else None
            segments.append(DiskSegment(pin, walks[pin.first_offset], after, successions))
        return cls(tuple(reversed(segments)), is_own)

    def next_offset(self) -> Offset | None:
        """Return the offset after the newest chunk, None if there is no segment."""
        return self.segments[-1].walked().end.offset if self.segments else None

    def named(self, offset: Offset) -> DiskSegment | None:
        """Return the newest segment that may hold an offset, None if the offset is older than all."""
        return next((segment for segment in reversed(self.segments) if segment.first_offset <= offset), None)

    def holding(self, offset: Offset) -> DiskSegment | None:
        """Return the segment that holds an offset, or will; None if the offset is older than all."""
        older = self._back_from(offset)
        for segment, before in pairwise(older):
            if segment.pin.is_live or before.walked().end.offset <= offset:
                return segment
        return older[-1] if older else None

    def before(self, segment: DiskSegment) -> DiskSegment | None:
        """Return the segment before another, None for the oldest."""
        older = [other for other in self.segments if other.first_offset < segment.first_offset]
        return older[-1] if older else None

    def holder(self, chunk: ChunkHeader) -> DiskSegment | None:
        """Return the segment that holds this very chunk: the newest live one that may, or else any other."""
        older = self._back_from(Offset(chunk.chunk_id))
        for segment in older:
            if segment is older[0] or not segment.pin.is_live:
                found = segment.walked().find(chunk.chunk_id)
                if found is not None and found.header == chunk:
                    return segment
        return None

    def find(self, chunk_id: ChunkId) -> WalkedChunk | None:
        """Find a chunk by its id; the newest segment that may hold it decides."""
        segment = self.named(Offset(chunk_id))
        return None if segment is None else segment.walked().find(chunk_id)

    def user_chunk_at(self, offset: Offset) -> ChunkHeader | None:
        """Return the first user chunk that reaches past an offset, of the segment that may hold the offset."""
        segment = self.named(offset)
        found = None if segment is None else segment.walked().user_chunk_at(offset)
        return None if found is None else found.header

    def is_linked(self, earlier: ChunkHeader, later: ChunkHeader) -> bool:
        """Tell whether two chunks are of one log, so that the later one proves the earlier one.

        They are if one leader wrote both, because what a leader writes in its epoch is one log. Else they are if each
        segment from the one to the other follows the one before it.
        """
        if earlier.epoch == later.epoch:
            return True
        segment, last = self.holder(earlier), self.holder(later)
        while segment is not None and last is not None and segment.first_offset < last.first_offset:
            segment = segment.following()
        return segment is not None and segment == last

    def first_user_chunk(self) -> WalkedChunk | None:
        """Return the first user chunk: if any chunk here is committed, this one is."""
        walks = (segment.walked() for segment in self.segments)
        return next((walk.first_user for walk in walks if walk.first_user is not None), None)

    def some_user_chunk(self, turn: int) -> WalkedChunk | None:
        """Return the newest user chunk in even turns and another in odd ones: in time, any of them."""
        if turn % 2 == 0:
            walks = (segment.walked() for segment in reversed(self.segments))
            return next((walk.last_user for walk in walks if walk.last_user is not None), None)
        end = self.next_offset()
        if end is None:
            return None
        first_offset = self.segments[0].first_offset
        offset = Offset(first_offset + int(turn * GOLDEN_RATIO % 1 * (end - first_offset)))
        walk = (self.named(offset) or self.segments[0]).walked()
        return walk.last_user_before(offset) or walk.first_user

    def _back_from(self, offset: Offset) -> list[DiskSegment]:
        """Return the segments that begin at or before an offset, newest first."""
        return [segment for segment in reversed(self.segments) if segment.first_offset <= offset]
