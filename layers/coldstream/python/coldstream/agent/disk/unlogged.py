"""Which chunks of a stream's disk are neither archived nor in the recovery log, and are too few for a slice yet.

Functions of a `DiskLog`, as those in `slices`: they may raise FileNotFoundError when a pin is released meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.agent.disk.disk_log import DiskLog
from coldstream.agent.disk.disk_segment import DiskSegment
from coldstream.agent.disk.walk import SegmentPosition, WalkedChunk
from coldstream.errors import BadSequenceError
from coldstream.format.scanner import ChunkBegin, SegmentScanner
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.ingest.slice import SegmentSlice
from coldstream.units import Offset

NEWEST = 2
"""Segments that are looked at: of those before, the slice is on its way."""


@dataclass(frozen=True, slots=True)
class LoggedChunk:
    """The last chunk of a stream in the recovery log: where it is in the segment of that first offset."""

    segment: Offset
    chunk: WalkedChunk


@dataclass(frozen=True, slots=True)
class UnloggedSlice:
    """Chunks to log once everything in them is committed, which `last`, a user chunk, can prove."""

    slice: SegmentSlice
    last: LoggedChunk


def unlogged_slice(
    log: DiskLog, archived_to: Offset, logged: LoggedChunk | None, below_bytes: int
) -> UnloggedSlice | None:
    """Return the oldest chunks of a segment that are neither archived nor logged, up to its last user chunk.

    None if there are none, and if they are `below_bytes` or more from the last border on: then they are a slice as soon
    as their span is over. Only what the broker has counts, as that is one log.
    """
    reached = archived_to if logged is None else max(archived_to, logged.chunk.end.offset)
    for segment in log.segments[-NEWEST:]:
        if not segment.pin.is_live:
            continue
        walk = segment.walked()
        witness = walk.last_user
        if witness is None or witness.end.offset <= reached:
            continue
        start, end = _start(segment, archived_to, logged), witness.end
        if end.position - start.position >= below_bytes:
            # What lies before the last border is a slice already, and on its way.
            start = max(start, walk.borders[-1].at, key=lambda at: at.position)
        if 0 < end.position - start.position < below_bytes:
            slice_ = SegmentSlice(walk.path, start.offset, end.offset, start.position, end.position)
            return UnloggedSlice(slice_, LoggedChunk(segment.first_offset, witness))
    return None


def read_chunks(slice_: SegmentSlice) -> bytes:
    """Read the chunks of a slice, which fit into memory, and verify them. Raises CorruptionError, FileNotFoundError."""
    size = slice_.end - slice_.position
    with slice_.path.open("rb") as file:
        file.seek(slice_.position)
        data = file.read(size)
    source = str(slice_.path)
    scanner = SegmentScanner(source, first_offset=slice_.first_offset)
    reached: int = slice_.first_offset
    for block in (SEGMENT_HEADER, data):
        for event in scanner.feed(block):
            if isinstance(event, ChunkBegin):
                reached = event.header.next_offset
    scanner.close()
    if reached != slice_.next_offset:
        raise BadSequenceError(source, slice_.end, "next offset", expected=slice_.next_offset, found=reached)
    return data


def _start(segment: DiskSegment, archived_to: Offset, logged: LoggedChunk | None) -> SegmentPosition:
    walk = segment.walk
    if (
        logged is not None
        and logged.segment == segment.first_offset
        and logged.chunk.end.offset > archived_to
        and walk.header_at(logged.chunk.position) == logged.chunk.header
    ):
        return logged.chunk.end
    return walk.border_at_or_before(archived_to).at
