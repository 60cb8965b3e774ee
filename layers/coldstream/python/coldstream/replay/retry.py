"""Retries of a long call: it is tried again for as long as it makes progress."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from coldstream.errors import AccessDeniedError, UnavailableError
from coldstream.retry import Backoff

log = logging.getLogger(__name__)

MAX_STALL_S = 120.0
"""How long a broker may fail to answer, or refuse, with nothing confirmed in between."""

_FIRST_DELAY_S = 0.2
_MAX_DELAY_S = 10.0


async def retry_while_progressing(
    attempt: Callable[[], Awaitable[None]], position: Callable[[], int], what: str
) -> None:
    """Await `attempt()` until it ends without an UnavailableError, at most MAX_STALL_S after `position()` last rose.

    Waits from 0.1 up to 10 s between attempts, each time longer, until there is progress. Raises what `attempt` raises,
    AccessDeniedError at once.
    """
    backoff = Backoff(_FIRST_DELAY_S, _MAX_DELAY_S)
    deadline, reached = time.monotonic() + MAX_STALL_S, position()
    while True:
        try:
            await attempt()
        except AccessDeniedError:  # an UnavailableError, too, but waiting does not help
            raise
        except UnavailableError as err:
            now = time.monotonic()
            if position() > reached:
                backoff.reset()
                deadline, reached = now + MAX_STALL_S, position()
            if now > deadline:
                raise
            log.warning("%s: %s; trying again", what, err)
            await asyncio.sleep(backoff.next_delay_s())
        else:
            return
