"""`StreamSnapshots`: direct streams as they are at a moment. All who read without appending share the newest."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from coldstream.gateway.alone.open_direct import Names
from coldstream.streams import DirectStream, OpenMode, StreamClient

_MAX_SNAPSHOTS = 1024


@dataclass(slots=True)
class _Snapshot:
    handle: DirectStream
    taken_at: float


class StreamSnapshots:
    """The newest snapshots. For one event loop."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._kept: dict[Names, _Snapshot] = {}
        self._looks: dict[Names, asyncio.Task[DirectStream]] = {}

    async def look(self, names: Names, within_s: float) -> DirectStream:
        """Return a snapshot that is not older than `within_s`. Raises StreamNotFoundError."""
        known = self._kept.get(names)
        if known is not None and time.monotonic() - known.taken_at < within_s:
            return known.handle
        # One look for all who wait for it.
        task = self._looks.get(names)
        if task is None:
            task = self._looks[names] = asyncio.create_task(self._take(names))
            task.add_done_callback(lambda done: self._taken(names, done))
        return await asyncio.shield(task)

    async def fresh(self, names: Names) -> DirectStream:
        """Return a snapshot as of now, for who asks alone. Raises StreamNotFoundError."""
        return await self._client.open_stream(names[1], vhost=names[0], mode=OpenMode.SNAPSHOT)

    def forget(self, names: Names) -> None:
        """Use no snapshot any more that was taken before."""
        self._kept.pop(names, None)

    def drop(self, handle: DirectStream) -> None:
        """Use a handle no more that is closed."""
        for names, snapshot in tuple(self._kept.items()):
            if snapshot.handle is handle:
                del self._kept[names]

    async def close(self) -> None:
        """End the looks that are under way."""
        looks = tuple(self._looks.values())
        for task in looks:
            task.cancel()
        await asyncio.gather(*looks, return_exceptions=True)

    async def _take(self, names: Names) -> DirectStream:
        taken_at = time.monotonic()
        handle = await self.fresh(names)
        self._kept.pop(names, None)
        self._kept[names] = _Snapshot(handle, taken_at)
        while len(self._kept) > _MAX_SNAPSHOTS:
            del self._kept[next(iter(self._kept))]
        return handle

    def _taken(self, names: Names, done: asyncio.Task[DirectStream]) -> None:
        self._looks.pop(names, None)
        if not done.cancelled() and done.exception() is not None:
            self._kept.pop(names, None)
