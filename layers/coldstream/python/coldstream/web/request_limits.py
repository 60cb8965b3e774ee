"""How many requests a caller may send, how many live reads may wait at once, and what bodies take of memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from coldstream.units import MIB
from coldstream.web.refusal import BUSY, TOO_MANY, Refusal

MAX_CALLERS = 10_000
"""Callers whose requests are counted; of more, the one that was heard of least recently begins anew."""

MAX_BUFFERED_BYTES = 256 * MIB
"""The bodies of all requests under way. Those that wait until memory for the log is free count, too."""


MAX_UNREAD_BYTES = 512 * MIB
"""What all clients have still to read of their responses, as far as it is in memory."""


class RequestLimits:
    """A bucket of tokens for each caller, and the live reads and bodies of all. For one event loop."""

    def __init__(
        self,
        requests_per_s: float,
        max_live_reads: int,
        max_buffered_bytes: int = MAX_BUFFERED_BYTES,
        max_unread_bytes: int = MAX_UNREAD_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.live_reads = 0
        self.buffered_bytes = 0
        self.unread_bytes = 0
        self._max_unread_bytes = max_unread_bytes
        self._max_buffered_bytes = max_buffered_bytes
        self._per_s = requests_per_s
        self._max_live_reads = max_live_reads
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, and when that was

    def admit(self, caller: str) -> None:
        """Count a request. A caller may save up one second's worth. Raises Refusal if it has none left."""
        if not self._per_s:
            return
        now = self._clock()
        burst = max(1.0, self._per_s)
        left, at = self._left.pop(caller, (burst, now))
        left = min(burst, left + (now - at) * self._per_s)
        is_admitted = left >= 1
        # One that is refused takes nothing: else a caller that is a little too fast would never be let in again.
        self._left[caller] = left - is_admitted, now
        if len(self._left) > MAX_CALLERS:
            self._left.popitem(last=False)
        if not is_admitted:
            raise Refusal(TOO_MANY, f"{self._per_s:g} requests a second are the limit")

    @contextmanager
    def body(self) -> Iterator[Callable[[int], None]]:
        """Yield what is called with the size of each part of a body; all count until the block ends.

        It raises Refusal if the bodies of all requests under way are too large together.
        """
        taken = 0

        def take(size_bytes: int) -> None:
            nonlocal taken
            if self.buffered_bytes + size_bytes > self._max_buffered_bytes:
                raise Refusal(BUSY, "the bodies of other requests fill the memory for them")
            self.buffered_bytes += size_bytes
            taken += size_bytes

        try:
            yield take
        finally:
            self.buffered_bytes -= taken

    @contextmanager
    def answer(self, size_bytes: int) -> Iterator[None]:
        """Count what a client is sent while the block runs.

        Raises Refusal if clients have too much to read already. One that is larger than all may be goes alone.
        """
        if self.unread_bytes and self.unread_bytes + size_bytes > self._max_unread_bytes:
            raise Refusal(BUSY, "responses that other clients have not read fill the memory for them")
        self.unread_bytes += size_bytes
        try:
            yield
        finally:
            self.unread_bytes -= size_bytes

    @contextmanager
    def live_read(self) -> Iterator[None]:
        """Count a live read while the block runs. Raises Refusal if there are too many."""
        if self.live_reads >= self._max_live_reads:
            raise Refusal(TOO_MANY, f"{self._max_live_reads} live reads at once are the limit")
        self.live_reads += 1
        try:
            yield
        finally:
            self.live_reads -= 1
