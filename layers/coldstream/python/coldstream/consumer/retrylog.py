"""Retries of something that is away: the pauses between them, and one log message per outage."""

from __future__ import annotations

import asyncio
import logging

from coldstream.errors import ColdstreamError
from coldstream.retry import Backoff

log = logging.getLogger(__name__)

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 10.0


class RetryLog:
    """Paces the retries of one thing, and logs once when it goes away and once when it is back.

    One message per outage, not per retry: a broker may be away for days.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_away = False
        self._backoff = Backoff(FIRST_DELAY_S, MAX_DELAY_S)

    async def pause(self, error: ColdstreamError) -> None:
        """Wait before the next attempt, after one that failed with `error`."""
        if not self._is_away:
            self._is_away = True
            log.warning("%s: %s; trying again", self._what, error)
        await asyncio.sleep(self._backoff.next_delay_s())

    def recovered(self) -> None:
        """Record that an attempt succeeded: the next outage starts with the shortest delay and is logged."""
        if self._is_away:
            self._is_away = False
            log.info("%s: it is back", self._what)
        self._backoff.reset()
