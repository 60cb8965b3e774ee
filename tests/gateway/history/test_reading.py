"""Readings of the archive over HTTP that can fail."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest

from coldstream.errors import BadCrcError, GapError, ObjectNotFoundError, StreamNotFoundError, UnavailableError
from coldstream.format.chunk import Chunk
from coldstream.gateway.history import gateway_history
from coldstream.gateway.history.gateway_history import GatewayHistory
from coldstream.gateway.history.port import ChunkReading
from coldstream.manifest.stream import Incarnation
from coldstream.read.http import ClosedError
from coldstream.units import MIB, Offset
from tests.support.archive import STREAM, ChunkArchive, random_archive, steady
from tests.support.http_archive import Fault, Get, HttpObjects, object_server
from tests.support.made_chunks import ids
from tests.support.served_history import RECORDS, TAIL, ServedHistory

STEPS = list(range(0, TAIL, RECORDS))


def reading_of(history: GatewayHistory, start: int = 0, end: int | None = None) -> ChunkReading:
    limit = None if end is None else Offset(end)
    return history.read(STREAM.vhost, STREAM.name, STREAM.incarnation, Offset(start), limit)


async def all_of(reading: ChunkReading) -> list[Chunk]:
    async with reading:
        return [chunk async for chunk in reading]


def bytes_of(chunk: Chunk) -> bytes:
    return chunk.header.to_bytes() + bytes(chunk.data)


def test_every_chunk_comes_once_in_order_with_its_bytes(served: ServedHistory) -> None:
    async def scenario(history: GatewayHistory) -> list[bytes]:
        async with reading_of(history) as reading:
            return [bytes_of(chunk) async for chunk in reading]

    assert served.run(scenario) == [chunk.data for chunk in served.archive.chunks]


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [(0, 1, [0]), (3, 6, [0, 5]), (5, 10, [5]), (98, 102, [95, 100]), (TAIL - 1, None, [TAIL - 5]), (TAIL, None, [])],
)
def test_a_reading_ends_where_it_is_told(served: ServedHistory, start: int, end: int | None, wanted: list[int]) -> None:
    assert ids(served.run(lambda history: all_of(reading_of(history, start, end)))) == wanted


def test_what_is_fetched_can_be_taken_without_waiting(served: ServedHistory) -> None:
    async def scenario(history: GatewayHistory) -> list[int]:
        async with reading_of(history) as reading:
            assert reading.take() is None
            found = [await anext(reading)]
            while (chunk := reading.take()) is not None:
                found.append(chunk)
            return ids(found)

    found = served.run(scenario)
    assert len(found) > 1
    assert found == STEPS[: len(found)]


@pytest.mark.parametrize(("budget_bytes", "gets"), [(256 * MIB, 4), (16 * MIB, 32)])
def test_a_reading_alone_has_large_ranges_and_with_little_memory_smaller_ones(budget_bytes: int, gets: int) -> None:
    # 32 chunks of a MB, each with a point of the sparse index: ranges are at most 8 MiB, or an eighth of what a
    # reading may have.
    objects = HttpObjects()
    archive = ChunkArchive(objects=objects, message_bytes=1_000_000)
    archive.add(0, steady(1, *range(32)))
    with object_server(objects) as server:
        served = ServedHistory(archive, server)
        served.budget_bytes = budget_bytes
        found = served.run(lambda history: all_of(reading_of(history)))
        assert ids(found) == list(range(32))
        assert len(server.gets) == gets


def test_a_hole_is_an_error_and_a_reading_behind_it_goes_on(served: ServedHistory) -> None:
    served.archive.add(TAIL + 50, steady(RECORDS, 10**6))

    async def scenario(history: GatewayHistory) -> None:
        async with reading_of(history, TAIL - 5) as reading:
            assert (await anext(reading)).header.chunk_id == TAIL - 5
            with pytest.raises(GapError) as raised:
                await anext(reading)
            assert (raised.value.first_offset, raised.value.next_offset) == (TAIL, TAIL + 50)
        assert ids(await all_of(reading_of(history, TAIL + 50))) == [TAIL + 50]

    served.run(scenario)


def test_a_stream_that_is_gone_is_an_error(served: ServedHistory) -> None:
    async def scenario(history: GatewayHistory) -> None:
        reading = history.read("/", STREAM.name, Incarnation("__orders_1"), Offset(0))
        with pytest.raises(StreamNotFoundError):
            await all_of(reading)

    served.run(scenario)


@pytest.mark.parametrize("fault", [Fault(status=503), Fault(keep_bytes=10), Fault(flip_at=60), Fault(status=403)])
def test_a_fault_that_passes_is_not_seen(served: ServedHistory, fault: Fault) -> None:
    spoiled: set[str] = set()

    def faults(get: Get) -> Fault | None:
        if get.key in spoiled:
            return None
        spoiled.add(get.key)
        return fault

    served.server.faults = faults
    assert ids(served.run(lambda history: all_of(reading_of(history)))) == STEPS


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(status=503), UnavailableError),
        (Fault(keep_bytes=10), UnavailableError),
        (Fault(flip_at=60), BadCrcError),
        (Fault(status=404), ObjectNotFoundError),
    ],
)
def test_a_fault_that_stays_comes_after_the_chunks_before_it(
    served: ServedHistory, fault: Fault, error: type[Exception]
) -> None:
    third = served.archive.chunks[2 * len(STEPS) // 6].key

    def faults(get: Get) -> Fault | None:
        return fault if get.key == third else None

    served.server.faults = faults
    served.attempts = 2
    found: list[int] = []

    async def scenario(history: GatewayHistory) -> None:
        async with reading_of(history) as reading:
            async for chunk in reading:
                found.append(chunk.header.chunk_id)  # noqa: PERF401  those before the error count

    with pytest.raises(error):
        served.run(scenario)
    assert found == STEPS[: len(STEPS) // 3]


def test_a_hanging_get_delays_nobody_else_and_ends_with_its_reading(served: ServedHistory) -> None:
    other = served.archive.chunks[-1].key
    served.server.faults = lambda get: None if get.key == other else Fault(stall_s=30)
    served.read_timeout_s = 30

    async def scenario(history: GatewayHistory) -> None:
        hanging = reading_of(history)
        waiting = asyncio.ensure_future(all_of(hanging))
        assert await asyncio.to_thread(served.server.got_one.wait, 10)
        assert ids(await all_of(reading_of(history, TAIL - 3))) == [TAIL - 5]
        assert await history.bounds(STREAM.vhost, STREAM.name) is not None
        began = asyncio.get_running_loop().time()
        hanging.close()
        with pytest.raises(ClosedError):
            await waiting
        assert asyncio.get_running_loop().time() - began < 5

    served.run(scenario)


def test_a_task_that_is_cancelled_ends_at_once(served: ServedHistory) -> None:
    served.server.faults = lambda _: Fault(stall_s=30)

    async def scenario(history: GatewayHistory) -> None:
        waiting = asyncio.ensure_future(all_of(reading_of(history)))
        assert await asyncio.to_thread(served.server.got_one.wait, 10)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    served.run(scenario)


def test_bytes_that_trickle_in_are_given_up_in_time(served: ServedHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_history, "FETCH_S", 0.3)
    served.server.faults = lambda _: Fault(trickle_s=0.05)

    async def scenario(history: GatewayHistory) -> None:
        with pytest.raises(UnavailableError):
            await all_of(reading_of(history))

    served.run(scenario)
    for thread in threading.enumerate():
        if thread.name.startswith("coldstream-fetches"):
            thread.join(10)
            assert not thread.is_alive()


async def read_restlessly(history: GatewayHistory, rng: random.Random, start: int, tail: int) -> list[bytes]:
    """Read to the tail, over gaps and failures, with pauses, and again from where it stopped if it gives up."""
    found: list[bytes] = []
    at = start
    while at < tail:
        async with reading_of(history, at) as reading:
            try:
                while True:
                    taken = reading.take() if rng.random() < 0.5 else None
                    chunk = await anext(reading) if taken is None else taken
                    found.append(bytes_of(chunk))
                    at = chunk.header.next_offset
                    if rng.random() < 0.03:
                        await asyncio.sleep(rng.choice([0, 0.005, 0.06]))
                    if rng.random() < 0.01:
                        break
            except StopAsyncIteration:
                break
            except GapError as err:
                at = err.next_offset
            except (UnavailableError, BadCrcError):
                pass  # a fault that came twice
    return found


@pytest.mark.parametrize("seed", range(10))
def test_whatever_goes_wrong_each_chunk_comes_once_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr("coldstream.gateway.history.reading.MOST_SLICE_BYTES", rng.choice([100, 500, 100_000]))
    monkeypatch.setattr("coldstream.gateway.history.reading.LEAST_SLICE_BYTES", 100)
    monkeypatch.setattr("coldstream.gateway.history.reading.EAGER_CHUNKS", rng.choice([1, 3, 64]))
    monkeypatch.setattr("coldstream.gateway.history.reading.PLANNED", rng.choice([1, 4, 32]))
    monkeypatch.setattr("coldstream.gateway.history.budget.IDLE_S", 0.02)
    archive = random_archive(rng, gaps=0.3)
    while len(archive.chunks) < 40:
        first = archive.chunks[-1].header.next_offset + rng.choice([0, 0, 7]) if archive.chunks else 0
        archive.add(first, steady(rng.randrange(1, 6), *range(5)))
    objects = HttpObjects()
    for key, data in archive.objects.objects.items():
        objects.put(key, data)
    archive.objects = objects
    kinds = [Fault(status=503), Fault(status=403), Fault(keep_bytes=5), Fault(flip_at=50), Fault(stall_s=0.4)]
    faults = random.Random(seed + 1000)
    with object_server(objects) as server:
        server.faults = lambda _: faults.choice(kinds) if faults.random() < 0.15 else None
        served = ServedHistory(archive, server)
        served.budget_bytes, served.read_timeout_s = rng.choice([800, 3000, 1 << 20]), 0.3
        tail = archive.chunks[-1].header.next_offset
        starts = [0, *(rng.randrange(tail) for _ in range(7))]

        async def scenario(history: GatewayHistory) -> list[list[bytes]]:
            readers = [read_restlessly(history, random.Random(seed + start), start, tail) for start in starts]
            return await asyncio.gather(*readers)

        for start, found in zip(starts, served.run(scenario), strict=True):
            assert found == [chunk.data for chunk in archive.chunks if chunk.header.next_offset > start]
