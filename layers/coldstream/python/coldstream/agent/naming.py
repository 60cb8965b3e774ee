"""The names that the broker's management API knows, asked for now and then."""

from __future__ import annotations

import asyncio

from coldstream.agent.management import BrokerStream, ManagementClient
from coldstream.errors import ColdstreamError

REFRESH_S = 10.0
RETRY_S = 2.0
"""After a failure nobody asks again for so long, but is told of it: many streams ask, one after another."""


class Naming:
    """Lists the broker's streams; nothing without a management API."""

    def __init__(self, client: ManagementClient | None) -> None:
        self._client = client
        self._known: tuple[BrokerStream, ...] = ()
        self._asked_at: float | None = None
        self._failed: tuple[float, ColdstreamError] | None = None
        self._asking = asyncio.Lock()

    async def known(self) -> tuple[BrokerStream, ...]:
        """Return the streams as of a few seconds ago. Raises what the client raises."""
        if self._client is None:
            return ()
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if self._failed is not None and now - self._failed[0] < RETRY_S:
                raise self._failed[1]
            if self._asked_at is None or now - self._asked_at > REFRESH_S:
                try:
                    self._known = tuple(await asyncio.to_thread(self._client.streams))
                except ColdstreamError as err:
                    self._failed = (asyncio.get_running_loop().time(), err)
                    raise
                self._asked_at = now
        return self._known

    def retention(self, vhost: str, name: str) -> BrokerStream | None:
        """Return what was last known of a stream, without asking."""
        return next((stream for stream in self._known if (stream.vhost, stream.name) == (vhost, name)), None)
