"""The names that the broker's management API knows, asked for now and then."""

from __future__ import annotations

import asyncio

from coldstream.agent.proof.management import BrokerStream, ManagementClient
from coldstream.errors import ColdstreamError

REFRESH_S = 10.0
RETRY_S = 2.0
"""After a failure nobody asks again for so long, but is told of it: many streams ask, one after another."""


REST_S = 1.0
SHARE = 10
"""A list is asked for again after a while, and after so many times what the last one took, whoever waits for it."""


class StreamListing:
    """Lists the broker's streams; nothing without a management API."""

    def __init__(self, client: ManagementClient | None) -> None:
        self._client = client
        self._known: tuple[BrokerStream, ...] = ()
        self._asked_at: float | None = None
        self._rested_at = 0.0
        self._failed: tuple[float, ColdstreamError] | None = None
        self._asking = asyncio.Lock()

    @property
    def is_available(self) -> bool:
        """Whether there is a management API to ask."""
        return self._client is not None

    async def known(self) -> tuple[BrokerStream, ...]:
        """Return the streams as of a few seconds ago. Raises what the client raises."""
        return await self.known_since(asyncio.get_running_loop().time() - REFRESH_S)

    async def known_since(self, since: float) -> tuple[BrokerStream, ...]:
        """Return the streams as of a moment of the event loop's clock, or later. Raises what the client raises."""
        if self._client is None:
            return ()
        while True:
            async with self._asking:
                if self._asked_at is not None and self._asked_at >= since:
                    return self._known
                now = asyncio.get_running_loop().time()
                if self._failed is not None and now - self._failed[0] < RETRY_S:
                    raise self._failed[1]
                if now >= self._rested_at:
                    await self._ask(self._client, now)
                    return self._known
            await asyncio.sleep(self._rested_at - now)

    async def _ask(self, client: ManagementClient, now: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._known = tuple(await asyncio.to_thread(client.streams))
        except ColdstreamError as err:
            self._failed = (loop.time(), err)
            raise
        self._failed = None
        self._asked_at = now
        self._rested_at = loop.time() + max(REST_S, SHARE * (loop.time() - now))

    def retention(self, vhost: str, name: str) -> BrokerStream | None:
        """Return what was last known of a stream, without asking."""
        return next((stream for stream in self._known if (stream.vhost, stream.name) == (vhost, name)), None)
