"""The names that the broker's management API knows, asked for now and then."""

from __future__ import annotations

import asyncio

from coldstream.agent.management import BrokerStream, ManagementClient

REFRESH_S = 10.0


class Naming:
    """Lists the broker's streams; nothing without a management API."""

    def __init__(self, client: ManagementClient | None) -> None:
        self._client = client
        self._known: tuple[BrokerStream, ...] = ()
        self._asked_at: float | None = None
        self._asking = asyncio.Lock()

    async def known(self) -> tuple[BrokerStream, ...]:
        """Return the streams as of a few seconds ago. Raises what the client raises."""
        if self._client is None:
            return ()
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if self._asked_at is None or now - self._asked_at > REFRESH_S:
                self._known = tuple(await asyncio.to_thread(self._client.streams))
                self._asked_at = now
        return self._known

    def retention(self, vhost: str, name: str) -> BrokerStream | None:
        """Return what was last known of a stream, without asking."""
        return next((stream for stream in self._known if (stream.vhost, stream.name) == (vhost, name)), None)
