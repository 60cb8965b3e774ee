"""A pace: a bound on the messages per second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_LOOK_EVERY_S = 0.5
"""Interval at which a wait looks whether it should stop."""

_PIECE_S = 0.25


class Pace:
    """Lets messages pass at a rate; None is no limit. Capacity that is unused for a second is lost."""

    def __init__(self, messages_per_s: float | None) -> None:
        if messages_per_s is not None and messages_per_s <= 0:
            raise ValueError(f"a rate must be more than 0 messages a second, got {messages_per_s}")
        self._rate = messages_per_s
        self._due = time.monotonic()

    @property
    def piece(self) -> int | None:
        """Messages to pass at a time, so that they come evenly; None without a rate."""
        return None if self._rate is None else max(1, int(self._rate * _PIECE_S))

    async def wait(self, messages: int, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Wait until the time of all messages before these is over, or until `should_stop`."""
        if self._rate is None:
            return
        self._due = max(self._due, time.monotonic() - 1)
        while (left := self._due - time.monotonic()) > 0 and not should_stop():  # noqa: ASYNC110  another thread sets the flag
            await asyncio.sleep(min(left, _LOOK_EVERY_S))
        # After the wait: the first messages go at once, and those after them wait for their time to be over.
        self._due += messages / self._rate
