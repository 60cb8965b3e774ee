"""`SegmentRolled`: the announcement that a segment, or a slice of one, is committed and staged."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.archive.borders import QuietSpans
from coldstream.errors import InvalidEventError
from coldstream.manifest.cluster import NO_CLUSTER, Cluster
from coldstream.manifest.stream import StreamId
from coldstream.units import MAX_OFFSET, Offset

MAX_SEGMENT_BYTES = 1 << 32
"""Positions in a segment are 32 bits wide."""

MIN_CUT_EVERY_MS = 1_000
MAX_CUT_EVERY_MS = 24 * 60 * 60 * 1_000

MAX_MIN_BYTES = 16 << 20
"""The most that may be too little for a fragment. The recovery log holds so much of a stream, in memory at a time."""

MAX_ETAG = 255
"""Characters of an ETag."""


@dataclass(frozen=True, slots=True)
class SegmentRolled:
    """A segment, or a slice of one, of offsets `first_offset` up to `next_offset`. All of it is staged at `staged_key`.

    The staged object holds a segment's header and whole chunks. With `cut_every_ms`, fragments also end at time borders
    (`archive.borders`), of which `quiet` leaves some out; a slice then begins and ends at such a border, or with its
    segment.

    `etag` names one of the copies that may be staged at that key, one after another; agents of earlier releases sent
    none. The upload judges that copy. `size_bytes` is only what the agent that staged it saw. `cluster` is the one that
    announced it.
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
    quiet: QuietSpans | None = None

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
        if self.quiet is not None:
            self._check_quiet(self.quiet)

    def _check_quiet(self, quiet: QuietSpans) -> None:
        if self.cut_every_ms is None or not self.cut_every_ms <= quiet.every_ms <= MAX_CUT_EVERY_MS:
            raise InvalidEventError(
                "segment.quiet.every_ms",
                f"{quiet.every_ms} is not from {self.cut_every_ms}, which is cut_every_ms, to {MAX_CUT_EVERY_MS}",
            )
        if not 1 <= quiet.min_bytes <= MAX_MIN_BYTES:
            raise InvalidEventError("segment.quiet.min_bytes", f"{quiet.min_bytes} is not from 1 to {MAX_MIN_BYTES}")

    def __str__(self) -> str:
        return f"segment {self.first_offset:020} of {self.stream}"
