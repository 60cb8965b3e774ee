"""Many readings under one budget: all get on, memory is bounded, and paused ones ask for nothing."""

from __future__ import annotations

import asyncio
import threading

import pytest

from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history import reading as reading_module
from coldstream.gateway.history.gateway_history import GatewayHistory
from coldstream.gateway.history.port import History
from coldstream.units import Offset
from tests.support.archive import STREAM
from tests.support.http_archive import Fault
from tests.support.made_chunks import ids
from tests.support.served_history import RECORDS, TAIL, ServedHistory

NAMES = STREAM.vhost, STREAM.name
ALL = list(range(0, TAIL, RECORDS))


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_module, "MOST_SLICE_BYTES", 400)
    monkeypatch.setattr(reading_module, "LEAST_SLICE_BYTES", 400)
    monkeypatch.setattr("coldstream.gateway.history.budget.IDLE_S", 0.05)


async def read_slowly(history: History, seen: list[int], used: GatewayFigures) -> list[int]:
    found = []
    async with history.read(*NAMES, STREAM.incarnation, Offset(0)) as reading:
        async for chunk in reading:
            found.append(chunk)
            seen.append(used.memory_used_bytes)
            if len(found) % 7 == 0:
                await asyncio.sleep(0.001)
    return ids(found)


def test_a_hundred_readings_get_on_within_the_budget(served: ServedHistory) -> None:
    figures = GatewayFigures()
    seen: list[int] = []

    async def main() -> list[list[int]]:
        history = GatewayHistory(served.archive.table, served.archive.objects, budget_bytes=8000, figures=figures)
        found = await asyncio.gather(*(read_slowly(history, seen, figures) for _ in range(100)))
        await history.close()
        return found

    assert asyncio.run(asyncio.wait_for(main(), 120)) == [ALL] * 100
    assert 0 < max(seen) <= 8000
    assert figures.memory_used_bytes == 0


def test_a_paused_reading_asks_for_nothing_more_and_gives_way(served: ServedHistory) -> None:
    async def main() -> None:
        figures = GatewayFigures()
        history = GatewayHistory(served.archive.table, served.archive.objects, budget_bytes=4000, figures=figures)
        paused = []
        for _ in range(12):
            reading = history.read(*NAMES, STREAM.incarnation, Offset(0))
            await reading.__aenter__()
            assert (await anext(reading)).header.chunk_id == 0
            paused.append(reading)
        await asyncio.sleep(0.2)
        asked = len(served.server.gets)
        await asyncio.sleep(0.2)
        assert len(served.server.gets) == asked
        # All of the budget may be held by those who are paused: who comes gets on all the same.
        assert await read_slowly(history, [], figures) == ALL
        # And those who are paused go on where they were, whatever was taken from them.
        for reading in paused:
            assert ids([chunk async for chunk in reading]) == ALL[1:]
        await history.close()
        assert figures.memory_used_bytes == 0

    asyncio.run(asyncio.wait_for(main(), 120))


def test_hanging_gets_hold_up_no_other_reading_however_many_there_are(served: ServedHistory) -> None:
    last = served.archive.chunks[-1].key
    served.server.faults = lambda get: None if get.key == last else Fault(stall_s=60)

    async def main() -> None:
        history = GatewayHistory(served.archive.table, served.archive.objects, read_timeout_s=60)
        hanging = [history.read(*NAMES, STREAM.incarnation, Offset(0)) for _ in range(60)]
        waits = [asyncio.ensure_future(anext(reading)) for reading in hanging]
        while len(served.server.gets) < len(hanging):  # noqa: ASYNC110  the server has no such event
            await asyncio.sleep(0.01)
        async with history.read(*NAMES, STREAM.incarnation, Offset(TAIL - 5)) as reading:
            assert ids([chunk async for chunk in reading]) == [TAIL - 5]
        await history.close()
        await asyncio.gather(*waits, return_exceptions=True)

    asyncio.run(asyncio.wait_for(main(), 60))
    # Their connections were cut, so that their threads are free, too.
    names = "coldstream-fetches", "coldstream-lookups"
    for thread in threading.enumerate():
        if thread.name.startswith(names):
            thread.join(10)
            assert not thread.is_alive()
