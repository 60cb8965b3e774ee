"""Appends to direct streams: latency, throughput, requests, memory. Called by `harness.in_child`."""

from __future__ import annotations

import asyncio
import time
from io import BytesIO
from typing import Any
from zlib import crc32

from bench.aws import counted_requests
from bench.harness import MIB, Stopwatch
from bench.stream_world import (
    NEVER,
    append_all,
    arrive,
    batch_of,
    begin_peak,
    memory_mib,
    new_archive,
    opened_streams,
)
from coldstream.manifest.appender import WalPlace
from coldstream.store.memory.table import MemoryTable
from coldstream.streams.archive import DirectArchive
from coldstream.streams.options import StreamOptions
from coldstream.streams.wal.options import WalOptions
from coldstream.streams.wal.s3_store import S3WalStore
from coldstream.units import KIB

WARM_UP_S = 1.0
PAUSE_S = 0.05


def acknowledge(*, eager: bool, interval_s: float, rate: float, seconds: float, streams: int) -> dict[str, Any]:
    """Append 1 KiB batches at a rate; return the latencies, and those of bare PUTs of an object's size meanwhile.

    The archive is new, nothing is flushed, and the first second does not count.
    """

    async def run() -> dict[str, Any]:
        archive = new_archive()
        options = StreamOptions(wal=WalOptions(eager=eager, interval_s=interval_s), flush=NEVER)
        async with opened_streams(archive, options, streams) as (_, handles):
            batch = batch_of(KIB)
            await arrive(handles, batch, rate=rate, seconds=WARM_UP_S)
            body = bytes(int(len(batch.data) * rate * interval_s))
            with Stopwatch() as watch:
                probe = asyncio.create_task(asyncio.to_thread(_probe, archive, body, seconds))
                latencies = await arrive(handles, batch, rate=rate, seconds=seconds)
            puts = await probe
        return {"seconds": watch.seconds, "cpu_s": watch.cpu_s, "latencies": latencies, "puts": puts}

    return asyncio.run(run())


def append_in_rounds(*, rounds: int, round_batches: int, messages: int, message_bytes: int) -> dict[str, Any]:
    """Append rounds of batches, each round until all of it is acknowledged; return how long it took."""

    async def run() -> dict[str, Any]:
        async with opened_streams(new_archive(), StreamOptions(flush=NEVER), 1) as (_, (handle,)):
            batch = batch_of(messages * message_bytes, message_bytes=message_bytes)
            with Stopwatch() as watch:
                for _ in range(rounds):
                    await asyncio.gather(*(handle.append(batch) for _ in range(round_batches)))
        size_bytes = rounds * round_batches * messages * message_bytes
        return {"seconds": watch.seconds, "cpu_s": watch.cpu_s, "bytes": size_bytes}

    return asyncio.run(run())


def append_at_rate(*, mib_s: float, batch_bytes: int, eager: bool, seconds: float, streams: int) -> dict[str, Any]:
    """Append at a rate, and count the PUTs of the write-ahead log. `bytes` are those that came through."""

    async def run() -> dict[str, Any]:
        archive = new_archive()
        wal = CountedWalStore(archive.objects, archive.keys)
        options = StreamOptions(wal=WalOptions(eager=eager))
        async with opened_streams(archive, options, streams, wal=wal) as (_, handles):
            rate = mib_s * MIB / batch_bytes
            before = wal.puts
            with Stopwatch() as watch:
                latencies = await arrive(handles, batch_of(batch_bytes), rate=rate, seconds=seconds)
            puts = wal.puts - before
        size_bytes = len(latencies) * batch_bytes
        return {
            "seconds": watch.seconds,
            "cpu_s": watch.cpu_s,
            "batches": len(latencies),
            "bytes": size_bytes,
            "puts": puts,
        }

    return asyncio.run(run())


def stay_idle(*, streams: int, seconds: float) -> dict[str, Any]:
    """Have streams open, each with one batch flushed; count the requests of some seconds, and what a stream takes."""

    async def run() -> dict[str, Any]:
        archive = new_archive()
        table = archive.table
        assert isinstance(table, MemoryTable)
        async with opened_streams(archive, StreamOptions(), 1) as (client, _):
            names = [f"idle-{number}" for number in range(streams)]
            await asyncio.gather(*map(client.create, names))
            before_mib = memory_mib("VmRSS")
            handles = await asyncio.gather(*map(client.open_stream, names))
            after_mib = memory_mib("VmRSS")
            with counted_requests() as requests, Stopwatch() as watch:
                table.requests.clear()
                await asyncio.sleep(seconds)
                total = requests.total() + table.requests.total()
            del handles
        return {
            "seconds": watch.seconds,
            "cpu_s": watch.cpu_s,
            "requests": total,
            "bytes_each": (after_mib - before_mib) * MIB / streams,
        }

    return asyncio.run(run())


def append_within(*, memory_mib_limit: int, total_mib: int, batch_bytes: int) -> dict[str, Any]:
    """Append many times the memory budget as fast as it goes; return the peak of memory above that at the beginning."""

    async def run() -> dict[str, Any]:
        options = StreamOptions(memory_bytes=memory_mib_limit * MIB)
        async with opened_streams(new_archive(), options, 4) as (_, handles):
            batch = batch_of(batch_bytes)
            await append_all(handles, batch, 64, under_way=16)
            before = begin_peak()
            with Stopwatch() as watch:
                await append_all(handles, batch, total_mib * MIB // batch_bytes, under_way=1024)
            peak = memory_mib("VmHWM")
        return {"seconds": watch.seconds, "cpu_s": watch.cpu_s, "mib": peak - before}

    return asyncio.run(run())


class CountedWalStore(S3WalStore):
    """Counts the objects that are created. `puts` are attempts."""

    puts = 0

    def create(self, place: WalPlace, sequence: int, body: bytes) -> None:
        """Write an object that is not there yet."""
        self.puts += 1
        super().create(place, sequence, body)


def _probe(archive: DirectArchive, body: bytes, for_s: float) -> list[float]:
    """Return the seconds of bare PUTs, one after the other with pauses, by the store's own client."""
    seconds: list[float] = []
    end = time.perf_counter() + for_s
    while (began := time.perf_counter()) < end:
        key = f"{archive.keys.prefix}probe/{len(seconds)}"
        archive.objects.put_new(key, BytesIO(body), size_bytes=len(body), crc32=crc32(body))
        seconds.append(time.perf_counter() - began)
        time.sleep(PAUSE_S)
    return seconds
