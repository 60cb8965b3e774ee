"""The spans of a stream's timeline: what there is of which offsets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coldstream.units import Offset, TimestampMs


class SpanKind(StrEnum):
    """What there is of a span's offsets.

    REMOVED: taken away on purpose, below the floor. UNREAD: archived, with gaps that were too many to read here.
    WAITING: past the tail, at the broker. LOSS, QUARANTINE, HOLD and BROKER lie over the others, in lanes of their own.
    """

    REMOVED = "removed"
    ARCHIVED = "archived"
    GAP = "gap"
    UNREAD = "unread"
    WAITING = "waiting"
    LOSS = "loss"
    QUARANTINE = "quarantine"
    HOLD = "hold"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """Offsets `first_offset` up to, not including, `next_offset`, all of a kind.

    `reason` is that of a gap, a loss, a quarantine or a hold, None if nobody knows it. A span of several `parts` stands
    for that many spans, too narrow to be drawn one by one: its kind is that of the worst of them, `missing_offsets`
    counts the offsets in it that are missing, and `reason` has the first reasons. `id` is a hold's, `by` who put it,
    `at` when it, a loss or a quarantine was written down.
    """

    kind: SpanKind
    first_offset: Offset
    next_offset: Offset
    reason: str | None = None
    parts: int = 1
    missing_offsets: int = 0
    id: str | None = None
    by: str | None = None
    at: TimestampMs | None = None

    @property
    def offsets(self) -> int:
        """How many offsets the span has."""
        return self.next_offset - self.first_offset


@dataclass(frozen=True, slots=True)
class BrokerOffsets:
    """What a broker has of a stream: the first offset, and the one after the last that is committed.

    None for both if the stream is empty there. `problem` says why the broker could not be asked.
    """

    first_offset: Offset | None = None
    next_offset: Offset | None = None
    problem: str | None = None
