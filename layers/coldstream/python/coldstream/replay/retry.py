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
_LOOK_EVERY_S = 0.5
"""How often a pause looks whether to stop."""


async def retry_while_progressing(
    attempt: Callable[[], Awaitable[None]],
    position: Callable[[], int],
    what: str,
    should_stop: Callable[[], bool] | None = None,
) -> None:
    """Await `attempt()` until it ends without an UnavailableError, at most MAX_STALL_S after `position()` last rose.

    Waits from 0.1 up to 10 s between attempts, each time longer, until there is progress. Returns early, between two
    attempts, once `should_stop` is true. Raises what `attempt` raises, AccessDeniedError at once.
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
            if not await _pause(backoff.next_delay_s(), should_stop):
                return
        else:
            return


async def _pause(delay_s: float, should_stop: Callable[[], bool] | None) -> bool:
    """Wait; return False once `should_stop` is true."""
    if should_stop is None:
        await asyncio.sleep(delay_s)
        return True
    until = time.monotonic() + delay_s
    while not (stops := should_stop()) and (left_s := until - time.monotonic()) > 0:  # noqa: ASYNC110  another thread
        await asyncio.sleep(min(left_s, _LOOK_EVERY_S))
    return not stops
