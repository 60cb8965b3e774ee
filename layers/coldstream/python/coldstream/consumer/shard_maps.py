"""The map of a logical name, as the resolver has it, for an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coldstream.consumer.retrylog import RetryLog
from coldstream.errors import UnavailableError
from coldstream.manifest.shard_map import ShardMap
from coldstream.read.threads import FetchThreads


class ShardMapSource:
    """Asks for the map in a thread of its own, which `close` gives up even if the resolver hangs."""

    def __init__(self, name: str, look_up: Callable[[], ShardMap | None]) -> None:
        self._name = name
        self._look_up = look_up
        self._threads: FetchThreads | None = None

    async def ask(self) -> ShardMap | None:
        """Ask once; None if the name is no logical one. Raises UnavailableError, AccessDeniedError."""
        self._threads = self._threads or FetchThreads(1)
        return await asyncio.wrap_future(self._threads.submit(self._look_up))

    async def wait(self, seconds: float) -> ShardMap | None:
        """Ask until the resolver answers, for so many seconds at most. Raises as `ask`."""
        clock = asyncio.get_running_loop().time
        retry_log = RetryLog(f"the map of {self._name!r} at the resolver")
        until = clock() + seconds
        while True:
            try:
                found = await self.ask()
            except UnavailableError as err:
                if not err.retryable or clock() >= until:
                    raise
                await retry_log.pause(err)
            else:
                retry_log.recovered()
                return found

    def close(self) -> None:
        """Release whoever waits for an answer."""
        if self._threads is not None:
            self._threads.shutdown()
