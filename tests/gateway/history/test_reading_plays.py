"""Readings that share a small memory, in random plays: they pause, are cancelled, give up, and objects go wrong."""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import suppress

import pytest

from coldstream.errors import CorruptionError, ObjectNotFoundError, UnavailableError
from coldstream.format.chunk import Chunk
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history import budget as budget_module
from coldstream.gateway.history import reading as reading_module
from coldstream.gateway.history.gateway_history import GatewayHistory
from coldstream.units import Offset
from tests.support.archive import STREAM
from tests.support.http_archive import Fault, Get
from tests.support.served_history import RECORDS, TAIL, ServedHistory

READERS = 12
BUDGET_BYTES = 3000


class Reader:
    """One consumer's way through the archive: by readings one after the other, each from where it is."""

    def __init__(self, history: GatewayHistory, served: ServedHistory, rng: random.Random) -> None:
        self.history = history
        self.random = rng
        self.wanted = {int(chunk.header.chunk_id): chunk.data for chunk in served.archive.chunks}
        self.at = RECORDS * rng.randrange(TAIL // RECORDS)
        self.readings = 0

    async def read_to_the_end(self) -> None:
        while self.at < TAIL:
            self.readings += 1
            with suppress(UnavailableError, CorruptionError, ObjectNotFoundError):  # faults that came twice
                await self.read_some()

    async def read_some(self) -> None:
        rng = self.random
        patience_s = None if rng.random() < 0.7 else rng.random() / 50
        async with self.history.read(STREAM.vhost, STREAM.name, STREAM.incarnation, Offset(self.at)) as reading:
            for _ in range(rng.choice((1, 5, 50, TAIL))):
                chunk = reading.take()
                if chunk is None:
                    try:
                        async with asyncio.timeout(patience_s):
                            chunk = await anext(aiter(reading))
                    except StopAsyncIteration:
                        return
                    except TimeoutError:
                        if rng.random() < 0.3:
                            return
                        continue  # whoever is cancelled may ask again
                self.check(chunk)
                del chunk
                if rng.random() < 0.05:
                    await asyncio.sleep(rng.random() / 20)
            if rng.random() < 0.2:
                reading.close()

    def check(self, chunk: Chunk) -> None:
        assert chunk.header.chunk_id == self.at
        assert chunk.header.to_bytes() + bytes(chunk.data) == self.wanted[self.at]
        self.at = chunk.header.next_offset


@pytest.mark.parametrize("seed", range(4))
def test_each_gets_every_chunk_and_all_memory_is_given_back(
    served: ServedHistory, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(reading_module, "MOST_SLICE_BYTES", 400)
    monkeypatch.setattr(reading_module, "LEAST_SLICE_BYTES", 200)
    monkeypatch.setattr(budget_module, "IDLE_S", 0.01)
    monkeypatch.setattr(budget_module, "PATIENCE_S", 0.05)
    rng = random.Random(seed)
    faults = [
        Fault(status=503),
        Fault(status=404),
        Fault(keep_bytes=100),
        Fault(flip_at=70),
        Fault(stall_s=0.05),
        Fault(trickle_s=0.0002),
    ]
    lock = threading.Lock()

    def fault(_: Get) -> Fault | None:
        with lock:
            return rng.choice(faults) if rng.random() < 0.1 else None

    served.server.faults = fault
    figures = GatewayFigures()
    most = 0

    async def main() -> None:
        nonlocal most
        history = GatewayHistory(
            served.archive.table, served.archive.objects, budget_bytes=BUDGET_BYTES, figures=figures, attempts=2
        )
        readers = [Reader(history, served, random.Random(1000 * seed + number)) for number in range(READERS)]
        tasks = [asyncio.ensure_future(one.read_to_the_end()) for one in readers]
        async with asyncio.timeout(120):
            while not all(task.done() for task in tasks):
                most = max(most, figures.memory_used_bytes)
                await asyncio.sleep(0.001)
        for task in tasks:
            task.result()
        assert figures.memory_used_bytes == 0
        await history.close()

    asyncio.run(main())
    assert 0 < most <= BUDGET_BYTES
