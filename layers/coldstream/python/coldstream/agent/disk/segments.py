"""What a stream has on this disk, and which slice of it is to be archived next: oldest first, and without a hole.

Reads segment headers, no clock and no network. Methods may raise FileNotFoundError, when a pin is let go meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.agent.disk.pins import Pin, StreamPins
from coldstream.agent.disk.retention import SegmentAge
from coldstream.agent.disk.walk import Border, SegmentPosition, SegmentWalk, WalkedChunk
from coldstream.format.chunk import ChunkHeader
from coldstream.ingest.slice import SegmentSlice
from coldstream.units import ChunkId, Offset, TimestampMs

GOLDEN_RATIO = 0.618033988749895
"""Its multiples, less their whole parts, come near every place between 0 and 1."""


@dataclass(frozen=True, slots=True)
class ProvableSlice:
    """A slice to archive once everything in it is committed, which `witness`, a user chunk, can prove."""

    slice: SegmentSlice
    witness: WalkedChunk


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets that are not on this disk any more, between what is archived and the oldest pin behind it."""

    first_offset: Offset
    next_offset: Offset


class StreamDisk:
    """The pinned segments of one stream; `every_ms` is the span of time borders, None without them.

    Pins are of one log for as long as the broker has their files. Those that it has not may overlap others, or stand
    apart from them: after retention, or of a replica that was truncated, or made anew, while nobody looked. What the
    broker has goes first, and then the oldest that holds an offset, until the broker shows that it is another log's.
    """

    def __init__(self, pins: StreamPins, every_ms: int | None) -> None:
        self.pins = pins
        self._every_ms = every_ms
        self._walks: dict[Offset, SegmentWalk] = {}
        self.segments: tuple[Pin, ...] = ()

    def look(self, archived_to: Offset, committed_to: Offset) -> None:
        """Pin what is new, let go of what is archived or was truncated away, and walk the newest segment on."""
        self.segments = self.pins.refresh(archived_to, committed_to)
        for number, pin in enumerate(self.segments):
            if self._is_archived(number, archived_to):
                self.pins.release(pin)
        self.segments = tuple(pin for pin in self.segments if pin.path.exists())
        self._walks = {
            pin.first_offset: self._walks[pin.first_offset] for pin in self.segments if pin.first_offset in self._walks
        }
        self._drop_truncated(committed_to)
        if self.segments:
            self._walk(self.segments[-1])

    @property
    def next_offset(self) -> Offset | None:
        """The offset after the newest chunk on this disk."""
        return self._walk(self.segments[-1]).end.offset if self.segments else None

    def wanted(self, archived_to: Offset, now: TimestampMs) -> list[ProvableSlice] | Hole:
        """Return what may be archived next, what reaches farthest first; none when there is nothing yet."""
        number = self._holding(archived_to)
        if number is None:
            return Hole(archived_to, self.segments[0].first_offset) if self.segments else []
        pin = self.segments[number]
        walk = self._walk(pin)
        found: list[ProvableSlice] = []
        if not pin.is_active:
            end = self._rolled_end(number, walk)
            if end.offset <= archived_to:
                return self._hole_behind(number, archived_to) or []
            witness = self._witness(number, walk)
            if witness is not None:
                found.append(ProvableSlice(self._slice(walk, archived_to, end), witness))
        ends = [walk.last_border(now)]
        if not pin.is_live and walk.last_user is not None and walk.last_user is not walk.last:
            # What follows the last message may never be proven, as the broker has no more of this.
            ends.insert(0, Border(walk.last_user.end, walk.last_user))
        found += [
            ProvableSlice(self._slice(walk, archived_to, border.place), border.behind)
            for border in ends
            if border.behind is not None and border.place.offset > archived_to
        ]
        if not found and not pin.is_live and not self._may_be_followed(number):
            return self._hole_behind(number, archived_to) or []
        return found

    def wanted_before(self, archived_to: Offset, committed_to: Offset) -> ProvableSlice | None:
        """Return what may be archived of a segment that cannot be proven whole any more: up to `committed_to`."""
        number = self._holding(archived_to)
        if number is None or committed_to <= archived_to:
            return None
        walk = self._walk(self.segments[number])
        witness = walk.last_user_before(committed_to)
        if witness is None or witness.end.offset <= archived_to:
            return None
        return ProvableSlice(self._slice(walk, archived_to, witness.end), witness)

    def provable(self, archived_to: Offset, now: TimestampMs) -> WalkedChunk | None:
        """Return the newest chunk that is worth a proof before its turn: what it proves needs none later."""
        if not self.segments:
            return None
        number = newest = self._holding(archived_to) or 0
        while not self.segments[number].is_active:
            newest = number
            following = self._following(number)
            if following is None:
                break
            number = following
        pin = self.segments[number]
        closed = self._walk(pin).last_border(now).behind if pin.is_active else None
        return closed or (None if self.segments[newest].is_active else self._walk(self.segments[newest]).last_user)

    def first_offset(self) -> Offset | None:
        """Return the first offset that is here, be it in a file that could not be pinned yet; None without any."""
        return min((*(pin.first_offset for pin in self.segments[:1]), *self.pins.unpinned), default=None)

    def unproven(self, archived_to: Offset) -> Hole | None:
        """Return what is on this disk past `archived_to`, None when nothing is, or tracking chunks alone."""
        end = self.next_offset
        if end is None or end <= archived_to:
            return None
        last = self._walk(self.segments[-1])
        has_messages = last.last_user is not None and last.last_user.end.offset > archived_to
        if last.first_offset <= archived_to and last.is_at_end and not has_messages:
            return None
        return Hole(archived_to, end)

    def find(self, chunk_id: ChunkId) -> WalkedChunk | None:
        """Find a chunk on this disk, the broker's own before what it has deleted."""
        number = self._named(Offset(chunk_id))
        return None if number is None else self._walk(self.segments[number]).find(chunk_id)

    def user_chunk_at(self, offset: Offset) -> ChunkHeader | None:
        """Return the first user chunk that reaches past an offset, of the segment that may hold it."""
        number = self._named(offset)
        found = None if number is None else self._walk(self.segments[number]).user_chunk_at(offset)
        return None if found is None else found.header

    def is_linked(self, earlier: ChunkHeader, later: ChunkHeader) -> bool:
        """Tell whether two chunks on this disk are of one log, so that the later one proves the earlier.

        They are if one leader wrote both, for what a leader writes in its epoch is one log; else if one segment leads
        to the next all the way.
        """
        if earlier.epoch == later.epoch:
            return True
        number, last = self._holder(earlier), self._holder(later)
        while number is not None and last is not None and number < last:
            number = self._following(number)
        return number is not None and number == last

    def first_user_chunk(self) -> WalkedChunk | None:
        """Return the first user chunk on this disk: if any is committed, it is."""
        walks = (self._walk(pin) for pin in self.segments)
        return next((walk.first_user for walk in walks if walk.first_user is not None), None)

    def some_user_chunk(self, turn: int) -> WalkedChunk | None:
        """Return the newest user chunk in even turns, and another in odd ones: in time, any of them."""
        if turn % 2 == 0:
            walks = (self._walk(pin) for pin in reversed(self.segments))
            return next((walk.last_user for walk in walks if walk.last_user is not None), None)
        first_offset, end = self.first_offset(), self.next_offset
        if first_offset is None or end is None:
            return None
        offset = Offset(first_offset + int(turn * GOLDEN_RATIO % 1 * (end - first_offset)))
        walk = self._walk(self.segments[self._named(offset) or 0])
        return walk.last_user_before(offset) or walk.first_user

    def oldest(self) -> tuple[Pin, Hole] | None:
        """Return the oldest segment and its offsets, None where the broker still has those, or may write to it."""
        if not self.segments or self.segments[0].is_active or not self.pins.is_gone(self.segments[0]):
            return None
        return self.segments[0], Hole(self.segments[0].first_offset, self._own_end(0))

    def refuted(self, chunk: ChunkHeader, archived_to: Offset) -> tuple[Pin, Hole | None] | None:
        """Return the segment of a chunk that never can be proven, and what is lost with it; None while it must wait.

        It waits where it is live, and where the broker makes its replica anew and has nothing yet. Nothing is lost
        where the broker has a file that begins no later: that has those offsets too, or what follows it will.
        """
        number = self._holder(chunk)
        if number is None or self.pins.holds_live(self.segments[number]):
            return None
        pin = self.segments[number]
        # Asked after that, and not what the last look found: what took the place of the file may be newer.
        begins = self.pins.first_live()
        if begins is None and self.pins.is_live:
            return None
        if begins is not None and begins <= pin.first_offset:
            return pin, None
        before = self._walk(self.segments[number - 1]).end.offset if number else Offset(0)
        first_offset = max(archived_to, pin.first_offset, before)
        next_offset = min(self._own_end(number), self._end(number))
        return pin, Hole(first_offset, next_offset) if first_offset < next_offset else None

    def release(self, pin: Pin) -> None:
        """Let go of a segment."""
        self.pins.release(pin)
        self.segments = tuple(other for other in self.segments if other != pin)

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

    def _holder(self, chunk: ChunkHeader) -> int | None:
        """Return the number of the segment that has a chunk: of those live the newest that may, or any other."""
        named = self._named(Offset(chunk.chunk_id))
        for number in reversed(range(0 if named is None else named + 1)):
            pin = self.segments[number]
            if number == named or not pin.is_live:
                found = self._walk(pin).find(chunk.chunk_id)
                if found is not None and found.header == chunk:
                    return number
        return None

    def _drop_truncated(self, committed_to: Offset) -> None:
        """Let go of segments that the broker has written over: an older one of its own now has their offsets.

        That a file is gone says nothing: osiris deletes neither by retention nor with a stream the oldest first.
        """
        kept: list[Pin] = []
        for number, pin in enumerate(self.segments):
            older = next(reversed(kept), None)
            is_written_over = (
                not pin.is_live
                and older is not None
                and older.is_live
                and self._walk(older).end.offset > pin.first_offset
                # Where it may be committed, and the replica was made anew, it goes when that has all of it.
                and (pin.first_offset >= committed_to or self._has_all(older, number))
            )
            if is_written_over:
                self.pins.release(pin)
            else:
                kept.append(pin)
        self.segments = tuple(kept)

    def _has_all(self, older: Pin, number: int) -> bool:
        """Tell whether a live segment, and those live that follow it without a hole, reach to the end of another."""
        reached, end = self._walk(older).end.offset, self._walk(self.segments[number]).end.offset
        for pin in self._later(number):
            if reached < end and pin.is_live and pin.first_offset == reached:
                reached = self._walk(pin).end.offset
        return reached >= end

    def _later(self, number: int) -> tuple[Pin, ...]:
        return self.segments[number + 1 :]

    def _named(self, offset: Offset) -> int | None:
        """Return the number of the newest segment that may hold an offset, None when it is older than all."""
        return next((n for n in reversed(range(len(self.segments))) if self.segments[n].first_offset <= offset), None)

    def _holding(self, offset: Offset) -> int | None:
        """Return the number of the segment that holds `offset`, or will; None when it is older than all."""
        number = self._named(offset)
        while number and not self.segments[number].is_live:
            if self._walk(self.segments[number - 1]).end.offset <= offset:
                break
            number -= 1
        return number

    def _are_live(self, number: int, other: int) -> bool:
        return self.segments[number].is_live and self.segments[other].is_live

    def _following(self, number: int) -> int | None:
        """Return the number of the segment behind a rolled one in the same log, None where it is not on this disk."""
        after = number + 1
        if after == len(self.segments):
            return None
        if self._are_live(number, after):
            return after
        walk = self._walk(self.segments[number])
        if walk.is_at_end:
            for other in range(after, len(self.segments)):
                if self.segments[other].first_offset == walk.end.offset:
                    return other
        first, last = self._walk(self.segments[after]).first, walk.last
        if first is None or last is None or first.header.chunk_id < last.end.offset:
            return None
        return after if first.header.epoch == last.header.epoch else None

    def _may_be_followed(self, number: int) -> bool:
        """Tell whether something behind a segment proves it, or may in time."""
        later = self._later(number)
        return self._following(number) is not None or not later or self._walk(later[0]).first is None

    def _hole_behind(self, number: int, archived_to: Offset) -> Hole | None:
        later = next((other for other in self._later(number) if other.first_offset > archived_to), None)
        return None if later is None else Hole(archived_to, later.first_offset)

    def _is_archived(self, number: int, archived_to: Offset) -> bool:
        pin, after = self.segments[number], number + 1
        if pin.is_active or (after < len(self.segments) and self.segments[after].first_offset > archived_to):
            return False
        if after < len(self.segments) and self._are_live(number, after):
            return True
        return self._walk(pin).end.offset <= archived_to

    def _end(self, number: int) -> Offset:
        """Return where a rolled segment ends: the broker names the next one by that."""
        if number + 1 < len(self.segments):
            return self.segments[number + 1].first_offset
        return self._walk(self.segments[number]).end.offset

    def _own_end(self, number: int) -> Offset:
        """Return where a rolled segment ends, be the next one pinned or not."""
        return self._rolled_end(number, self._walk(self.segments[number])).offset

    def _rolled_end(self, number: int, walk: SegmentWalk) -> SegmentPosition:
        """Return the end of a rolled segment. One that is damaged is taken whole: it is to go to quarantine."""
        end = self._end(number)
        return walk.end if walk.is_at_end or end <= walk.end.offset else SegmentPosition(end, walk.size_bytes)

    def _slice(self, walk: SegmentWalk, archived_to: Offset, end: SegmentPosition) -> SegmentSlice:
        start = Border(walk.start) if end.offset > walk.end.offset else walk.border_at_or_before(archived_to)
        return SegmentSlice(walk.path, start.place.offset, end.offset, start.place.position, end.position)

    def _witness(self, number: int, walk: SegmentWalk) -> WalkedChunk | None:
        """Return a user chunk that proves a rolled segment: its last chunk, or else one behind it.

        What the agent wrote itself needs none: there it is the last chunk, of any type.
        """
        if walk.is_at_end and walk.last is not None and (walk.last is walk.last_user or self.pins.are_own):
            return walk.last
        following = self._following(number)
        while following is not None:
            later = self._walk(self.segments[following])
            if later.first_user is not None or self.segments[following].is_active:
                return later.first_user
            following = self._following(following)
        return None
