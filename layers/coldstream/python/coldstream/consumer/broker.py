"""A broker for one stream, by a connection that opens on demand and again after it broke."""

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
"""Bound on the wait for a chunk that exists: brokers send it right after the answer. After that, none exists."""

CLOSE_TIMEOUT_S = 0.3
"""Bound on the protocol's goodbyes. After that the connection is cut."""


class ReconnectingBroker:
    """Implements `BrokerSource`, and stores offsets. Any call after `close` opens a connection again."""

    def __init__(self, address: BrokerAddress, vhost: str, *, name: str) -> None:
        self._address = address
        self._vhost = vhost
        self._name = name
        self._connection: LiveConnection | None = None
        # Reading and storing offsets may call at once; without the lock each would open a connection, and the one that
        # is overwritten would never be closed.
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def subscribe(self, stream: str, spec: OffsetSpec) -> AsyncIterator[Subscription]:
        """Return the chunks from where `spec` attaches."""
        async with (await self._opened()).subscribe(stream, spec) as subscription:
            yield subscription

    async def probe(self, stream: str, spec: OffsetSpec) -> Chunk | None:
        """Return the first user chunk for a spec, by a subscription with one credit; None if none comes soon."""
        return await (await self._opened()).probe(stream, spec, timeout_s=PROBE_TIMEOUT_S)

    async def first_offset(self, stream: str) -> Offset | None:
        """Return the first offset, by a subscription with one credit to chunks of every type."""
        connection = await self._opened()
        first = await connection.probe(stream, FIRST, timeout_s=PROBE_TIMEOUT_S, every_chunk=True)
        return None if first is None else Offset(first.header.chunk_id)

    async def query_offset(self, stream: str, reference: str) -> Offset | None:
        """Return the offset stored under a consumer's name, or None if there is none."""
        return await (await self._opened()).query_offset(stream, reference)

    async def store_offset(self, stream: str, reference: str, offset: Offset) -> None:
        """Store an offset; return once the broker has it."""
        await (await self._opened()).store_offset(stream, reference, offset)

    async def partitions(self, super_stream: str) -> tuple[str, ...]:
        """Return the streams of a super stream, in their order."""
        return await (await self._opened()).partitions(super_stream)

    async def renew(self) -> None:
        """Close the connection, and let the next one try the next host first: not every host has every stream."""
        # Before the await in `close`: a task that opens a connection meanwhile must not try the same host again.
        first, *others = self._address.hosts
        self._address = replace(self._address, hosts=(*others, first))
        await self.close()

    async def close(self) -> None:
        """Close the connection, if one is open. Takes less than a second, even if the broker hangs."""
        # Without the lock: whoever holds it may be opening a connection to a broker that hangs, and closing cannot wait
        # for that.
        if (connection := self._connection) is not None:
            # Forget it before the first await: whoever calls meanwhile must not get a connection that is closing.
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
                # Set it only now: a connection that failed to open, or whose opening was cancelled, is not kept.
                self._connection = connection
            return self._connection
