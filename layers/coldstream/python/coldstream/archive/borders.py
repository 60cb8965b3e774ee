"""Time borders: where fragments end because of time, not of size, so that quiet streams are archived soon as well.

A time border lies behind a user chunk, when

- the next user chunk's `timestamp // every_ms` is another (clocks may run backwards), or
- more than HELD_BYTES of tracking chunks come before the next user chunk, or
- the segment ends without another user chunk.

So borders depend on the chunks alone, whoever looks and whenever. They lie behind user chunks, before the tracking
chunks that may follow, because only user chunks are known in time to be committed: brokers deliver no others unasked.
"""

from __future__ import annotations

from enum import Enum, auto

from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.units import TimestampMs

HELD_BYTES = 64 << 10
"""Tracking chunks that whoever cuts may have to hold back until it is known to which side they belong."""


class Side(Enum):
    """On which side of a border a chunk lies. What was held comes before the chunk, on the same side as it."""

    JOIN = auto()
    """With the chunks before it."""

    PART = auto()
    """Behind a border, which lies behind the last user chunk."""

    HOLD = auto()
    """Not known yet."""


class TimeBorders:
    """Tells of each chunk of a segment, in order, on which side of a border it lies; without `every_ms` all JOIN."""

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
        if self._window is None:
            return Side.JOIN
        self._held_bytes += header.total_bytes
        if self._held_bytes <= HELD_BYTES:
            return Side.HOLD
        self._window = None
        return Side.PART

    def window(self, timestamp: TimestampMs) -> int:
        """Number the span of time that a timestamp lies in."""
        assert self._every_ms is not None
        return timestamp // self._every_ms
