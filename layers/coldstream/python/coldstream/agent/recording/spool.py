"""Segments that the agent writes itself, in the broker's format, out of chunks that it was sent.

    <directory>/<first offset, 20 digits>.segment           closed: whole, and safe on the disk
                <first offset, 20 digits>.segment.part      open; it may end anywhere, as after a crash

The directory is that of a stream's pins: whoever archives it removes what is archived. Everything here blocks on the
disk, and raises OSError as it does; `recover` comes first, and again after an error.
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
from coldstream.format.segment import SEGMENT_HEADER, file_name
from coldstream.units import MIB, Offset

_PART = ".part"


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """A segment file of the offsets [first_offset, next_offset)."""

    path: Path
    first_offset: Offset
    next_offset: Offset


@dataclass(frozen=True, slots=True)
class Recovered:
    """What an earlier run left: segments that were open and are closed now, and the last user chunk of all.

    `next_offset` is where the newest segment ends, 0 without any.
    """

    closed: tuple[ClosedSegment, ...]
    last: ChunkHeader | None
    next_offset: Offset


class SegmentSpool:
    """Writes one segment after another. `open_bytes` is the size of the open one, 0 while there is none."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: FileIO | None = None
        self._first_offset = Offset(0)
        self._next_offset = Offset(0)
        self.open_bytes = 0

    def recover(self) -> Recovered:
        """Close what is open with its last whole user chunk, CRCs checked; what has none is removed."""
        self.abandon()
        self._directory.mkdir(parents=True, exist_ok=True)
        _sync(self._directory.parent)
        closed: list[ClosedSegment] = []
        for part in sorted(self._directory.glob(f"*.segment{_PART}")):
            end_position, last = _last_whole_chunk(part)
            if last is None:
                part.unlink()
                continue
            with part.open("r+b") as file:
                file.truncate(end_position)
                os.fsync(file.fileno())
            path = self._publish(part)
            closed.append(ClosedSegment(path, Offset(int(path.stem)), last.next_offset))
        return Recovered(tuple(closed), *self._end())

    def append(self, chunks: bytes, first_offset: Offset, next_offset: Offset) -> None:
        """Write whole chunks of the offsets [first_offset, next_offset) to the open segment, or to a new one."""
        if self._file is None:
            path = self._directory / (file_name(first_offset, "segment") + _PART)
            self._file = FileIO(path, "xb")
            self._first_offset = first_offset
            _write(self._file, SEGMENT_HEADER)
            self.open_bytes = len(SEGMENT_HEADER)
        _write(self._file, chunks)
        self.open_bytes += len(chunks)
        self._next_offset = next_offset

    def close_segment(self) -> ClosedSegment | None:
        """Close the open segment, and return it once it is safe on the disk; None while there is none."""
        if self._file is None:
            return None
        os.fsync(self._file.fileno())
        part = Path(os.fsdecode(self._file.name))
        self.abandon()
        return ClosedSegment(self._publish(part), self._first_offset, self._next_offset)

    def abandon(self) -> None:
        """Leave the open segment as it is."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self.open_bytes = 0

    def size_bytes(self) -> int:
        """Add up the sizes of all segments, the open one's too."""
        total = self.open_bytes
        for path in segment_files(self._directory).values():
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                continue  # archived meanwhile
        return total

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
        view = view[file.write(view) :]


def _sync(directory: Path) -> None:
    """Have the names in a directory outlive a crash of the machine."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _last_whole_chunk(part: Path) -> tuple[int, ChunkHeader | None]:
    """Return the byte at which the last whole user chunk ends, and its header; None where there is none.

    Tracking chunks behind it may be ours, made for what came next, and say nothing of which stream this is.
    """
    scanner = SegmentScanner(str(part), first_offset=Offset(int(part.name.partition(".")[0])))
    end_position, last = 0, None
    with part.open("rb") as file:
        try:
            while block := file.read(MIB):
                for event in scanner.feed(block):
                    if isinstance(event, ChunkEnd) and event.header.type is ChunkType.USER:
                        end_position, last = event.position + event.header.total_bytes, event.header
        except CorruptionError:
            pass  # where it was cut
    return end_position, last
