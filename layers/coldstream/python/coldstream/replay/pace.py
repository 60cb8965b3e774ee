"""A rate that is kept to: so many messages a second."""

from __future__ import annotations

import asyncio
import time


class Pace:
    """Lets messages pass at a rate, None as fast as they come. What was not used for a second is lost."""

    def __init__(self, messages_per_s: float | None) -> None:
        if messages_per_s is not None and messages_per_s <= 0:
            raise ValueError(f"a rate needs more than 0 messages a second, got {messages_per_s}")
        self._rate = messages_per_s
        self._due = time.monotonic()

    async def wait(self, messages: int) -> None:
        """Wait until so many more may pass: until those before them have had their time."""
        if self._rate is None:
            return
        now = time.monotonic()
        self._due = max(self._due, now - 1)
        if self._due > now:
            await asyncio.sleep(self._due - now)
        self._due += messages / self._rate
