"""A broker for one stream, over a connection that it shares with others, and takes anew after it broke."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coldstream.consumer.connection_pool import ConnectionPool, SharedConnection
from coldstream.format.chunk import Chunk
from coldstream.live.connection import LiveConnection
from coldstream.live.subscription import Subscription
from coldstream.manifest.spec import FIRST, OffsetSpec
from coldstream.units import Offset

PROBE_TIMEOUT_S = 3.0
"""Bound on the wait for a chunk that exists: brokers send it right after the answer. After that, none exists."""

LIVE_CHUNKS = 10
"""Chunks of a stream that wait here at most."""


class ReconnectingBroker:
    """Implements `BrokerSource`, and stores offsets. The pool closes the connection."""

    def __init__(self, pool: ConnectionPool, *, chunks: int = LIVE_CHUNKS) -> None:
        self._pool = pool
        self._chunks = chunks
        self._shared: SharedConnection | None = None
        self._seeks_member = False
        # Reading and storing offsets may call at once; without the lock each would join a connection, and one of them
        # would never be left.
        self._joining = asyncio.Lock()

    @asynccontextmanager
    async def subscribe(self, stream: str, spec: OffsetSpec) -> AsyncIterator[Subscription]:
        """Return the chunks from where `spec` attaches."""
        connection = await self._opened(stream)
        async with connection.subscribe(stream, spec, credits=self._chunks) as subscription:
            yield subscription

    async def probe(self, stream: str, spec: OffsetSpec) -> Chunk | None:
        """Return the first user chunk for a spec, by a subscription with one credit; None if none comes soon."""
        return await (await self._opened(stream)).probe(stream, spec, timeout_s=PROBE_TIMEOUT_S)

    async def first_offset(self, stream: str) -> Offset | None:
        """Return the first offset, by a subscription with one credit to chunks of every type."""
        connection = await self._opened(stream)
        first = await connection.probe(stream, FIRST, timeout_s=PROBE_TIMEOUT_S, every_chunk=True)
        return None if first is None else Offset(first.header.chunk_id)

    async def query_offset(self, stream: str, reference: str) -> Offset | None:
        """Return the offset stored under a consumer's name, or None if there is none."""
        return await (await self._opened(stream)).query_offset(stream, reference)

    async def store_offset(self, stream: str, reference: str, offset: Offset) -> None:
        """Store an offset; return once the broker has it."""
        await (await self._opened(stream)).store_offset(stream, reference, offset)

    async def partitions(self, super_stream: str) -> tuple[str, ...]:
        """Return the streams of a super stream, in their order."""
        return await (await self._opened(None)).partitions(super_stream)

    async def renew(self) -> None:
        """Leave the connection, and let the next one be to a node that has the stream, or else to the next host."""
        # Only now: most brokers have every stream on every node, and asking costs a round trip.
        sought, self._seeks_member = self._seeks_member, True
        await self._leave(is_suspect=sought)

    async def _leave(self, *, is_suspect: bool) -> None:
        # Before the await: a task that joins meanwhile must not be taken for one that is still on the old one.
        shared, self._shared = self._shared, None
        if shared is not None:
            await self._pool.leave(shared, is_suspect=is_suspect)

    async def _opened(self, stream: str | None) -> LiveConnection:
        async with self._joining:
            if self._shared is not None and self._shared.live.is_lost:
                await self._leave(is_suspect=True)
            if self._shared is None:
                self._shared = await self._pool.join(stream, seeks_member=self._seeks_member)
            return self._shared.live
