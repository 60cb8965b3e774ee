"""The nodes as consumers have them: one at a time, which is lost, or sends its consumer to another."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coldstream.errors import UnavailableError
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.manifest.spec import OffsetSpec
from coldstream.units import Offset
from tests.simulation.cluster import ClusterReplica, ReplicatedStream, delivered

LOOK_S = 20.0
"""How long a node lets a consumer wait that has all of it."""

MOVED = 0.1
"""How often a node is lost just as it is asked where its log begins, and the next one answers."""


class NodeFeed:
    """The chunks that one node delivers, until it is down, or the consumer is sent to another node.

    `first_here` is where the node's log began as it delivered the first one.
    """

    def __init__(self, replica: ClusterReplica, at: int) -> None:
        self._replica = replica
        self._at = at
        self.first_here: Offset | None = None
        self.next_offset = Offset(0)
        self.is_left = False

    @property
    def is_over(self) -> bool:
        return self._replica.is_down or self.is_left

    def __aiter__(self) -> NodeFeed:
        return self

    async def __anext__(self) -> Chunk:
        while True:
            if self.is_over:
                raise UnavailableError("the connection is lost")
            here = self._replica.confirmed
            self._at = max(self._at, here.start)  # in silence, as the broker does
            while self._at < here.stop:
                chunk = self._replica.log[self._at]
                self._at += 1
                if chunk.header.type is ChunkType.USER:
                    if self.first_here is None:
                        self.first_here = first_user_chunk(self._replica)
                    self.next_offset = Offset(chunk.header.next_offset)
                    return delivered(chunk)
            await asyncio.sleep(LOOK_S)


class NodeSource:
    """Implements `BrokerSource` by one node at a time, which `renew` changes.

    `begins_at` is what a node said last of where its log begins, `left_at` when the last feed ended, `stored` what the
    consumer has stored.
    """

    def __init__(self, stream: ReplicatedStream, rng: random.Random) -> None:
        self.begins_at: Offset | None = None
        self.stored: Offset | None = None
        self.left_at = time.monotonic()
        self._probed: Offset | None = None
        self._feed: NodeFeed | None = None
        self._stream = stream
        self._rng = rng
        self._replica = rng.choice(stream.replicas)
        self._feeds: list[NodeFeed] = []

    def begin(self, stored: Offset | None) -> None:
        """Serve a consumer that starts now: what a node delivered to an earlier life of it is nothing that it knows."""
        self.stored = stored
        self._feed = None

    @property
    def first_here(self) -> Offset | None:
        """Where the log of the node began that delivered last since the start, or if none has, that was asked last."""
        delivered_first = self._feed.first_here if self._feed is not None else None
        return self._probed if delivered_first is None else delivered_first

    def hop(self) -> None:
        """Lose the connection, and be sent to another node."""
        self._replica = self._rng.choice(self._stream.replicas)
        for feed in self._feeds:
            feed.is_left = True

    @asynccontextmanager
    async def subscribe(self, stream: str, spec: OffsetSpec) -> AsyncIterator[NodeFeed]:
        await self._answer()
        feed = NodeFeed(self._replica, self._replica.attach(spec))
        self._feed = feed
        self._feeds.append(feed)
        try:
            yield feed
        finally:
            self._feeds.remove(feed)
            self.left_at = time.monotonic()

    async def probe(self, stream: str, spec: OffsetSpec) -> Chunk | None:
        await self._answer()
        self._probed = first_user_chunk(self._replica)
        at, here = self._replica.attach(spec), self._replica.confirmed
        users = (one for one in self._replica.log[at : here.stop] if one.header.type is ChunkType.USER)
        found = next(users, None)
        return None if found is None else delivered(found)

    async def first_offset(self, stream: str) -> Offset | None:
        if self._rng.random() < MOVED:
            self.hop()
        await self._answer()
        here = self._replica.confirmed
        self.begins_at = Offset(self._replica.log[here.start].header.chunk_id) if here else None
        return self.begins_at

    async def query_offset(self, stream: str, reference: str) -> Offset | None:
        await self._answer()
        return self.stored

    async def renew(self) -> None:
        self.hop()

    async def _answer(self) -> None:
        await asyncio.sleep(self._rng.uniform(0.001, 0.1))
        if self._replica.is_down:
            raise UnavailableError("no broker to connect to")


def first_user_chunk(replica: ClusterReplica) -> Offset | None:
    """Return where the first chunk begins that a node has and delivers."""
    here = replica.confirmed
    users = (one for one in replica.log[here.start : here.stop] if one.header.type is ChunkType.USER)
    first = next(users, None)
    return None if first is None else Offset(first.header.chunk_id)
