"""A rolled segment as it is announced: which stream, which offsets, and where it is staged."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import InvalidEventError
from coldstream.manifest.stream import StreamId
from coldstream.units import MAX_OFFSET, Offset

MAX_SEGMENT_BYTES = 1 << 32
"""Positions in a segment are 32 bits wide."""


@dataclass(frozen=True, slots=True)
class SegmentRolled:
    """A closed segment of offsets `first_offset` up to `next_offset`; all its bytes are at `staged_key`."""

    stream: StreamId
    first_offset: Offset
    next_offset: Offset
    size_bytes: int
    bucket: str
    staged_key: str

    def __post_init__(self) -> None:
        if not 0 <= self.first_offset < self.next_offset <= MAX_OFFSET:
            raise InvalidEventError(
                "segment", f"needs 0 <= first_offset < next_offset, got {self.first_offset} and {self.next_offset}"
            )
        if not 0 < self.size_bytes <= MAX_SEGMENT_BYTES:
            raise InvalidEventError("segment.size_bytes", f"{self.size_bytes} is not from 1 to {MAX_SEGMENT_BYTES}")

    def __str__(self) -> str:
        return f"segment {self.first_offset:020} of {self.stream}"
