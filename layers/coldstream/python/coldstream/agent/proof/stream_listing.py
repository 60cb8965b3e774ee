"""The broker's streams as its management API lists them, shared by all who ask."""

from __future__ import annotations

import asyncio

from coldstream.agent.proof.management import BrokerStream, ManagementClient
from coldstream.errors import ColdstreamError

REFRESH_S = 10.0
RETRY_S = 2.0
"""After a failure. Until then it is raised again: thousands of archivers ask, one after another."""

REST_S = 1.0
REST_FACTOR = 10
"""The API rests between two lists for REST_S, and for so many times as long as the last list took."""


class StreamListing:
    """Lists the broker's streams; none without a management API."""

    def __init__(self, client: ManagementClient | None) -> None:
        self._client = client
        self._known: tuple[BrokerStream, ...] = ()
        self._listed_at: float | None = None  # when the request for `_known` began
        self._rested_at = 0.0
        self._failed: tuple[float, ColdstreamError] | None = None
        self._turn = asyncio.Lock()

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
            # Under the lock, so that whoever waited for a list that began late enough for it takes that one.
            async with self._turn:
                if self._listed_at is not None and self._listed_at >= since:
                    return self._known
                now = asyncio.get_running_loop().time()
                if self._failed is not None and now - self._failed[0] < RETRY_S:
                    raise self._failed[1]
                if now >= self._rested_at:
                    await self._list(self._client, now)
                    return self._known
            # Outside of the lock: others may be content with the list that is there.
            await asyncio.sleep(self._rested_at - now)

    async def _list(self, client: ManagementClient, now: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._known = tuple(await asyncio.to_thread(client.streams))
        except ColdstreamError as err:
            self._failed = (loop.time(), err)
            raise
        self._failed = None
        # From before the request: a stream that was declared while it ran may be missing from it.
        self._listed_at = now
        self._rested_at = loop.time() + max(REST_S, REST_FACTOR * (loop.time() - now))
