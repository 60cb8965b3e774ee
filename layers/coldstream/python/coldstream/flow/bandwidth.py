"""A bandwidth limit that all uploads of an agent share: a token bucket."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

BURST_S = 1.0
"""Unused bandwidth that may be caught up on, at most."""


class BandwidthLimit:
    """Grants `bytes_per_s` on average, in the order of requests; None is no limit. Threads may share it.

    A grant is paid for afterwards: the next one waits until all before it are paid. So a grant may be larger than the
    bucket, and smaller grants do not overtake it.
    """

    def __init__(self, bytes_per_s: float | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        if bytes_per_s is not None and bytes_per_s <= 0:
            raise ValueError(f"a bandwidth limit must be more than 0 bytes a second, got {bytes_per_s}")
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._paid_at = clock() - BURST_S
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def take(self, size_bytes: int) -> None:
        """Wait until it is the caller's turn to send `size_bytes`."""
        # The lock is free during the wait: `reserve` has fixed the turn, and others fix theirs meanwhile.
        self._stopped.wait(self.reserve(size_bytes))

    def reserve(self, size_bytes: int) -> float:
        """Reserve the next turn for `size_bytes`, and return the seconds until it comes."""
        if self._bytes_per_s is None:
            return 0.0
        with self._lock:
            now = self._clock()
            # Without this bound, an hour without uploads would be caught up on at full speed.
            turn = max(self._paid_at, now - BURST_S)
            self._paid_at = turn + size_bytes / self._bytes_per_s
            return max(0.0, turn - now)

    def stop(self) -> None:
        """End all waits, now and in the future."""
        self._stopped.set()
