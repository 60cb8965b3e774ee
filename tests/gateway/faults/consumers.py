"""Consumers that lose their connection again and again, and hold each of them against what was written.

A consumer takes up its reading at the offset that it has stored. Of each connection it checks that the chunks are those
of the log, byte for byte, in order and without a hole; of all of them together, that no message is missed.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from coldstream.format.chunk import ChunkHeader
from coldstream.gateway.frames.answers import ConsumerUpdate, OffsetAnswer
from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import (
    ConsumerUpdateAnswer,
    Credit,
    Heartbeat,
    QueryOffset,
    StoreOffset,
    Subscribe,
    Unsubscribe,
)
from coldstream.manifest.spec import FIRST, AtOffset, OffsetSpec
from coldstream.units import Offset
from tests.gateway.faults.model_log import ModelLog
from tests.gateway.faults.raw_client import ConnectionGoneError, RawClient, RefusedError, delivered

PEEK_S = 60.0
"""How long a consumer that waits for a chunk does so before it looks at its clock."""


class WrongDeliveryError(AssertionError):
    """A consumer was given something that it must not be given."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How a consumer lives. Times are means."""

    stays_s: float = 600
    away_s: float = 5
    chunk_s: float = 0.01
    """How long it takes for a chunk."""
    nap_rate: float = 0.002
    nap_s: float = 300
    """How often it stops for long, and for how long."""
    credit: int = 10
    store_every: int = 5
    """Chunks."""
    is_single: bool = False


@dataclass
class Progress:
    """What a consumer, or a group, has been given of a stream: everything up to `covered`."""

    log: ModelLog
    reference: str
    covered: int = 0
    stored: int | None = None
    """What was stored last, if a later request of the same connection was answered."""
    sessions: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    chunks: int = 0


