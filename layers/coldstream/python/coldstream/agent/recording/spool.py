"""The spool: segments that the agent writes itself, in the broker's format.

    <directory>/<first offset, 20 digits>.segment           closed: whole, and safe on the disk
                <first offset, 20 digits>.segment.part      open; after a crash it may end anywhere

The directory is that of the stream's pins, so the archiver removes segments once they are archived. Everything here
blocks on the disk, and may raise OSError. `recover` comes first, and again after an error.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from coldstream.agent.disk.pins import segment_files
from coldstream.agent.disk.walk import SegmentWalk
from coldstream.errors import CorruptionError
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.scanner import ChunkEnd, SegmentScanner
from coldstream.format.segment import SEGMENT_HEADER, file_name, first_offset_of
from coldstream.units import MIB, Offset

_PART = ".part"


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """A segment file of the offsets [first_offset, next_offset)."""

    path: Path
    first_offset: Offset
    next_offset: Offset


@dataclass(frozen=True, slots=True)
class RecoveredSegments:
    """What an earlier run left: `closed` are the segments that it left open, `last` is the last user chunk of all.

    `next_offset` is where the newest segment ends, 0 if there is none.
    """

    closed: tuple[ClosedSegment, ...]
    last: ChunkHeader | None
    next_offset: Offset


class SegmentSpool:
    """Writes one segment after another. `open_bytes` is the size of the open one, 0 if there is none."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: FileIO | None = None
        self._first_offset = Offset(0)
        self._next_offset = Offset(0)
        self.open_bytes = 0

    def recover(self) -> RecoveredSegments:
        """Cut what is open after its last whole user chunk, CRCs checked, and close it; remove it if it has none."""
        self.abandon()
        self._directory.mkdir(parents=True, exist_ok=True)
        # The directory's own name has to survive a crash, or all that is synced inside it is gone with it.
        _sync(self._directory.parent)
        closed: list[ClosedSegment] = []
        for part, first_offset in self._open_segments():
            end_position, last = _last_whole_chunk(part, first_offset)
            if last is None:
                part.unlink()
                continue
            with part.open("r+b") as file:
                # Cut and synced before the rename, so that a closed name always means a whole file.
                file.truncate(end_position)
                os.fsync(file.fileno())
            closed.append(ClosedSegment(self._publish(part), first_offset, last.next_offset))
        return RecoveredSegments(tuple(closed), *self._end())

    def append(self, chunks: bytes, first_offset: Offset, next_offset: Offset) -> None:
        """Append whole chunks of the offsets [first_offset, next_offset) to the open segment, or to a new one."""
        if self._file is None:
            path = self._directory / (file_name(first_offset, "segment") + _PART)
            # Only a new file: to go on in one that is there would write after bytes that nobody has checked.
            self._file = FileIO(path, "xb")
            self._first_offset = first_offset
            _write(self._file, SEGMENT_HEADER)
            self.open_bytes = len(SEGMENT_HEADER)
        _write(self._file, chunks)
        self.open_bytes += len(chunks)
        self._next_offset = next_offset

    def close_segment(self) -> ClosedSegment | None:
        """Close the open segment, and return it once it is safe on the disk; None if there is none."""
        if self._file is None:
            return None
        # Before the rename: a file of the closed name is never cut short, whenever the machine crashes.
        os.fsync(self._file.fileno())
        part = Path(os.fsdecode(self._file.name))
        self.abandon()
        return ClosedSegment(self._publish(part), self._first_offset, self._next_offset)

    def abandon(self) -> None:
        """Stop writing to the open segment, and leave it on the disk as it is."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self.open_bytes = 0

    def size_bytes(self) -> int:
        """Return the size of all segments together, the open one included."""
        total = self.open_bytes
        for path in segment_files(self._directory).values():
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                continue  # archived meanwhile
        return total

    def _open_segments(self) -> list[tuple[Path, Offset]]:
        """Return the files of open segments, and the first offset of each, in order."""
        paths = sorted(path for path in self._directory.iterdir() if path.suffix == _PART)
        offsets = ((path, first_offset_of(path.stem)) for path in paths)
        return [(path, first_offset) for path, first_offset in offsets if first_offset is not None]

    def _publish(self, part: Path) -> Path:
        path = part.with_suffix("")
        part.rename(path)
        _sync(self._directory)
        return path

    def _end(self) -> tuple[ChunkHeader | None, Offset]:
        """Return the last user chunk of all segments, and where the newest one ends."""
        next_offset = Offset(0)
        for first_offset, path in reversed(segment_files(self._directory).items()):
            walk = SegmentWalk(path, first_offset)
            try:
                walk.advance()
            except FileNotFoundError:
                continue  # archived meanwhile
            next_offset = max(next_offset, walk.end.offset)
            if walk.last_user is not None:
                return walk.last_user.header, next_offset
        return None, next_offset


def _write(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        # A raw file may take less than it is given, for one when the disk is nearly full.
        view = view[file.write(view) :]


def _sync(directory: Path) -> None:
    """Make the names in a directory survive a crash of the machine."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _last_whole_chunk(part: Path, first_offset: Offset) -> tuple[int, ChunkHeader | None]:
    """Return the byte at which the last whole user chunk ends, and its header; 0 and None if there is none.

    Tracking chunks after it are dropped. They may be fillers for a chunk that was never written, and do not show which
    incarnation this is.
    """
    scanner = SegmentScanner(str(part), first_offset=first_offset)
    end_position, last = 0, None
    with part.open("rb") as file:
        try:
            while block := file.read(MIB):
                for event in scanner.feed(block):
                    if isinstance(event, ChunkEnd) and event.header.type is ChunkType.USER:
                        end_position, last = event.position + event.header.total_bytes, event.header
        except CorruptionError:
            pass  # here the crash cut it
    return end_position, last
