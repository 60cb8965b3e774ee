"""A rolled segment, or a slice of one, as it is announced: which stream, which offsets, and where it is staged."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import InvalidEventError
from coldstream.manifest.cluster import NO_CLUSTER, Cluster
from coldstream.manifest.stream import StreamId
from coldstream.units import MAX_OFFSET, Offset

MAX_SEGMENT_BYTES = 1 << 32
"""Positions in a segment are 32 bits wide."""

MIN_CUT_EVERY_MS = 1_000
MAX_CUT_EVERY_MS = 24 * 60 * 60 * 1_000


@dataclass(frozen=True, slots=True)
class SegmentRolled:
    """A segment, or a slice of one, of offsets `first_offset` up to `next_offset`; all of it is at `staged_key`.

    What is staged is a segment's header and whole chunks. Where `cut_every_ms` is given, fragments also end at time
    borders (`archive.borders`); then a slice begins and ends at one, or where the segment does. `etag` says which copy
    it is, of those that may be staged there one after the other; None where the agent is of an earlier release. What is
    judged is that copy, not `size_bytes`, which is what whoever staged it saw. `cluster` is the one that announces it.
    """

    stream: StreamId
    first_offset: Offset
    next_offset: Offset
    size_bytes: int
    bucket: str
    staged_key: str
    cut_every_ms: int | None = None
    etag: str | None = None
    cluster: Cluster = NO_CLUSTER

    def __post_init__(self) -> None:
        if not 0 <= self.first_offset < self.next_offset <= MAX_OFFSET:
            raise InvalidEventError(
                "segment", f"needs 0 <= first_offset < next_offset, got {self.first_offset} and {self.next_offset}"
            )
        if not 0 < self.size_bytes <= MAX_SEGMENT_BYTES:
            raise InvalidEventError("segment.size_bytes", f"{self.size_bytes} is not from 1 to {MAX_SEGMENT_BYTES}")
        if self.cut_every_ms is not None and not MIN_CUT_EVERY_MS <= self.cut_every_ms <= MAX_CUT_EVERY_MS:
            raise InvalidEventError(
                "segment.cut_every_ms", f"{self.cut_every_ms} is not from {MIN_CUT_EVERY_MS} to {MAX_CUT_EVERY_MS}"
            )

    def __str__(self) -> str:
        return f"segment {self.first_offset:020} of {self.stream}"
