"""The broker for one stream: a connection that is opened when it is asked for, and another after it broke."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from coldstream.format.chunk import Chunk
from coldstream.live.address import BrokerAddress
from coldstream.live.connection import LiveConnection
from coldstream.live.subscription import Subscription
from coldstream.manifest.spec import FIRST, OffsetSpec
from coldstream.units import Offset

PROBE_TIMEOUT_S = 3.0
"""For a chunk that is there. What takes longer is not: a broker sends it on the heels of its answer."""

CLOSE_TIMEOUT_S = 0.3
"""For goodbyes; after that the connection is broken off."""


class ReconnectingBroker:
    """Implements `Broker`, and stores offsets. Close it; used after that, it opens a connection again."""

    def __init__(self, address: BrokerAddress, vhost: str, *, name: str) -> None:
        self._address = address
        self._vhost = vhost
        self._name = name
        self._connection: LiveConnection | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def subscribe(self, stream: str, spec: OffsetSpec) -> AsyncIterator[Subscription]:
        """Subscribe over the connection."""
        async with (await self._opened()).subscribe(stream, spec) as subscription:
            yield subscription

    async def probe(self, stream: str, spec: OffsetSpec) -> Chunk | None:
        """Ask by a subscription with one credit."""
        return await (await self._opened()).probe(stream, spec, timeout_s=PROBE_TIMEOUT_S)

    async def first_offset(self, stream: str) -> Offset | None:
        """Ask by a subscription with one credit, to chunks of every type."""
        connection = await self._opened()
        first = await connection.probe(stream, FIRST, timeout_s=PROBE_TIMEOUT_S, every_chunk=True)
        return None if first is None else Offset(first.header.chunk_id)

    async def query_offset(self, stream: str, reference: str) -> Offset | None:
        """Ask for a stored offset."""
        return await (await self._opened()).query_offset(stream, reference)

    async def store_offset(self, stream: str, reference: str, offset: Offset) -> None:
        """Store an offset; return when the broker has it."""
        await (await self._opened()).store_offset(stream, reference, offset)

    async def partitions(self, super_stream: str) -> tuple[str, ...]:
        """Return the streams of a super stream, in their order."""
        return await (await self._opened()).partitions(super_stream)

    async def renew(self) -> None:
        """Close the connection; the next one is tried at the next host first, for not every host has every stream."""
        first, *others = self._address.hosts
        self._address = replace(self._address, hosts=(*others, first))
        await self.close()

    async def close(self) -> None:
        """Close the connection, if one is open. Takes less than a second, also when the broker hangs."""
        if (connection := self._connection) is not None:
            self._connection = None
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await connection.__aexit__(None, None, None)

    async def _opened(self) -> LiveConnection:
        async with self._opening:
            if self._connection is not None and self._connection.is_lost:
                await self.close()
            if self._connection is None:
                connection = LiveConnection(self._address, self._vhost, name=self._name)
                await connection.__aenter__()
                self._connection = connection
            return self._connection
