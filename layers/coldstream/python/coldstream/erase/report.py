"""What an erasure did, and what it left to do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from coldstream.erase.copies import FoundCopies
from coldstream.erase.selection import Selection
from coldstream.manifest.entry import Erasure
from coldstream.manifest.stream import StreamId
from coldstream.units import TimestampMs


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """One run of an erasure.

    `fragments_read` were looked through, of which `fragments` were rewritten; `read_bytes` and `written_bytes` are
    sizes of objects. The objects with the old bytes go with the first sweep after `due_at`, None if there are none.
    `copies` are those that were found and discarded before it began. `unreadable` and `unknown_filter_values` count
    messages that stay because a condition could not be tried on them (`chunk.Doubts`). `is_done` is false if the run
    was stopped: the manifest has how far it came.
    """

    stream: StreamId
    erasure: Erasure
    is_done: bool = False
    fragments_read: int = 0
    fragments: int = 0
    messages: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    due_at: TimestampMs | None = None
    unreadable: int = 0
    unknown_filter_values: int = 0
    gaps: int = 0
    copies: FoundCopies = field(default_factory=FoundCopies)

    def to_json(self) -> dict[str, object]:
        """Return the report for programs."""
        erasure = self.erasure
        return {
            "dry_run": False,
            **_names(self.stream),
            "id": erasure.id,
            "is_done": self.is_done,
            "first_offset": erasure.first_offset,
            "next_offset": erasure.next_offset,
            "reached": erasure.reached,
            "messages": erasure.messages,
            "digest": erasure.digest,
            "fragments": self.fragments,
            "fragments_read": self.fragments_read,
            "read_bytes": self.read_bytes,
            "written_bytes": self.written_bytes,
            "due_at": self.due_at,
            **_doubts_json(self),
            "discarded": [one.key for one in self.copies.copies],
            "awaiting": _awaiting_json(self.copies),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureForecast:
    """What an erasure would do.

    It would look through `fragments_read`, and rewrite `fragments`, whose objects have `rewritten_bytes` now.
    `requests` and `cost_usd` are those to the bucket, at list prices. `copies` would have to go first.
    """

    stream: StreamId
    selection: Selection
    fragments_read: int = 0
    fragments: int = 0
    messages: int = 0
    read_bytes: int = 0
    rewritten_bytes: int = 0
    requests: int = 0
    cost_usd: float = 0.0
    unreadable: int = 0
    unknown_filter_values: int = 0
    gaps: int = 0
    copies: FoundCopies = field(default_factory=FoundCopies)

    def __add__(self, other: ErasureForecast) -> ErasureForecast:
        """Return the forecast with that of other fragments of the same stream."""
        return replace(
            self,
            fragments_read=self.fragments_read + other.fragments_read,
            fragments=self.fragments + other.fragments,
            messages=self.messages + other.messages,
            read_bytes=self.read_bytes + other.read_bytes,
            rewritten_bytes=self.rewritten_bytes + other.rewritten_bytes,
            requests=self.requests + other.requests,
            cost_usd=self.cost_usd + other.cost_usd,
            unreadable=self.unreadable + other.unreadable,
            unknown_filter_values=self.unknown_filter_values + other.unknown_filter_values,
            gaps=self.gaps + other.gaps,
        )

    def to_json(self) -> dict[str, object]:
        """Return the forecast for programs."""
        return {
            "dry_run": True,
            **_names(self.stream),
            "messages": self.messages,
            "fragments": self.fragments,
            "fragments_read": self.fragments_read,
            "read_bytes": self.read_bytes,
            "rewritten_bytes": self.rewritten_bytes,
            "requests": self.requests,
            "cost_usd": round(self.cost_usd, 6),
            **_doubts_json(self),
            "copies": [one.key for one in self.copies.copies],
            "awaiting": _awaiting_json(self.copies),
        }


def _names(stream: StreamId) -> dict[str, object]:
    return {"vhost": stream.vhost, "name": stream.name, "incarnation": stream.incarnation}


def _doubts_json(found: ErasureForecast | ErasureReport) -> dict[str, object]:
    return {
        "unreadable": found.unreadable,
        "unknown_filter_values": found.unknown_filter_values,
        "gap_count": found.gaps,
    }


def _awaiting_json(copies: FoundCopies) -> list[dict[str, object]]:
    return [{"key": one.key, "due_at": one.due_at} for one in copies.awaiting]
