"""What became of a replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coldstream.manifest.entry import Gap
from coldstream.manifest.stream import StreamId
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How far a replay is: the source's offsets from `start` to `end` are sent up to `done_to`."""

    start: Offset
    end: Offset
    done_to: Offset
    messages: int
    sent_bytes: int


@dataclass(slots=True)
class ReplaySummary:
    """A replay of the offsets `start` to `end`, of which those before `resumed_at` were at the target already.

    `messages` counts each that was sent once, whatever failed meanwhile; to an exchange again after a failure, as it is
    sent. `sent_bytes` is what went over the wire for it; `left_out` what a transformation took away.
    Of those sent to an exchange no queue was bound for `unroutable`.
    All before `confirmed_to` is at the target. `is_complete` is not true where it was stopped.
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
        """Return what JSON can hold."""
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
