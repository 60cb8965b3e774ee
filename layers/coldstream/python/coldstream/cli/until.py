"""Where reading ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from coldstream.errors import GapError, InvalidQueryError
from coldstream.format.amqp.message import Message
from coldstream.manifest.spec import AtOffset, AtTimestamp, parse_offset_spec
from coldstream.units import MAX_OFFSET, MAX_TIMESTAMP_MS, TimestampMs


@dataclass(frozen=True, slots=True)
class Until:
    """The first offset, and the first time, that are not wanted any more; and how many messages at most."""

    offset: int = MAX_OFFSET + 1
    timestamp: int = MAX_TIMESTAMP_MS + 1
    limit: int | None = None

    @classmethod
    def parse(cls, end: str | None, limit: int | None, now: TimestampMs) -> Self:
        """Read what --to and --limit say. Raises InvalidQueryError."""
        match None if end is None else parse_offset_spec(end, now):
            case None:
                return cls(limit=limit)
            case AtOffset(offset):
                return cls(offset=offset, limit=limit)
            case AtTimestamp(timestamp):
                return cls(timestamp=timestamp, limit=limit)
            case spec:
                raise InvalidQueryError("--to", f"{spec} is neither an offset nor a time")

    def is_past(self, message: Message) -> bool:
        """Tell whether a message is not wanted any more, nor any after it."""
        return message.offset >= self.offset or message.timestamp >= self.timestamp

    def is_before(self, gap: GapError) -> bool:
        """Tell whether all that is wanted comes before a gap."""
        return gap.first_offset >= self.offset
