"""A slice of a segment file: whole chunks, from one offset up to another.

The copy of it that is staged is a segment of its own: the segment header, then the chunks' bytes as they are in the
file. The usual slice is all of a rolled segment; a slice of the active one ends where its committed chunks do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from coldstream.errors import TruncatedError
from coldstream.format.segment import SEGMENT_HEADER, SEGMENT_HEADER_BYTES
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class SegmentSlice:
    """The chunks of offsets `first_offset` up to `next_offset`: bytes `position` up to `end` of the file at `path`."""

    path: Path
    first_offset: Offset
    next_offset: Offset
    position: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.first_offset < self.next_offset:
            raise ValueError(f"a slice needs 0 <= first < next offset, got {self.first_offset}..{self.next_offset}")
        if not SEGMENT_HEADER_BYTES <= self.position < self.end:
            raise ValueError(f"a slice needs {SEGMENT_HEADER_BYTES} <= position < end, got {self.position}..{self.end}")

    @property
    def size_bytes(self) -> int:
        """Size of the staged copy."""
        return SEGMENT_HEADER_BYTES + self.end - self.position

    def parts(self, part_bytes: int) -> Generator[bytes, None, None]:
        """Yield the staged copy in parts of `part_bytes`, which is more than a header; the last may be shorter.

        Memory: one part, and the one before it while the next is read. Raises FileNotFoundError, and TruncatedError
        when the file ends before the slice does.
        """
        with self.path.open("rb", buffering=0) as file:
            head, at = SEGMENT_HEADER, self.position
            while at < self.end:
                missing_bytes = min(part_bytes - len(head), self.end - at)
                data = os.pread(file.fileno(), missing_bytes, at)
                # Of a regular file, pread returns less only at its end: then the file was cut after the slice was made.
                if len(data) < missing_bytes:
                    raise TruncatedError(
                        str(self.path), at, "the file ends inside the slice", expected=missing_bytes, found=len(data)
                    )
                if sys.platform == "linux":
                    # Nobody here reads these bytes again. Without this they push the broker's own out of the page
                    # cache.
                    os.posix_fadvise(file.fileno(), at, missing_bytes, os.POSIX_FADV_DONTNEED)
                at += missing_bytes
                yield head + data
                head = b""
