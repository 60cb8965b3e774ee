"""A health report that is kept for a while: it costs some dozens of requests, and several people may look at it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from coldstream.browse.health_report import HealthReport

KEPT_S = 15.0


class KeptHealth:
    """Reads a report, once at a time. Threads may share it."""

    def __init__(
        self, read: Callable[[], HealthReport], kept_s: float = KEPT_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._kept_s = kept_s
        self._clock = clock
        self._kept: tuple[HealthReport, float] | None = None
        self._lock = threading.Lock()

    def __call__(self) -> HealthReport:
        """Return the report of a moment ago, or read another one."""
        with self._lock:
            if self._kept is None or self._clock() >= self._kept[1]:
                self._kept = self._read(), self._clock() + self._kept_s
            return self._kept[0]
