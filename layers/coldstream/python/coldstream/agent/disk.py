"""What a stream has on this disk, and which slice of it is to be archived next: oldest first, and without a hole.

Reads segment headers, no clock and no network. Methods may raise FileNotFoundError, when a pin is let go meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.agent.pins import Pin, StreamPins
from coldstream.agent.retention import SegmentAge
from coldstream.agent.walk import Border, FoundChunk, Place, SegmentWalk
from coldstream.archive.slice import SegmentSlice
from coldstream.units import ChunkId, Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class Wanted:
    """A slice to archive once everything in it is committed, which `witness`, a user chunk, can prove."""

    slice: SegmentSlice
    witness: FoundChunk


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets that are not on this disk any more, between what is archived and the oldest pin behind it."""

    first_offset: Offset
    next_offset: Offset


class StreamDisk:
    """The pinned segments of one stream; `every_ms` is the span of time borders, None without them."""

    def __init__(self, pins: StreamPins, every_ms: int | None) -> None:
        self.pins = pins
        self._every_ms = every_ms
        self._walks: dict[Offset, SegmentWalk] = {}
        self.segments: tuple[Pin, ...] = ()

    def look(self, archived_to: Offset) -> None:
        """Pin what is new, let go of what is archived, and walk the newest segment on."""
        self.segments = self.pins.refresh(archived_to)
        for number, pin in enumerate(self.segments):
            if not pin.is_active and self._end(number) <= archived_to:
                self.pins.release(pin)
        self.segments = tuple(pin for pin in self.segments if pin.path.exists())
        self._walks = {
            pin.first_offset: self._walks[pin.first_offset] for pin in self.segments if pin.first_offset in self._walks
        }
        if self.segments:
            self._walk(self.segments[-1])

    @property
    def next_offset(self) -> Offset | None:
        """The offset after the newest chunk on this disk."""
        return self._walk(self.segments[-1]).end.offset if self.segments else None

    def wanted(self, archived_to: Offset, now: TimestampMs) -> list[Wanted] | Hole:
        """Return what may be archived next, what reaches farthest first; none when there is nothing yet."""
        number = self._holding(archived_to)
        if number is None:
            return Hole(archived_to, self.segments[0].first_offset) if self.segments else []
        pin = self.segments[number]
        walk = self._walk(pin)
        found: list[Wanted] = []
        if not pin.is_active:
            end = self._rolled_end(number, walk)
            if end.offset <= archived_to:
                later = self._later(number)
                return Hole(archived_to, later[0].first_offset) if later else []
            witness = self._witness(number, walk)
            if witness is not None:
                found.append(Wanted(self._slice(walk, archived_to, end), witness))
        border = walk.last_border(now)
        if border.behind is not None and border.place.offset > archived_to:
            found.append(Wanted(self._slice(walk, archived_to, border.place), border.behind))
        return found

    def unproven(self, archived_to: Offset) -> Hole | None:
        """Return what is on this disk past `archived_to`, None when nothing is."""
        end = self.next_offset
        return Hole(archived_to, end) if end is not None and end > archived_to else None

    def find(self, chunk_id: ChunkId) -> FoundChunk | None:
        """Find a chunk on this disk."""
        number = self._holding(Offset(chunk_id))
        return None if number is None else self._walk(self.segments[number]).find(chunk_id)

    def first_user_chunk(self) -> FoundChunk | None:
        """Return the first user chunk on this disk: if any is committed, it is."""
        walks = (self._walk(pin) for pin in self.segments)
        return next((walk.first_user for walk in walks if walk.first_user is not None), None)

    def oldest(self) -> Hole | None:
        """Return the offsets of the oldest rolled segment, None when there is none."""
        if not self.segments or self.segments[0].is_active:
            return None
        return Hole(self.segments[0].first_offset, self._end(0))

    def release_oldest(self) -> None:
        """Let go of the oldest segment, which is there and rolled."""
        self.pins.release(self.segments[0])
        self.segments = self.segments[1:]

    def drop_uncommitted(self, chunk_id: ChunkId) -> bool:
        """Let go of the segment that holds a chunk which the cluster does not have, unless the broker still has it."""
        number = self._holding(Offset(chunk_id))
        if number is None or self.pins.holds_live(self.segments[number]):
            return False
        self.pins.release(self.segments[number])
        return True

    def age(self, archived_to: Offset) -> tuple[TimestampMs | None, SegmentAge | None]:
        """Return when the oldest chunk not archived was written, and what retention looks at for its segment."""
        number = self._holding(archived_to)
        if number is None or not self.segments:
            return None, None
        walk = self._walk(self.segments[number])
        if walk.end.offset <= archived_to or walk.last is None:
            return None, None
        place = walk.border_at_or_before(archived_to).place
        header = walk.header_at(place.position)
        newest = self._walk(self.segments[-1])
        if self.segments[number].is_active or newest.last is None:
            return (None if header is None else header.timestamp), None
        behind = sum(pin.path.stat().st_size for pin in self._later(number))
        age = SegmentAge(walk.last.header.timestamp, newest.last.header.timestamp, behind)
        return (None if header is None else header.timestamp), age

    def _walk(self, pin: Pin) -> SegmentWalk:
        walk = self._walks.get(pin.first_offset)
        if walk is None:
            walk = self._walks[pin.first_offset] = SegmentWalk(pin.path, pin.first_offset, self._every_ms)
        walk.advance()
        return walk

    def _later(self, number: int) -> tuple[Pin, ...]:
        return self.segments[number + 1 :]

    def _holding(self, offset: Offset) -> int | None:
        """Return the number of the segment that `offset` belongs to, None when it is older than all."""
        return next((n for n in reversed(range(len(self.segments))) if self.segments[n].first_offset <= offset), None)

    def _end(self, number: int) -> Offset:
        """Return where a rolled segment ends: the broker names the next one by that."""
        if number + 1 < len(self.segments):
            return self.segments[number + 1].first_offset
        return self._walk(self.segments[number]).end.offset

    def _rolled_end(self, number: int, walk: SegmentWalk) -> Place:
        """Return the end of a rolled segment. One that is damaged is taken whole: it is to go to quarantine."""
        if walk.is_at_end or number + 1 == len(self.segments):
            return walk.end
        return Place(self.segments[number + 1].first_offset, walk.size_bytes)

    def _slice(self, walk: SegmentWalk, archived_to: Offset, end: Place) -> SegmentSlice:
        start = Border(walk.start) if end.offset > walk.end.offset else walk.border_at_or_before(archived_to)
        return SegmentSlice(walk.path, start.place.offset, end.offset, start.place.position, end.position)

    def _witness(self, number: int, walk: SegmentWalk) -> FoundChunk | None:
        """Return a user chunk that proves a rolled segment: its last chunk, or else one behind it."""
        if walk.is_at_end and walk.last is not None and walk.last is walk.last_user:
            return walk.last
        later = (self._walk(pin).first_user for pin in self._later(number))
        return next((chunk for chunk in later if chunk is not None), None)
