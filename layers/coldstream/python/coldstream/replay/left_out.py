"""What a replay leaves out instead of ending there, if its caller keeps account of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from coldstream.units import Offset, TimestampMs


class LeftOutReason(StrEnum):
    """Why a message is not at the target."""

    ERASED = "erased"
    NO_KEY = "no routing key"
    UNROUTABLE = "no queue is bound for its routing key"
    LATE = "after the end of the window"
    """Not in the window, and not yet: if the window's end moves on, it was passed over."""


@dataclass(frozen=True, slots=True)
class LeftOutMessages:
    """The messages `first_offset` up to, not including, `next_offset` are left out for one reason.

    `time` is the least time of those that are too late for a window.
    """

    first_offset: Offset
    next_offset: Offset
    reason: LeftOutReason
    time: TimestampMs | None = None


LeftOutReport = Callable[[LeftOutMessages], None]
"""Takes account of what is left out. What is sent again after a lost connection is reported again, too."""
