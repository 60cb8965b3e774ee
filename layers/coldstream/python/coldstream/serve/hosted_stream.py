"""`HostedStream`: one stream that this process serves, with all that requests to it share."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from coldstream.serve.protocol.producer import ProducerRequest, ProducerState
from coldstream.serve.side_state import SideState
from coldstream.serve.stream_terms import StreamTerms
from coldstream.streams import DirectStream
from coldstream.units import Offset, TimestampMs

MAX_PRODUCERS = 255
"""Producers of a stream in memory: as many as the stream itself remembers."""


@dataclass(slots=True)
class LastAppend:
    """A producer's last request that was accepted; `acknowledged` is done when the stream has it for good."""

    state: ProducerState
    acknowledged: asyncio.Future[Offset] | None = None


@dataclass(slots=True, eq=False)
class HostedStream:
    """A stream that is open here. `users` are the requests that are under way; it is not closed under them.

    `lock` makes the check of a request and the beginning of its append one step. `is_snapshot` says that it is only
    read here: `handle` is a snapshot that is replaced when it is old. `is_lost` says that another server has taken it
    over, that an append failed, or that it is gone: the next request opens it again. It may have been used, elsewhere
    or before, for `unnoted_ms` after `used`.
    """

    name: str
    handle: DirectStream
    terms: StreamTerms
    side: SideState
    used: TimestampMs
    noted_used: TimestampMs | None = None
    unnoted_ms: int = 0
    checked_at: float = 0.0
    is_snapshot: bool = False
    is_deleted: bool = False
    is_lost: bool = False
    users: int = 0
    released_at: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    last_seq: bytes | None = None
    knows_seq: bool = False
    kept_seq: bytes | None = None
    seq_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _producers: dict[str, LastAppend] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def news(self) -> asyncio.Event:
        """An event that is set when anything changes from now on. Take it before looking, and wait for it after."""
        return self._news

    def announce(self) -> None:
        """Wake all live readers."""
        self._news.set()
        self._news = asyncio.Event()

    @property
    def is_archived(self) -> bool:
        """Whether it is a broker's stream, which can only be read."""
        return self.handle.is_brokers

    def is_old_snapshot(self, than_s: float) -> bool:
        """Whether it is a snapshot that was taken so many seconds ago, or longer."""
        return self.is_snapshot and time.monotonic() - self.checked_at >= than_s

    @property
    def is_closed(self) -> bool:
        """Whether nothing will ever be appended any more."""
        return not self.is_archived and self.handle.is_sealed

    @property
    def start(self) -> Offset:
        """The first offset that the stream itself has; a fork's source has those below."""
        return self.handle.start

    @property
    def tail(self) -> Offset:
        """The offset after the last one that can be read."""
        return self.handle.confirmed

    async def last_of(self, producer: ProducerRequest) -> LastAppend | None:
        """Return what the stream has of a producer, also what is just being appended. Call it with the lock held."""
        known = self._producers.get(producer.publisher)
        if known is None:
            publishing_id = await self.handle.publisher_id(producer.publisher)
            if publishing_id is None:
                return None
            known = LastAppend(ProducerState.of_publishing_id(publishing_id))
            self.remember(producer, known)
        return known

    def remember(self, producer: ProducerRequest, last: LastAppend) -> None:
        """Take a request of a producer as its last."""
        self._producers.pop(producer.publisher, None)
        self._producers[producer.publisher] = last
        while len(self._producers) > MAX_PRODUCERS:
            # The oldest: whether it is known after that, the stream says.
            del self._producers[next(iter(self._producers))]

    async def keep_seq(self, seq: bytes) -> None:
        """Note the Stream-Seq of an acknowledged append, unless a later one is noted. Cost: a PutItem at most."""
        async with self.seq_lock:
            if self.kept_seq is None or seq > self.kept_seq:
                await self.side.keep_seq(seq)
                self.kept_seq = seq

    def lose(self) -> None:
        """Serve it no more by this handle."""
        self.is_lost = True
        self.announce()
