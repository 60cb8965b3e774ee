"""A bandwidth limit that all uploads of an agent share: a token bucket."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

BURST_S = 1.0
"""What was left unused may be caught up on, at most so much of it."""


class BandwidthLimit:
    """Grants `bytes_per_s` on average, all of it to who asks first; None is no limit. Threads may share it.

    A grant is paid for afterwards: whoever comes next waits until all before it is paid. So one larger than the bucket
    need not wait for a bucket that large, and nobody is overtaken by smaller ones.
    """

    def __init__(self, bytes_per_s: float | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        if bytes_per_s is not None and bytes_per_s <= 0:
            raise ValueError(f"a bandwidth limit needs more than 0 bytes a second, got {bytes_per_s}")
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._paid_at = clock() - BURST_S
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def take(self, size_bytes: int) -> None:
        """Wait until it is the caller's turn to send so many bytes."""
        self._stopped.wait(self.reserve(size_bytes))

    def reserve(self, size_bytes: int) -> float:
        """Reserve the next turn for so many bytes, and return in how many seconds it comes."""
        if self._bytes_per_s is None:
            return 0.0
        with self._lock:
            now = self._clock()
            turn = max(self._paid_at, now - BURST_S)
            self._paid_at = turn + size_bytes / self._bytes_per_s
            return max(0.0, turn - now)

    def stop(self) -> None:
        """End all waiting, now and from now on."""
        self._stopped.set()
