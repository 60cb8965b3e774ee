"""Time borders: where fragments end because of time, not size, so that quiet streams are archived soon as well.

A time border lies after a user chunk if

- the next user chunk's `timestamp // every_ms` is another number (clocks may run backwards), or
- more than HELD_BYTES of tracking chunks come before the next user chunk, or
- the segment ends without another user chunk.

Spans of `every_ms` may be too short for a stream that has little to say: each of its fragments costs as much as a large
one. With `QuietSpans`, the first kind of border counts only if enough data lies before it, back to the border before,
or if the chunks are of two of its longer spans as well. So a longer span always ends at a border, and from each border
on, what follows depends on the chunks after it alone.

Borders depend on the chunks alone, so everybody who looks finds the same ones. They lie after user chunks, before any
tracking chunks that follow, because a broker delivers only user chunks unasked: an agent learns in time that these are
committed, and may learn it too late of others.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.units import TimestampMs

HELD_BYTES = 64 << 10
"""Tracking chunks that a cutter holds back at most, until it knows on which side of a border they lie."""


class Side(Enum):
    """The side of a border on which a chunk lies. Chunks held before it lie on the same side."""

    JOIN = auto()
    """The side of the chunks before it: there is no border between."""

    PART = auto()
    """The other side: a border lies after the last user chunk."""

    HOLD = auto()
    """Not known until a later chunk."""


@dataclass(frozen=True, slots=True)
class QuietSpans:
    """Spans of `every_ms` for data of less than `min_bytes`, from a border to the end of a user chunk."""

    min_bytes: int
    every_ms: int


class TimeBorders:
    """Tells of each chunk of a segment, in order, on which side of a border it lies. Without `every_ms` all JOIN."""

    def __init__(self, every_ms: int | None, quiet: QuietSpans | None = None) -> None:
        self._every_ms = every_ms
        self._quiet = quiet
        self._last: TimestampMs | None = None  # of the last user chunk since the border
        self._bytes = 0  # from the border to the end of that chunk
        self._held_bytes = 0  # since then

    def take(self, header: ChunkHeader) -> Side:
        """Place the next chunk."""
        if self._every_ms is None:
            return Side.JOIN
        if header.type is ChunkType.USER:
            is_border = self._last is not None and self._is_border(self._every_ms, self._last, header.timestamp)
            # Held chunks lie on the same side as this one.
            self._bytes = (0 if is_border else self._bytes) + self._held_bytes + header.total_bytes
            self._last, self._held_bytes = header.timestamp, 0
            return Side.PART if is_border else Side.JOIN
        # Tracking chunks before the first user chunk have no border to lie after.
        if self._last is None:
            self._bytes += header.total_bytes
            return Side.JOIN
        self._held_bytes += header.total_bytes
        if self._held_bytes <= HELD_BYTES:
            return Side.HOLD
        # The bound is part of the rule, not of this process: otherwise memory would decide where a border lies.
        self._last, self._bytes, self._held_bytes = None, self._held_bytes, 0
        return Side.PART

    def is_over(self, now: TimestampMs) -> bool:
        """Tell whether a border lies after the last user chunk, if no chunk comes that its leader wrote before `now`.

        False also if there is no user chunk since the border. It is over one span of `every_ms` later than its own span
        ends: a leader whose clock is behind ours by less than a span can then add nothing to a span that we closed.
        """
        if self._every_ms is None or self._last is None:
            return False
        return self._is_border(self._every_ms, self._last, max(self._last, TimestampMs(now - self._every_ms)))

    def _is_border(self, every_ms: int, last: TimestampMs, following: TimestampMs) -> bool:
        if self._quiet is None:
            return last // every_ms != following // every_ms
        if last // self._quiet.every_ms != following // self._quiet.every_ms:
            return True
        return self._bytes >= self._quiet.min_bytes and last // every_ms != following // every_ms
