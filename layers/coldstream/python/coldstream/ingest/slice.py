"""A slice of a segment file: whole chunks, from one offset up to another.

What is staged of it is a segment of its own: the segment header, then the chunks' bytes as they are in the file. All of
a rolled segment is the ordinary slice; a slice of the active one ends where its committed chunks do.
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
        """Size of what is staged."""
        return SEGMENT_HEADER_BYTES + self.end - self.position

    def parts(self, part_bytes: int) -> Generator[bytes, None, None]:
        """Yield what is staged, in parts of `part_bytes`, more than a header; the last may be shorter.

        Memory: one part, and the one before it while the next is read. The kernel is told that what was read is not
        needed again, so that the page cache stays the broker's. Raises FileNotFoundError, and TruncatedError when the
        file ends before the slice does.
        """
        with self.path.open("rb", buffering=0) as file:
            head, at = SEGMENT_HEADER, self.position
            while at < self.end:
                wanted = min(part_bytes - len(head), self.end - at)
                data = os.pread(file.fileno(), wanted, at)
                if len(data) < wanted:
                    raise TruncatedError(
                        str(self.path), at, "the file ends inside the slice", expected=wanted, found=len(data)
                    )
                if sys.platform == "linux":
                    os.posix_fadvise(file.fileno(), at, wanted, os.POSIX_FADV_DONTNEED)
                at += wanted
                yield head + data
                head = b""
