"""The segments of one stream on this disk: pinned as they appear, and released as they are archived or given up.

Methods read directories and segment headers, and know no clock and no network. They may raise FileNotFoundError when a
pin is released meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from coldstream.agent.disk.disk_log import DiskLog
from coldstream.agent.disk.disk_segment import DiskSegment, Hole
from coldstream.agent.disk.file_marks import FileMarks
from coldstream.agent.disk.pins import Pin, StreamPins
from coldstream.agent.disk.successions import Successions
from coldstream.agent.disk.walk import SegmentWalk
from coldstream.archive.borders import QuietSpans
from coldstream.format.chunk import ChunkHeader
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class DiskLook:
    """A look at the disk that another one would only repeat: what it went by, and what it found."""

    archived_to: Offset
    committed_to: Offset
    newest: Pin
    marks: FileMarks


@dataclass(frozen=True, slots=True)
class ReleasableSegment:
    """A segment that may be released although it is not archived, and what is lost with it, if anything."""

    pin: Pin
    lost: Hole | None


class StreamDisk:
    """The pins of one stream, and the `log` of what they hold.

    `every_ms` and `quiet` are the spans of time borders, if any.
    """

    def __init__(self, pins: StreamPins, every_ms: int | None, quiet: QuietSpans | None = None) -> None:
        self.pins = pins
        self._every_ms = every_ms
        self._quiet = quiet
        self._walks: dict[Offset, SegmentWalk] = {}
        self._successions = Successions(pins.directory)
        self._compared: dict[Offset, tuple[int, int]] = {}
        self._last_look: DiskLook | None = None
        self.log = DiskLog((), is_own=pins.are_own)

    @property
    def segments(self) -> tuple[Pin, ...]:
        """The pins, oldest first, as of the last look."""
        return tuple(segment.pin for segment in self.log.segments)

    def look(self, archived_to: Offset, committed_to: Offset) -> None:
        """Pin new segments, release those that are archived or truncated away, and walk on in the newest."""
        # None until the end: a look that fails is to be repeated. The marks are taken first, so that what changes
        # during the look is seen by the next one.
        self._last_look = None
        newest = next(reversed(self.segments), None)
        marks = None if newest is None else self.pins.marks(newest)
        self._hold(self.pins.refresh(archived_to, committed_to))
        for segment in self.log.segments:
            if segment.is_archived(archived_to):
                self.pins.release(segment.pin)
        self._hold(tuple(pin for pin in self.segments if pin.path.exists()))
        self._release_truncated(committed_to)
        if self.log.segments:
            self.log.segments[-1].walked()
            self._successions.forget_to(self.log.segments[0].first_offset)
        self._compare_neighbours()
        # By value: a file that has another pin now, or is written to no more, has to be looked at once more.
        if newest is not None and marks is not None and newest == next(reversed(self.segments), None):
            self._last_look = DiskLook(archived_to, committed_to, newest, marks)

    def unchanged_look(self, archived_to: Offset, committed_to: Offset) -> DiskLook | None:
        """Return the last look if another one would find and do the same; else None.

        Any thread may call this, without the disk's turn. Cost: two stats.
        """
        last = self._last_look
        if last is None or (last.archived_to, last.committed_to) != (archived_to, committed_to):
            return None
        return last if self.pins.marks(last.newest) == last.marks else None

    def forget_walks(self) -> None:
        """Walk all segments anew, as a walk forgets the borders before what is archived."""
        self._walks = {}
        self._hold(self.segments)

    def first_offset(self) -> Offset | None:
        """Return the first offset that is here, even in a file that could not be pinned yet; None without any."""
        return min((*(pin.first_offset for pin in self.segments[:1]), *self.pins.unpinned), default=None)

    def oldest(self) -> ReleasableSegment | None:
        """Return the oldest segment with its offsets; None if the broker still has those, or may write to it."""
        if not self.log.segments:
            return None
        segment = self.log.segments[0]
        if segment.pin.is_active or not self.pins.is_gone(segment.pin):
            return None
        return ReleasableSegment(segment.pin, Hole(segment.first_offset, segment.rolled_end().offset))

    def refuted(self, chunk: ChunkHeader, archived_to: Offset) -> ReleasableSegment | None:
        """Return the segment of a chunk that can never be proven; None while it must wait.

        It must wait while the broker has the file, and while the broker replicates the stream again and has no file
        yet. Nothing is lost if the broker has a file that begins no later: that file has the same offsets, or will have
        them.
        """
        segment = self.log.holder(chunk)
        if segment is None or self.pins.holds_live(segment.pin):
            return None
        # Ask the directory now, after `holds_live`: the last look does not show a file that took this one's place
        # since.
        live_from = self.pins.first_live()
        if live_from is None and self.pins.is_live:
            return None
        if live_from is not None and live_from <= segment.first_offset:
            return ReleasableSegment(segment.pin, None)
        before = self.log.before(segment)
        before_to = Offset(0) if before is None else before.walked().end.offset
        first_offset = max(archived_to, segment.first_offset, before_to)
        next_offset = min(segment.rolled_end().offset, segment.named_end())
        return ReleasableSegment(segment.pin, Hole(first_offset, next_offset) if first_offset < next_offset else None)

    def release(self, pin: Pin) -> None:
        """Release a segment."""
        self.pins.release(pin)
        self._hold(tuple(other for other in self.segments if other != pin))

    def _hold(self, pins: tuple[Pin, ...]) -> None:
        """Have the log be of these pins. Walks are kept: walking a segment from its start again reads all headers."""
        self._walks = {
            pin.first_offset: self._walks.get(pin.first_offset)
            or SegmentWalk(pin.path, pin.first_offset, self._every_ms, self._quiet)
            for pin in pins
        }
        self.log = DiskLog.of(pins, self._walks, self._successions, is_own=self.pins.are_own)

    def _compare_neighbours(self) -> None:
        """Remember which segment follows which across a change of leader, while the broker still shows it.

        Cost: two headers for each pair of files that is new, and a walk if the leader changed in the older one or after
        it.
        """
        compared: dict[Offset, tuple[int, int]] = {}
        for before, after in pairwise(self.log.segments):
            if self.pins.are_own or not (before.pin.is_live and after.pin.is_live):
                continue
            files = before.pin.path.stat().st_ino, after.pin.path.stat().st_ino
            if self._compared.get(after.first_offset) == files or self._compare(before, after):
                compared[after.first_offset] = files
        self._compared = compared

    def _compare(self, before: DiskSegment, after: DiskSegment) -> bool:
        """Compare two files of the broker; return False if nothing is known yet."""
        start = before.walk.header_at(before.walk.start.position)
        following = after.walk.header_at(after.walk.start.position)
        if start is None or following is None:
            return False  # the broker has not written the first chunk yet
        if start.epoch == following.epoch:
            return True  # and so is the epoch at the end of the older one: epochs never fall in a log
        last = before.walked().last
        # After both were read: both files were there then, too, and what the broker has at one moment is one log. It
        # never truncates a file and keeps a later one.
        if last is None or not (self.pins.holds_live(before.pin) and self.pins.holds_live(after.pin)):
            return False
        if last.header.next_offset == int(following.chunk_id):
            self._successions.add(last.header, following)
        return True

    def _release_truncated(self, committed_to: Offset) -> None:
        """Release segments that the broker has written over: an older file of its own now has their offsets.

        That a file is gone proves nothing: osiris does not delete the oldest file first, neither by retention nor with
        the stream.
        """
        kept: list[DiskSegment] = []
        for segment in self.log.segments:
            older = kept[-1] if kept else None
            if older is not None and _is_written_over(segment, older, committed_to):
                self.pins.release(segment.pin)
            else:
                kept.append(segment)
        self._hold(tuple(segment.pin for segment in kept))


def _is_written_over(segment: DiskSegment, older: DiskSegment, committed_to: Offset) -> bool:
    if segment.pin.is_live or not older.pin.is_live or older.walked().end.offset <= segment.first_offset:
        return False
    # Below `committed_to` the pin may hold committed chunks that a new replica does not have yet: keep it until it has.
    return segment.first_offset >= committed_to or _reaches_end_of(older, segment)


def _reaches_end_of(older: DiskSegment, segment: DiskSegment) -> bool:
    """Tell whether `older`, and the live segments that follow it without a hole, reach to the end of `segment`."""
    reached, end = older.walked().end.offset, segment.walked().end.offset
    for later in segment.later():
        if reached < end and later.pin.is_live and later.first_offset == reached:
            reached = later.walked().end.offset
    return reached >= end
