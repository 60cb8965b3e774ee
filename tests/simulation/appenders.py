"""Two processes that append to one direct stream, and take it from each other: killed, cut off, with wrong clocks.

Each is the shipped client on the archive of all others. An `AppendLedger` has what came of each append; the stream has
to have at its end, once each, in place and in each process's order, all that was acknowledged, and nothing that was
refused.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from coldstream.errors import ColdstreamError, ExpiredEpochError, StreamClosedError
from coldstream.streams.archive import DirectArchive
from coldstream.streams.client import OpenMode, StreamClient
from coldstream.streams.flush.options import FlushOptions
from coldstream.streams.handle import DirectStream
from coldstream.streams.options import StreamOptions
from coldstream.streams.wal.options import WalOptions
from coldstream.units import MIB, Offset, TimestampMs
from tests.explore.base import KEYS
from tests.simulation.restartable import Restartable
from tests.simulation.stores import Trouble, Troubled
from tests.simulation.virtual import SimulationLoop
from tests.simulation.watched import SimulatedStores

NAME = "ledger"
OPENINGS = 20
"""At the end: others' requests that are on their way may still take the stream."""

FLUSH = FlushOptions(fragment_bytes=2_000, flush_age_s=300.0, wal_bytes=MIB)


class AppendLedger:
    """What became of each batch."""

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged: dict[Offset, bytes] = {}
        self.refused: set[bytes] = set()

    def next(self, name: str) -> bytes:
        """Return a message that nobody has sent."""
        self.sent += 1
        return f"{name} {self.sent}".encode()

    def judge(self, found: list[tuple[Offset, bytes]]) -> None:
        """Hold what the stream has against it."""
        there = dict(found)
        for offset, message in self.acknowledged.items():
            assert there.get(offset) == message, f"{message!r} was acknowledged at {offset}: {there.get(offset)!r}"
        bodies = [message for _, message in found]
        assert len(set(bodies)) == len(bodies), "a message was appended twice"
        assert not self.refused & set(bodies), "what was refused was appended"
        for name in {message.split()[0] for message in bodies}:
            mine = [int(message.split()[1]) for message in bodies if message.startswith(name + b" ")]
            assert mine == sorted(mine), f"messages of {name!r} are not in their order: {mine}"


class SimulatedAppender(Restartable):
    """One of the processes. `ahead_ms` is how wrong its host's clock is."""

    def __init__(
        self, name: str, loop: SimulationLoop, rng: random.Random, stores: SimulatedStores, ledger: AppendLedger
    ) -> None:
        super().__init__(self._run)
        self.name = name
        self.trouble = Trouble(rng)
        self.ledger = ledger
        self._rng = rng
        self._ahead_ms = rng.choice([0, -3_600_000, 3_600_000])
        self._archive = DirectArchive(
            Troubled(stores.table, self.trouble), Troubled(stores.objects, self.trouble), KEYS, self._now
        )
        self._loop = loop

    async def read_all(self) -> list[tuple[Offset, bytes]]:
        """Open the stream, append, close it, and return all that it has."""
        client = await self._open_client()
        handle = await self._opened(client)
        for _ in range(2):
            await self._append(handle)
        await handle.close()
        snapshot = await client.open_stream(NAME, mode=OpenMode.SNAPSHOT)
        found: list[tuple[Offset, bytes]] = []
        at = snapshot.start
        while batches := await snapshot.fetch(at):
            for batch in batches:
                found += [(Offset(one.offset), bytes(one.body)) for one in batch.messages()]
                at = batch.next_offset
        await client.close()
        return found

    async def _opened(self, client: StreamClient) -> DirectStream:
        for _ in range(OPENINGS):
            with suppress(ColdstreamError):
                return await client.open_stream(NAME)
            await asyncio.sleep(60)
        raise AssertionError(f"{NAME} cannot be opened when all is well")

    async def _open_client(self) -> StreamClient:
        wal = WalOptions(max_bytes=300, interval_s=5.0, attempts=3, max_delay_s=1.0)
        return await StreamClient.open(self._archive, StreamOptions(wal=wal, flush=FLUSH, writer=self.name))

    async def _run(self) -> None:
        client = await self._open_client()
        while True:
            with suppress(ColdstreamError):
                await client.create(NAME)
            with suppress(ColdstreamError):
                handle = await client.open_stream(NAME)
                while await self._append(handle):
                    await self._rest()
            await asyncio.sleep(self._rng.expovariate(1 / 600))

    async def _rest(self) -> None:
        await asyncio.sleep(self._rng.expovariate(1 / 240))

    async def _append(self, handle: DirectStream) -> bool:
        """Append some batches at once; return whether the handle is good for more."""
        bodies = [self.ledger.next(self.name) for _ in range(self._rng.choice([1, 1, 3]))]
        calls = [asyncio.ensure_future(handle.append([body])) for body in bodies]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for body, answer in zip(bodies, answers, strict=True):
            if isinstance(answer, ExpiredEpochError | StreamClosedError):
                self.ledger.refused.add(body)
            elif isinstance(answer, BaseException):
                if not isinstance(answer, ColdstreamError):
                    raise answer
            else:
                assert answer is not None
                assert answer not in self.ledger.acknowledged, f"{answer} was acknowledged twice"
                self.ledger.acknowledged[answer] = body
        return not any(isinstance(answer, BaseException) for answer in answers)

    def _now(self) -> TimestampMs:
        return TimestampMs(self._loop.wall_ms() + self._ahead_ms)
