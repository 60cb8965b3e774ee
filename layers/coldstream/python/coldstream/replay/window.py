"""The time window of a replay: which messages belong to it, by a time of each message and not of its chunk alone.

A message's time is the `creation_time` of its properties, which its publisher set, if it has one; else, and with
`by_message` false, the timestamp of its chunk, which the broker set. The window is [start, end).

Chunks are looked for by their timestamps. A message is created before its chunk is written, so the scan begins at the
first chunk at or after `start`. It ends at the first chunk at or after `end`, and SLACK_MS later if messages count by
their own times: a message that took longer than that to its broker, or whose publisher's clock is ahead of the
broker's, is looked for in the wrong chunks, and not found.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import CorruptionError
from coldstream.format.amqp.message import Message
from coldstream.units import TimestampMs

SLACK_MS = 60_000


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Messages whose time is at or after `start` and before `end`; None is no bound."""

    start: TimestampMs | None = None
    end: TimestampMs | None = None
    by_message: bool = True

    @property
    def scan_end(self) -> TimestampMs | None:
        """The time of the first chunk that is not read any more."""
        if self.end is None or not self.by_message:
            return self.end
        return TimestampMs(self.end + SLACK_MS)

    @property
    def identity(self) -> str:
        """What tells this window from others, in a text."""
        return f"{self.start}:{self.end}:{'message' if self.by_message else 'chunk'}"

    def time_of(self, message: Message) -> TimestampMs:
        """Return the time that counts for a message. AMQP that is damaged, or none at all, has no creation time."""
        if self.by_message:
            try:
                properties = message.properties
            except CorruptionError:
                properties = None
            created = None if properties is None else properties.creation_time
            if isinstance(created, int) and not isinstance(created, bool):
                return TimestampMs(int(created))
        return message.timestamp

    def takes_time(self, time: TimestampMs) -> bool:
        """Tell whether a time lies in the window."""
        return (self.start is None or time >= self.start) and not self.is_late(time)

    def is_late(self, time: TimestampMs) -> bool:
        """Tell whether a time lies at or after the window's end."""
        return self.end is not None and time >= self.end
