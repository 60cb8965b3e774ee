"""What the measurements of direct streams share: an archive on the local S3, clients of it, and loads."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.aws import BUCKET
from bench.harness import MIB
from coldstream.store.keys import Keys
from coldstream.store.memory.table import MemoryTable
from coldstream.store.objects import S3Objects
from coldstream.store.ports import ManifestTable
from coldstream.streams.archive import DirectArchive
from coldstream.streams.batch import Batch
from coldstream.streams.client import StreamClient
from coldstream.streams.flush.options import FlushOptions
from coldstream.streams.handle import DirectStream
from coldstream.streams.options import StreamOptions
from coldstream.streams.wal.store import WalStore

THREADS = 32
"""Those of a client by default, and so the connections that it can use."""

NEVER = FlushOptions(fragment_bytes=1 << 30, flush_age_s=3600, wal_bytes=1 << 40)
"""Everything stays in the write-ahead log, until the stream is closed."""


def new_archive(table: ManifestTable | None = None, *, prefix: str | None = None) -> DirectArchive:
    """Return an archive in the environment's S3, of its own without `prefix`. Without `table`, that is in memory."""
    objects = S3Objects(BUCKET, connections=THREADS)
    return DirectArchive(MemoryTable() if table is None else table, objects, Keys(prefix or f"{secrets.token_hex(8)}/"))


@asynccontextmanager
async def opened_streams(
    archive: DirectArchive, options: StreamOptions, count: int, *, wal: WalStore | None = None
) -> AsyncIterator[tuple[StreamClient, Sequence[DirectStream]]]:
    """Open a client, and so many new streams."""
    async with await StreamClient.open(archive, options, wal=wal) as client:
        names = [f"direct-{number}" for number in range(count)]
        await asyncio.gather(*(client.create(name) for name in names))
        yield client, await asyncio.gather(*(client.open_stream(name) for name in names))


def batch_of(size_bytes: int, *, message_bytes: int = 1024) -> Batch:
    """Return a batch of messages of random bytes, with this many of them together."""
    noise = random.Random(1).randbytes(size_bytes)
    return Batch.of([noise[at : at + message_bytes] for at in range(0, size_bytes, message_bytes)])


async def arrive(handles: Sequence[DirectStream], batch: Batch, *, rate: float, seconds: float) -> list[float]:
    """Append batches at a rate, to each handle in turn; return the latencies in seconds.

    Batches come when they are due, whether or not those before are acknowledged. A latency counts from the call: the
    timer of the load itself is a millisecond late.
    """
    loop = asyncio.get_running_loop()
    latencies: list[float] = []

    async def append(handle: DirectStream, called: float) -> None:
        await handle.append(batch)
        latencies.append(loop.time() - called)

    began = loop.time()
    async with asyncio.TaskGroup() as tasks:
        for number in range(int(rate * seconds)):
            if (early := began + number / rate - loop.time()) > 0:
                await asyncio.sleep(early)
            tasks.create_task(append(handles[number % len(handles)], loop.time()))
    return latencies


async def append_all(handles: Sequence[DirectStream], batch: Batch, count: int, *, under_way: int) -> None:
    """Append so many batches as fast as it goes, to each handle in turn, so many of them at a time."""
    numbers = iter(range(count))

    async def append() -> None:
        for number in numbers:
            await handles[number % len(handles)].append(batch)

    await asyncio.gather(*(append() for _ in range(under_way)))


def begin_peak() -> float:
    """Begin a new peak of this process's memory; return what it holds now, in MiB."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return memory_mib("VmRSS")


def memory_mib(field: str) -> float:
    """Return `VmRSS`, what this process holds, or `VmHWM`, its peak, in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 / MIB for line in lines if line.startswith(field))