class Consumer:
    """One consumer; or a member of a group, which shares its `progress`."""

    def __init__(self, port: int, stream: str, progress: Progress, habits: Habits, rng: random.Random) -> None:
        self.progress = progress
        self._port = port
        self._stream = stream
        self._habits = habits
        self._rng = rng
        self._hurry = asyncio.Event()
        self._next: int | None = None
        self._stored: int | None = None
        self._since_stored = 0

    @property
    def is_hurried(self) -> bool:
        """Whether it stays connected, and does not rest any more."""
        return self._hurry.is_set()

    def hurry(self) -> None:
        """Stay from now on, and do not rest."""
        self._hurry.set()

    async def _rest(self, seconds: float) -> None:
        """Rest; a second at most if it is hurried."""
        if self.is_hurried:
            await asyncio.sleep(1)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()

    async def live(self) -> None:
        """Connect and read, again and again, until this is cancelled."""
        while True:
            try:
                await self._session()
            except (ConnectionGoneError, TimeoutError, OSError) as err:
                self.progress.endings[type(err).__name__] += 1
            except RefusedError as err:
                self.progress.endings[str(err)] += 1
            await self._rest(self._rng.expovariate(1 / self._habits.away_s))

    async def _session(self) -> None:
        self.progress.sessions += 1
        self._stored = None
        async with RawClient(self._port, patience_s=90) as client:
            await client.login()
            until = asyncio.get_running_loop().time() + self._rng.expovariate(1 / self._habits.stays_s)
            subscription_id = self._rng.randrange(256)
            spec = await self._begin(client)
            self._next = None if self._habits.is_single else self._place(spec)
            properties = {"name": self.progress.reference} if self._habits.is_single else {}
            if self._habits.is_single:
                properties["single-active-consumer"] = "true"
            await client.ask(
                Subscribe(client.next_id(), subscription_id, self._stream, spec, self._habits.credit, properties)
            )
            while self.is_hurried or asyncio.get_running_loop().time() < until:
                await self._take(client, subscription_id)
            await self._leave(client, subscription_id)

    async def _begin(self, client: RawClient) -> OffsetSpec:
        client.send(QueryOffset(client.next_id(), self.progress.reference, self._stream))
        found = OffsetAnswer.from_body(await client.until(ANSWER | Key.QUERY_OFFSET))
        if found.code == Code.NO_OFFSET:
            if self.progress.stored is not None:
                raise WrongDeliveryError(f"{self.progress.reference}: its stored offset is forgotten")
            return FIRST
        if found.code != Code.OK:
            raise RefusedError(Key.QUERY_OFFSET, found.code)
        if found.offset >= self.progress.covered:
            raise WrongDeliveryError(f"{found.offset} was never stored: {self.progress.covered}")
        return AtOffset(Offset(found.offset + 1))

    def _place(self, spec: OffsetSpec) -> int:
        """Return from where the next chunk is to come."""
        return spec.offset if isinstance(spec, AtOffset) else 0

    async def _take(self, client: RawClient, subscription_id: int) -> None:
        body = client.passed.popleft() if client.passed else await self._next_body(client)
        key, _ = key_of(body) if body else (0, 0)
        if key == Key.DELIVER:
            self._check(*delivered(body), subscription_id)
            await self._work()
            client.send(Credit(subscription_id, 1))
            self._since_stored += 1
            if self._since_stored >= self._habits.store_every and self._next:
                self._since_stored = 0
                self._stored = self._next - 1
                client.send(StoreOffset(self.progress.reference, self._stream, self._next - 1))
            await client.flush()
        elif key == Key.METADATA_UPDATE:
            self.progress.endings["MetadataUpdate"] += 1
            raise ConnectionGoneError
        elif key == Key.CONSUMER_UPDATE:
            asked = ConsumerUpdate.from_body(body)
            spec = await self._begin(client) if asked.is_active else None
            self._next = None if spec is None else self._place(spec)
            client.send(ConsumerUpdateAnswer(asked.correlation_id, Code.OK, spec))
        elif key == Key.HEARTBEAT:
            client.send(Heartbeat())
        elif key == Key.CLOSE:
            raise ConnectionGoneError
        elif key:
            raise WrongDeliveryError(f"an unasked frame {key:#06x}: {body[:40]!r}")

    async def _next_body(self, client: RawClient) -> bytes:
        """Wait a while for a frame; return nothing if none has begun by then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PEEK_S):
                # Peeked at, so that a frame that is half there is not lost.
                while not client.reader._buffer and not client.reader.at_eof():
                    await client.reader._wait_for_data("peek")
            return await client.body()
        return b""

    def _check(self, subscription_id: int, chunk: bytes, expected_id: int) -> None:
        who = self.progress.reference
        if subscription_id != expected_id:
            raise WrongDeliveryError(f"{who}: a chunk of subscription {subscription_id}, not {expected_id}")
        if self._next is None:
            raise WrongDeliveryError(f"{who}: a chunk while it is not active")
        header = ChunkHeader.from_bytes(chunk[:48], source=who, position=0)
        wanted = self.progress.log.after_all(self._next)
        if wanted is None or chunk != wanted.delivered:
            there = "nothing" if wanted is None else f"{wanted.header}"
            raise WrongDeliveryError(f"{who}: after {self._next} comes {there}, and it was given {header}")
        self._next = header.next_offset
        self.progress.chunks += 1
        self.progress.covered = max(self.progress.covered, header.next_offset)

    async def _work(self) -> None:
        if self.is_hurried:
            return
        is_nap = self._rng.random() < self._habits.nap_rate
        await self._rest(self._rng.expovariate(1 / (self._habits.nap_s if is_nap else self._habits.chunk_s)))

    async def _leave(self, client: RawClient, subscription_id: int) -> None:
        how = self._rng.choice(("cut", "close", "unsubscribe"))
        self.progress.endings[how] += 1
        if how != "cut" and self._stored is not None:
            client.send(QueryOffset(client.next_id(), self.progress.reference, self._stream))
            await client.until(ANSWER | Key.QUERY_OFFSET)
            self.progress.stored, self._stored = self._stored, None
        if how == "close":
            await client.close()
        elif how == "unsubscribe":
            await client.ask(Unsubscribe(client.next_id(), subscription_id))
            await asyncio.sleep(1)
            if client.reader._buffer:
                body = await client.body()
                raise WrongDeliveryError(f"{self.progress.reference}: {body[:20]!r} after Unsubscribe")
            await client.close()
