"""Make followers, with the connections and the memory that they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from coldstream.consumer.archive import StreamArchive
from coldstream.consumer.archive_follower import ArchiveFollower
from coldstream.consumer.batch import Give
from coldstream.consumer.broker import LIVE_CHUNKS, ReconnectingBroker
from coldstream.consumer.connection_pool import ConnectionPool
from coldstream.consumer.follower import StreamFollower
from coldstream.errors import InvalidInputError, StreamNotFoundError
from coldstream.live.address import BrokerAddress
from coldstream.manifest.spec import OffsetSpec
from coldstream.manifest.stream import Incarnation, check_name
from coldstream.read.client import ResolverClient
from coldstream.read.fetch_pool import FetchPool
from coldstream.units import KIB, Offset

MIN_RANGE_BYTES = 256 * KIB
"""Ranges are not cut smaller, however many partitions share the memory."""

ALL_LIVE_CHUNKS = 640
"""Chunks of all streams that wait here at most, unless there are more than half as many streams."""

MIN_LIVE_CHUNKS = 2
"""Of one stream: with one alone, each chunk would cost a round trip."""


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """What all followers of a consumer have in common. `Consumer` documents it."""

    vhost: str
    name: str | None
    on_gap: Literal["raise", "skip"]
    archive_wait_s: float
    connections: int
    prefetch_bytes: int
    range_bytes: int

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name("consumer name", self.name)
        if self.connections < 1:
            raise ValueError(f"a consumer needs at least one connection, got {self.connections}")
        if self.on_gap not in ("raise", "skip"):
            raise ValueError(f"on_gap is 'raise' or 'skip', got {self.on_gap!r}")


class FollowerMaker:
    """Makes followers, of which `sharing` share connections, threads and memory, and keeps the brokers by stream."""

    def __init__(self, stream: str, client: ResolverClient, address: BrokerAddress, options: FollowOptions) -> None:
        self._client = client
        self._options = options
        self._fetch_pool = FetchPool(options.connections)
        self._pool = ConnectionPool(address, options.vhost, name=f"coldstream consumer {stream}")
        self.brokers: dict[str, ReconnectingBroker] = {}
        self.sharing = 1

    def stream(
        self,
        stream: str,
        start: OffsetSpec,
        give: Give,
        *,
        incarnation: Incarnation | None = None,
        fixes_start: bool = False,
        on_away: Callable[[], None] | None = None,
    ) -> StreamFollower:
        """Return a follower of archive and broker."""
        return StreamFollower(
            stream,
            start,
            broker=self.broker(stream),
            archive=self._archive(stream),
            give=give,
            reference=self._options.name,
            on_gap=self._options.on_gap,
            archive_wait_s=self._options.archive_wait_s,
            incarnation=incarnation,
            fixes_start=fixes_start,
            on_away=on_away,
        )

    def archived(
        self,
        stream: str,
        start: OffsetSpec,
        give: Give,
        *,
        incarnation: Incarnation | None,
        is_over: bool,
        end: Offset | None,
    ) -> ArchiveFollower:
        """Return a follower of the archive alone."""
        return ArchiveFollower(
            stream,
            start,
            incarnation,
            archive=self._archive(stream),
            give=give,
            is_over=is_over,
            end=end,
            on_gap=self._options.on_gap,
            archive_wait_s=self._options.archive_wait_s,
        )

    def broker(self, stream: str) -> ReconnectingBroker:
        """Return the broker for a stream."""
        if stream not in self.brokers:
            chunks = min(LIVE_CHUNKS, max(MIN_LIVE_CHUNKS, ALL_LIVE_CHUNKS // self.sharing))
            self.brokers[stream] = ReconnectingBroker(self._pool, chunks=chunks)
        return self.brokers[stream]

    async def store_offset(self, stream: str, offset: Offset) -> None:
        """Store an offset at the broker. StreamNotFoundError: the stream is only in the archive."""
        if self._options.name is None:
            raise InvalidInputError("name", "offsets are stored under a consumer's name, and this consumer has none")
        if stream not in self.brokers:
            raise StreamNotFoundError(f"{stream!r} is read from the archive alone: the broker stores no offset of it")
        await self.brokers[stream].store_offset(stream, self._options.name, offset)

    def drop_broker(self, stream: str) -> None:
        """Forget the broker of a name that is no stream. Its connection is kept for others."""
        self.brokers.pop(stream, None)

    async def close(self) -> None:
        """End all fetching, and close the connections to the broker. Takes less than a second."""
        self._fetch_pool.close()
        await self._pool.close()

    def _archive(self, stream: str) -> StreamArchive:
        options = self._options
        prefetch_bytes = max(1, options.prefetch_bytes // self.sharing)
        # One range is fetched whatever the bound says, so that with many partitions it is the ranges that count.
        range_bytes = options.range_bytes
        if self.sharing > 1:
            range_bytes = min(range_bytes, max(MIN_RANGE_BYTES, prefetch_bytes))
        return StreamArchive(
            self._client,
            options.vhost,
            stream,
            pool=self._fetch_pool,
            prefetch_bytes=prefetch_bytes,
            range_bytes=range_bytes,
        )
