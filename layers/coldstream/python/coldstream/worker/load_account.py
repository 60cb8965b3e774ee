"""What a load leaves out of one stream, until the place at which it was left out is behind the cursor."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field

from coldstream.jobs.run import LeftOut
from coldstream.manifest.entry import Gap
from coldstream.replay.left_out import LeftOutMessages, LeftOutReason
from coldstream.units import Offset, TimestampMs

NO_REASON = "not archived, and nobody has said why"


@dataclass(frozen=True, slots=True)
class Settled:
    """What lies before the cursor now: what is left out for good, and how many messages came after the window's end."""

    left_out: tuple[LeftOut, ...] = ()
    late: int = 0
    late_from: TimestampMs | None = None


@dataclass(slots=True)
class LoadAccount:
    """Takes account of what is left out between `start` and `end` of a stream. Any thread may call it.

    A replay that lost its connection goes back, and tells again what it leaves out: that counts once.
    """

    stream: str
    start: Offset
    end: Offset
    _spans: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    _late_from: TimestampMs | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def leave_out(self, messages: LeftOutMessages) -> None:
        """Take account of messages."""
        with self._lock:
            self._add(messages.reason, messages.first_offset, messages.next_offset)
            if messages.time is not None:
                self._late_from = messages.time if self._late_from is None else min(self._late_from, messages.time)

    def skip(self, gap: Gap) -> None:
        """Take account of the part of a gap that was to be loaded."""
        with self._lock:
            self._add(gap.reason or NO_REASON, gap.first_offset, min(gap.next_offset, self.end))

    def settle(self, done_to: Offset) -> Settled:
        """Return what lies before an offset, and forget it."""
        with self._lock:
            found: list[tuple[int, int, str]] = []
            for reason, spans in self._spans.items():
                found += [(first, min(after, done_to), reason) for first, after in spans if first < done_to]
                self._spans[reason] = [(max(first, done_to), after) for first, after in spans if after > done_to]
            late = sum(after - first for first, after, reason in found if reason == LeftOutReason.LATE)
            left_out = tuple(
                LeftOut(self._text(first, after), after - first, reason)
                for first, after, reason in sorted(found)
                if reason != LeftOutReason.LATE
            )
            late_from = self._late_from if late else None
            if not self._spans[LeftOutReason.LATE]:
                self._late_from = None
            return Settled(left_out, late, late_from)

    def _add(self, reason: str, first: int, after: int) -> None:
        """Add offsets to those of a reason, which are sorted and apart. Mostly they come after all others."""
        # What lies before the beginning of this attempt is counted.
        first = max(first, self.start)
        if first >= after:
            return
        spans = self._spans[reason]
        if spans and spans[-1][1] == first:
            spans[-1] = spans[-1][0], after
            return
        if spans and first < spans[-1][1]:
            apart = [span for span in spans if span[1] < first or span[0] > after]
            met = [span for span in spans if not (span[1] < first or span[0] > after)]
            first, after = min(first, *(span[0] for span in met)), max(after, *(span[1] for span in met))
            self._spans[reason] = sorted([*apart, (first, after)])
            return
        spans.append((first, after))

    def _text(self, first: int, after: int) -> str:
        offsets = f"offset {first}" if after == first + 1 else f"offsets {first} to {after - 1}"
        return f"{offsets} of {self.stream}"
