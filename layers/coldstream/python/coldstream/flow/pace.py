"""A rate that is kept to: so many messages a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_LOOK_EVERY_S = 0.5
"""While it waits, at whether it still is to."""

_PIECE_S = 0.25


class Pace:
    """Lets messages pass at a rate, None as fast as they come. What was not used for a second is lost."""

    def __init__(self, messages_per_s: float | None) -> None:
        if messages_per_s is not None and messages_per_s <= 0:
            raise ValueError(f"a rate needs more than 0 messages a second, got {messages_per_s}")
        self._rate = messages_per_s
        self._due = time.monotonic()

    @property
    def piece(self) -> int | None:
        """Messages that should pass at a time, so that they come evenly."""
        return None if self._rate is None else max(1, int(self._rate * _PIECE_S))

    async def wait(self, messages: int, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Wait until so many more may pass, when those before them have had their time; or until told to stop."""
        if self._rate is None:
            return
        self._due = max(self._due, time.monotonic() - 1)
        while (left := self._due - time.monotonic()) > 0 and not should_stop():  # noqa: ASYNC110  a thread sets what is asked
            await asyncio.sleep(min(left, _LOOK_EVERY_S))
        self._due += messages / self._rate
