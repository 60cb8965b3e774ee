"""When a recorded segment ends for the sake of time: so that quiet streams do not wait until a segment is full.

Time borders (archive/borders.py) lie between two user chunks whose timestamps are of different spans. They depend on
the data alone, so that every agent cuts at the same places. How old a chunk is, and for how long a segment has been
open, only decides which borders are worth a segment of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.units import TimestampMs

LIVE_SPANS = 3
"""A chunk of at most this many spans ago is taken to be from the stream's end, where borders are worth a segment."""

LONG_SPANS = 2
"""A segment that has been open for so many spans of our own clock ends: leaders' clocks may be anywhere."""

TRACKING_SPANS = 30
"""Tracking chunks alone are worth a segment so many spans after they came, for they hold no messages."""


@dataclass(frozen=True, slots=True)
class TimeSpans:
    """Spans of `every_ms` milliseconds, counted from the epoch of the timestamps."""

    every_ms: int

    @property
    def idle_s(self) -> float:
        """Seconds without a chunk after which to look whether the open segment is over."""
        return min(1.0, self.every_ms / 2000)

    def is_border(self, last: TimestampMs, following: TimestampMs, *, now: TimestampMs, open_s: float) -> bool:
        """Tell whether a border lies between two user chunks, and is worth a segment.

        While old chunks are read it is not: they would become many small segments, which nobody waits for.
        """
        is_live = following + LIVE_SPANS * self.every_ms > now
        is_another_span = last // self.every_ms != following // self.every_ms
        return is_another_span and (is_live or self._is_long(open_s))

    def is_over(self, last: TimestampMs, *, now: TimestampMs, open_s: float) -> bool:
        """Tell whether to end the segment of a last chunk after which none comes.

        Another whole span has to pass: a leader whose clock is behind ours by less adds nothing to a closed span.
        """
        return (last // self.every_ms + 2) * self.every_ms <= now or self._is_long(open_s)

    def is_tracking_over(self, held_s: float) -> bool:
        """Tell whether tracking chunks that were held back for so long get a segment of their own."""
        return held_s >= TRACKING_SPANS * self.every_ms / 1000

    def _is_long(self, open_s: float) -> bool:
        return open_s >= LONG_SPANS * self.every_ms / 1000
