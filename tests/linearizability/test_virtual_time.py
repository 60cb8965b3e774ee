"""The simulated clock, processes and threads do what real ones do, only sooner, and the same each time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from zlib import crc32

import pytest

from coldstream.errors import ObjectExistsError, OutcomeUnknownError, UnavailableError
from coldstream.flow.window import map_ahead
from coldstream.store.memory.objects import MemoryObjects
from coldstream.streams.wal import seal
from tests.linearizability.faulty_stores import Network, Remote
from tests.linearizability.virtual_loop import Process, Stuck, VirtualLoop
from tests.linearizability.virtual_threads import VirtualExecutor


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    with loop.threads.patched():
        yield loop
        loop.bury()
    loop.close()


async def ticks(seen: list[float], loop: VirtualLoop) -> None:
    while True:
        seen.append(loop.now)
        await asyncio.sleep(1)


def test_a_day_passes_at_once(loop: VirtualLoop) -> None:
    began = time.perf_counter()
    loop.run_until_complete(asyncio.sleep(86_400))
    assert loop.time() == 86_400
    assert time.perf_counter() - began < 60


def test_nothing_to_wait_for_is_an_error(loop: VirtualLoop) -> None:
    with pytest.raises(Stuck):
        loop.run_until_complete(loop.create_future())


def test_a_frozen_process_goes_on_where_it_was(loop: VirtualLoop) -> None:
    seen: list[float] = []
    process = loop.process("one")
    process.start(ticks(seen, loop))
    loop.run_until_complete(asyncio.sleep(1.5))
    process.freeze()
    loop.run_until_complete(asyncio.sleep(10))
    assert seen == [0, 1]
    process.thaw()
    loop.run_until_complete(asyncio.sleep(0.1))
    assert seen == [0, 1, 11.5]


def test_a_timer_that_is_cancelled_after_a_thaw_does_not_fire(loop: VirtualLoop) -> None:
    fired: list[str] = []

    async def main() -> None:
        first = loop.call_later(1, lambda: (fired.append("first"), second.cancel()))
        second = loop.call_later(2, lambda: fired.append("second"))
        assert first.when() < second.when()

    process = loop.process("one")
    process.start(main())
    loop.run_until_complete(asyncio.sleep(0.5))
    process.freeze()
    loop.run_until_complete(asyncio.sleep(5))
    process.thaw()
    loop.run_until_complete(asyncio.sleep(5))
    assert fired == ["first"]


def test_a_killed_process_runs_nothing_more_and_leaves_no_task(loop: VirtualLoop) -> None:
    seen: list[float] = []
    process = loop.process("one")
    task = process.start(ticks(seen, loop))
    loop.run_until_complete(asyncio.sleep(1.5))
    process.kill()
    loop.run_until_complete(asyncio.sleep(10))
    assert seen == [0, 1]
    loop.bury()
    assert task.cancelled()


def test_threads_sleep_and_wait_for_each_other_in_simulated_time(loop: VirtualLoop) -> None:
    def nap(seconds: float) -> float:
        time.sleep(seconds)
        return time.monotonic()

    def both() -> list[float]:
        executor = VirtualExecutor(loop.threads)
        with executor:
            return list(map_ahead(executor, nap, (3, 2, 1), max_calls=2))

    async def main() -> list[float]:
        return await asyncio.to_thread(both)

    assert loop.run_until_complete(loop.process("one").start(main())) == [3, 2, 4]


def test_the_shipped_code_gets_such_threads(loop: VirtualLoop) -> None:
    assert seal.ThreadPoolExecutor is not ThreadPoolExecutor
    assert isinstance(seal.ThreadPoolExecutor(3), VirtualExecutor)
    assert loop.now == 0


def remote(network: Network, process: Process, objects: MemoryObjects) -> Remote:
    return Remote(network, process, objects)


def put(bucket: Remote, key: str = "a") -> None:
    bucket.put_new(key, BytesIO(b"bytes"), size_bytes=5, crc32=crc32(b"bytes"))


def test_what_a_killed_process_sent_may_arrive_or_not(loop: VirtualLoop) -> None:
    objects, arrived = MemoryObjects(), set()
    for seed in range(30):
        network = Network(loop, seed)
        process = loop.process("one")
        process.start(asyncio.to_thread(put, remote(network, process, objects), f"{seed}"))
        loop.run_until_complete(asyncio.sleep(0.001))
        process.kill()
        loop.run_until_complete(asyncio.sleep(60))
        arrived.add(f"{seed}" in objects.objects)
    assert arrived == {True, False}


def test_a_lost_answer_is_an_unknown_outcome_and_may_be_late(loop: VirtualLoop) -> None:
    objects, told, late = MemoryObjects(), [], 0
    for seed in range(40):
        network = Network(loop, seed)
        network.weather.lost = 1
        process = loop.process("one")
        task = process.start(asyncio.to_thread(put, remote(network, process, objects), f"{seed}"))
        told.append(loop.run_until_complete(asyncio.gather(task, return_exceptions=True))[0])
        was_there = f"{seed}" in objects.objects
        loop.run_until_complete(asyncio.sleep(60))
        late += f"{seed}" in objects.objects and not was_there
    assert all(isinstance(one, OutcomeUnknownError) for one in told)
    assert late
    assert len(objects.objects) < 40


def test_a_put_that_is_sent_twice_meets_itself(loop: VirtualLoop) -> None:
    network = Network(loop, 1)
    network.weather.sent_twice = 1
    process = loop.process("one")
    with pytest.raises(ObjectExistsError):
        loop.run_until_complete(process.start(asyncio.to_thread(put, remote(network, process, MemoryObjects()))))


def test_an_outage_refuses(loop: VirtualLoop) -> None:
    network = Network(loop, 1)
    network.weather.is_out = True
    process = loop.process("one")
    objects = MemoryObjects()
    with pytest.raises(UnavailableError):
        loop.run_until_complete(process.start(asyncio.to_thread(put, remote(network, process, objects))))
    assert not objects.objects


def test_a_call_that_blocks_the_loop_is_an_error(loop: VirtualLoop) -> None:
    bucket = remote(Network(loop, 1), loop.process("one"), MemoryObjects())
    with pytest.raises(RuntimeError, match="blocks the event loop"):
        put(bucket)
