"""AWS's clock, as this process hears it: each answer of AWS's says in its `Date` header when it was sent.

What must agree with AWS, whatever the clock of this machine says, is reckoned by it: when a URL expires, when an object
may be deleted. The host's clock is never read. Between answers its monotonic clock counts on, which nobody sets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import TYPE_CHECKING

from coldstream.errors import UnavailableError
from coldstream.units import TimestampMs

if TYPE_CHECKING:
    pass

TOLERANCE_MS = 2000
"""A `Date` is a whole second, rounded down, and on its way for a while: if it is behind by up to this, it agrees."""


class HeardTime:
    """The time that answers have said. Threads may share it. `monotonic_ns` is a clock that only goes on."""

    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._monotonic_ns = monotonic_ns
        self._offset_ms: int | None = None  # of AWS's clock to the monotonic one
        self._lock = Lock()

    def hear(self, date: str | None) -> None:
        """Learn from the `Date` header of an answer of AWS's; one that is missing or malformed teaches nothing."""
        if date is None:
            return
        try:
            said = parsedate_to_datetime(date)
        except ValueError:
            return
        # "-0000" has no zone for Python, and would be read in the host's.
        said_ms = round(said.replace(tzinfo=said.tzinfo or UTC).timestamp() * 1000)
        offset_ms = said_ms - self._monotonic_ns() // 1_000_000
        with self._lock:
            # It was at least that late when the answer was sent, so the latest of all is the most exact. One that is
            # far behind the others is no slow answer: then either of them was wrong, and newer news wins.
            known = self._offset_ms
            if known is None or not known - TOLERANCE_MS <= offset_ms <= known:
                self._offset_ms = offset_ms

    def now(self) -> TimestampMs | None:
        """Return the time, up to two seconds behind AWS's; None if nothing was heard yet."""
        offset_ms = self._offset_ms
        return None if offset_ms is None else TimestampMs(self._monotonic_ns() // 1_000_000 + offset_ms)


HEARD = HeardTime()
"""What this process has heard: all of its clients of S3, DynamoDB and EventBridge tell it."""


@dataclass(frozen=True, slots=True)
class AwsClock:
    """AWS's clock. If nothing was heard yet, `ask` sends one request, whose answer is heard."""

    ask: Callable[[], object]
    heard: HeardTime = HEARD

    def __call__(self) -> TimestampMs:
        """Return AWS's time. No request, or one if none was answered yet. Raises UnavailableError."""
        now = self.heard.now()
        if now is None:
            self.ask()
            now = self.heard.now()
        if now is None:
            raise UnavailableError("AWS's clock: an answer without a date")
        return now
