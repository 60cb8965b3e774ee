"""Time borders: where fragments end because of time, not size, so that quiet streams are archived soon as well.

A time border lies after a user chunk if

- the next user chunk's `timestamp // every_ms` is another number (clocks may run backwards), or
- more than HELD_BYTES of tracking chunks come before the next user chunk, or
- the segment ends without another user chunk.

Borders depend on the chunks alone, so everybody who looks finds the same ones. They lie after user chunks, before any
tracking chunks that follow, because a broker delivers only user chunks unasked: an agent learns in time that these are
committed, and may learn it too late of others.
"""

from __future__ import annotations

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


class TimeBorders:
    """Tells of each chunk of a segment, in order, on which side of a border it lies. Without `every_ms` all JOIN."""

    def __init__(self, every_ms: int | None) -> None:
        self._every_ms = every_ms
        self._window: int | None = None  # of the last user chunk since the border
        self._held_bytes = 0

    def take(self, header: ChunkHeader) -> Side:
        """Place the next chunk."""
        if self._every_ms is None:
            return Side.JOIN
        if header.type is ChunkType.USER:
            before, self._window = self._window, self.window(header.timestamp)
            self._held_bytes = 0
            return Side.JOIN if before in {None, self._window} else Side.PART
        # Tracking chunks before the first user chunk have no border to lie after.
        if self._window is None:
            return Side.JOIN
        self._held_bytes += header.total_bytes
        if self._held_bytes <= HELD_BYTES:
            return Side.HOLD
        # The bound is part of the rule, not of this process: otherwise memory would decide where a border lies.
        self._window = None
        return Side.PART

    def window(self, timestamp: TimestampMs) -> int:
        """Number the time window that holds a timestamp."""
        assert self._every_ms is not None
        return timestamp // self._every_ms
