"""`Appetite`: about how much of a stream a reader's caller will take."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.resolve.answer import Range
from coldstream.units import Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class Appetite:
    """So many messages, or those before an offset or a time; None, all that there is.

    It bounds nothing: what lies past it is given like the rest, but fetched only when its turn comes, not ahead.
    """

    messages: int | None = None
    offset: Offset | None = None
    timestamp: TimestampMs | None = None

    def ends_before(self, part: Range, start: Offset) -> bool:
        """Tell whether it ends before a range, if it began at `start`.

        Offsets stand for messages: those of other chunks count, so the range may be needed all the same.
        """
        return self._is_past(part.first_offset, start) or _is_from(self.timestamp, part.first_timestamp)

    def ends_in(self, part: Range, start: Offset) -> bool:
        """Tell whether it ends within a range or before it, so that what follows is not needed."""
        return self._is_past(part.next_offset, start) or _is_from(self.timestamp, part.last_timestamp)

    def _is_past(self, offset: Offset, start: Offset) -> bool:
        taken = None if self.messages is None else start + self.messages
        return _is_from(taken, offset) or _is_from(self.offset, offset)


def _is_from(end: int | None, at: int) -> bool:
    return end is not None and at >= end


EVERYTHING = Appetite()
