"""An archive in memory, whose objects a server gives that can stall, cut and corrupt; `GatewayHistory` reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from coldstream.gateway.history.gateway_history import GatewayHistory
from tests.support.archive import ChunkArchive, steady
from tests.support.http_archive import HttpObjects, ObjectServer, object_server

T = TypeVar("T")

FRAGMENTS, CHUNKS, RECORDS = 6, 20, 5
TAIL = FRAGMENTS * CHUNKS * RECORDS


class ServedHistory:
    """An archive and the server of its objects. Set `server.faults` to have GETs go wrong."""

    def __init__(self, archive: ChunkArchive, server: ObjectServer) -> None:
        self.archive = archive
        self.server = server
        self.budget_bytes = 64 << 20
        self.read_timeout_s = 5.0
        self.attempts = 3

    def run(self, scenario: Callable[[GatewayHistory], Awaitable[T]]) -> T:
        """Run a scenario on a history of its own, and close that."""

        async def main() -> T:
            history = GatewayHistory(
                self.archive.table,
                self.archive.objects,
                budget_bytes=self.budget_bytes,
                read_timeout_s=self.read_timeout_s,
                attempts=self.attempts,
            )
            try:
                async with asyncio.timeout(60):
                    return await scenario(history)
            finally:
                await history.close()

        return asyncio.run(main())


@contextmanager
def served_history() -> Iterator[ServedHistory]:
    """An archive of six fragments of twenty chunks, each of five messages; a chunk a second."""
    objects = HttpObjects()
    archive = ChunkArchive(objects=objects)
    for number in range(FRAGMENTS):
        first = number * CHUNKS
        archive.add(first * RECORDS, steady(RECORDS, *(1000 * (first + one) for one in range(CHUNKS))))
    with object_server(objects) as server:
        yield ServedHistory(archive, server)
