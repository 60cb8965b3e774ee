"""How connections are let go at the end.

Their clients are told to go one after the other over half of the time that there is, so that not all of them connect
elsewhere at once: the first at once, the last in the middle. They go by themselves then, each in its own time. What is
left at the end is cut off by whoever closes the server.
"""

from __future__ import annotations

import asyncio
import logging

from coldstream.gateway.process.served import Served

STEP_S = 0.1
_LOG = logging.getLogger(__name__)


def goodbyes_due(connections: int, passed_s: float, drain_s: float) -> int:
    """Return how many of the connections that there were at first should have been told by now."""
    spread_s = drain_s / 2
    return connections if passed_s >= spread_s else min(connections, 1 + int(connections * passed_s / spread_s))


async def drain(served: Served, drain_s: float) -> None:
    """Take no connection any more, and wait until those that are open have gone, for `drain_s` at most."""
    loop = asyncio.get_running_loop()
    served.stop_listening()
    began, at_first, told = loop.time(), served.open_connections, 0
    _LOG.info("draining", extra={"connections": at_first})
    while (left := served.open_connections) and (passed_s := loop.time() - began) < drain_s:
        # Counted by who was told, not by who has gone: of those, some take seconds, and others would be told for them.
        due = goodbyes_due(at_first, passed_s, drain_s)
        # Some were still at their TLS handshake when it began: at last, everybody is told.
        count = due - told if due < at_first else left
        if count > 0:
            served.close_some(count)
            told += count
        await asyncio.sleep(STEP_S)
    if left:
        _LOG.warning("connections are cut off", extra={"connections": left})
