"""How far a replay is, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from coldstream.manifest.entry import Gap
from coldstream.manifest.stream import StreamId
from coldstream.units import Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How far a replay is: of the source's offsets from `start` to `end`, all before `done_to` are at the target.

    `sent_timestamp` is that of the newest chunk of which something was sent, None before the first.
    """

    start: Offset
    end: Offset
    done_to: Offset
    messages: int
    sent_bytes: int
    sent_timestamp: TimestampMs | None = None


@dataclass(slots=True)
class ReplaySummary:
    """What became of a replay of the offsets `start` to `end`.

    The target had all before `resumed_at` when the replay began, and has all before `confirmed_to` now. `is_complete`
    is false if the replay was stopped.

    `messages` counts each message once, however often a stream's connection was lost; to an exchange it counts every
    time that one was sent. `sent_bytes` is what went over the wire. `left_out` counts the messages for which a
    transformation returned None, and where keys route also erased ones; `unroutable` those for which an exchange had no
    queue.
    """

    stream: StreamId
    target: str
    start: Offset
    end: Offset
    publisher: str = ""
    resumed_at: Offset = Offset(0)  # noqa: RUF009  a NewType is its value
    confirmed_to: Offset = Offset(0)  # noqa: RUF009
    messages: int = 0
    sent_bytes: int = 0
    left_out: int = 0
    unroutable: int = 0
    seconds: float = 0.0
    is_complete: bool = False
    gaps: list[Gap] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        return {
            "vhost": self.stream.vhost,
            "stream": self.stream.name,
            "incarnation": self.stream.incarnation,
            "target": self.target,
            "publisher": self.publisher,
            "from": self.start,
            "to": self.end,
            "resumed_at": self.resumed_at,
            "confirmed_to": self.confirmed_to,
            "messages": self.messages,
            "bytes": self.sent_bytes,
            "left_out": self.left_out,
            "unroutable": self.unroutable,
            "seconds": round(self.seconds, 3),
            "complete": self.is_complete,
            "gaps": [{"first_offset": gap.first_offset, "next_offset": gap.next_offset} for gap in self.gaps],
        }


def broker_summary(summaries: Sequence[ReplaySummary], *, is_failed: bool, seconds: float) -> dict[str, Any]:
    """Return the summary of a run for JSON: each stream that did not fail, and the totals."""
    return {
        "streams": [summary.to_dict() for summary in summaries],
        "messages": sum(summary.messages for summary in summaries),
        "complete": not is_failed and all(summary.is_complete for summary in summaries),
        "seconds": round(seconds, 3),
    }
