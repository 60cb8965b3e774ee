"""Ten thousand streams open in one process: bounded memory, and nothing at all for those that are idle."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections import Counter

import pytest

from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.streams import DirectArchive, DirectStream, StreamClient, StreamOptions
from coldstream.streams.wal.memory_store import MemoryWalStore

STREAMS = 10_000
MEASURED = 1000
"""The last of them, whose memory is looked at: that takes time."""

IDLE_BYTES = 4000


class InlineLoop(asyncio.SelectorEventLoop):
    """Makes requests at once, without threads: ten thousand streams are opened by 150,000 of them."""

    def run_in_executor(self, executor: object, func, *args):  # type: ignore[no-untyped-def,override]
        outcome = self.create_future()
        try:
            outcome.set_result(func(*args))
        except BaseException as err:  # noqa: BLE001  as an executor does
            outcome.set_exception(err)
        return outcome


@pytest.mark.slow
def test_ten_thousand_open_streams_take_little_memory_and_idle_ones_cost_nothing() -> None:
    table, objects, wal = MemoryTable(), MemoryObjects(), MemoryWalStore()

    def requests() -> Counter[str]:
        return Counter(table.requests) + Counter(objects.requests) + Counter(wal.requests)

    async def play() -> None:
        client = await StreamClient.open(DirectArchive(table, objects, Keys("")), StreamOptions(), wal=wal)
        for number in range(STREAMS):
            await client.create(f"s{number}")
        handles: list[DirectStream] = [await client.open_stream(f"s{number}") for number in range(STREAMS - MEASURED)]
        gc.collect()
        tracemalloc.start()
        # Of the doubles nothing is counted, and so neither are the names, which a handle here shares with the table.
        handles += [await client.open_stream(f"s{number}") for number in range(STREAMS - MEASURED, STREAMS)]
        gc.collect()
        here = tracemalloc.take_snapshot().filter_traces(
            [
                tracemalloc.Filter(True, "*/coldstream/streams/*"),
                tracemalloc.Filter(True, "*/asyncio/*"),
            ]
        )
        tracemalloc.stop()
        idle_bytes = sum(one.size for one in here.statistics("filename")) / MEASURED
        assert 500 < idle_bytes < IDLE_BYTES
        tasks, before = len(asyncio.all_tasks()), requests()
        assert tasks <= 3  # this one, the flusher, and the batch's caller
        await asyncio.sleep(0.2)
        assert requests() == before
        assert len(asyncio.all_tasks()) == tasks
        assert client.metrics().open_streams == STREAMS
        # They are all there: an append to each goes into few objects.
        await asyncio.gather(*(handle.append([b"a"]) for handle in handles))
        assert requests()["create"] - before["create"] < 10
        await client.close()

    with asyncio.Runner(loop_factory=InlineLoop) as runner:
        runner.run(play())
