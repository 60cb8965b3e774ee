"""Trying again: how long to wait, and when to say so."""

from __future__ import annotations

import asyncio
import logging
import random

from coldstream.errors import ColdstreamError

log = logging.getLogger(__name__)

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 10.0


class RetryLog:
    """Something that is away. Its going and its coming back are logged, once each.

    Delays double, and each is shortened by chance, so that many do not come back at once.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_on = False
        self._delay_s = FIRST_DELAY_S

    async def pause(self, error: ColdstreamError) -> None:
        """Wait after a failure."""
        if not self._is_on:
            self._is_on = True
            log.warning("%s: %s; trying again", self._what, error)
        await asyncio.sleep(self._delay_s * random.uniform(0.5, 1))  # noqa: S311  jitter, not a secret
        self._delay_s = min(2 * self._delay_s, MAX_DELAY_S)

    def over(self) -> None:
        """Take it that it is there."""
        if self._is_on:
            self._is_on = False
            log.info("%s: it is back", self._what)
        self._delay_s = FIRST_DELAY_S
