"""Trying again: what may pass is waited for, as long as there is hope."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from coldstream.errors import AccessDeniedError, UnavailableError

log = logging.getLogger(__name__)

MAX_STALL_S = 120.0
"""For a broker that does not answer, or refuses for a while, without anything confirmed meanwhile."""

_FIRST_DELAY_S = 0.2
_MAX_DELAY_S = 10.0


async def retry_while_progressing(once: Callable[[], Awaitable[None]], place: Callable[[], int], what: str) -> None:
    """Run `once` until it ends without an UnavailableError, for up to PATIENCE_S in which `place` does not rise.

    Waits between 0.1 and 10 s, jittered and longer each time. Raises what `once` raises, AccessDeniedError at once.
    """
    delay_s, deadline, reached = _FIRST_DELAY_S, time.monotonic() + MAX_STALL_S, place()
    while True:
        try:
            await once()
        except AccessDeniedError:
            raise
        except UnavailableError as err:
            now = time.monotonic()
            if place() > reached:
                delay_s, deadline, reached = _FIRST_DELAY_S, now + MAX_STALL_S, place()
            if now > deadline:
                raise
            log.warning("%s: %s; trying again", what, err)
            await asyncio.sleep(random.uniform(delay_s / 2, delay_s))  # noqa: S311  jitter, not a secret
            delay_s = min(2 * delay_s, _MAX_DELAY_S)
        else:
            return
