"""A slice of a segment file: whole chunks, from one offset up to another.

The copy of it that is staged is a segment of its own: the segment header, then the chunks' bytes as they are in the
file. The usual slice is all of a rolled segment; a slice of the active one ends where its committed chunks do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from coldstream.format.segment import SEGMENT_HEADER, SEGMENT_HEADER_BYTES
from coldstream.ingest.slice_part import SlicePart
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

    @contextmanager
    def parts(self, part_bytes: int) -> Iterator[list[SlicePart]]:
        """Open the staged copy in parts of `part_bytes`, which is more than a header; the last may be shorter.

        Nothing is read yet, and nothing may be read after the end. Raises FileNotFoundError.
        """
        with self.path.open("rb", buffering=0) as file:
            # The first begins with the header of a segment, in the place of that many bytes of chunks.
            at = self.position - SEGMENT_HEADER_BYTES
            starts = range(at, self.end, part_bytes)
            yield [
                SlicePart(
                    file.fileno(),
                    str(self.path),
                    SEGMENT_HEADER if start == at else b"",
                    max(start, self.position),
                    min(start + part_bytes, self.end),
                )
                for start in starts
            ]
