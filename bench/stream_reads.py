"""Reads of direct streams: at the tail, and from the archive. Called by `harness.in_child`."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from bench.aws import counted_requests
from bench.harness import MIB, Stopwatch
from bench.stream_world import NEVER, append_all, batch_of, new_archive, opened_streams
from coldstream.store.table import DynamoTable
from coldstream.streams.client import OpenMode, StreamClient
from coldstream.streams.options import StreamOptions
from coldstream.units import KIB, ByteRange, Offset

STREAM = "direct-0"
NEAR_TAIL_BYTES = 64 * MIB
READ_BYTES = 64 * KIB
GETS = 40


def read_tail(*, seconds: float) -> dict[str, Any]:
    """Fetch 64 KiB at random places among the newest 64 MiB, one after the other; and GET as much from S3."""

    async def run() -> dict[str, Any]:
        archive = new_archive()
        dice = random.Random(1)
        async with opened_streams(archive, StreamOptions(flush=NEVER), 1) as (_, (handle,)):
            batch = batch_of(READ_BYTES)
            await append_all([handle], batch, NEAR_TAIL_BYTES // READ_BYTES, under_way=64)
            reads = 0
            with counted_requests() as requests, Stopwatch() as watch:
                end = time.perf_counter() + seconds
                while time.perf_counter() < end:
                    await handle.fetch(Offset(dice.randrange(handle.confirmed)), max_bytes=READ_BYTES)
                    reads += 1
                total = requests.total()
            key = next(iter(archive.objects.keys(f"{archive.keys.prefix}wal/")))
            with Stopwatch() as getting:
                for _ in range(GETS):
                    archive.objects.get_range(key, ByteRange(0, READ_BYTES))
        return {
            "seconds": watch.seconds,
            "cpu_s": watch.cpu_s,
            "reads_s": reads / watch.seconds,
            "gets_s": GETS / getting.seconds,
            "requests": total,
        }

    return asyncio.run(run())


def write_archived(*, table: str, mib: int, batch_bytes: int) -> str:
    """Append to a new stream, and close it, so that all of it is archived; return the archive's prefix."""

    async def run() -> str:
        archive = new_archive(DynamoTable(table))
        async with opened_streams(archive, StreamOptions(), 1) as (_, handles):
            await append_all(handles, batch_of(batch_bytes), mib * MIB // batch_bytes, under_way=256)
        return archive.keys.prefix

    return asyncio.run(run())


def catch_up(*, table: str, prefix: str) -> dict[str, Any]:
    """Read the archived stream from its first batch to its tail, in a client of its own."""

    async def run() -> dict[str, Any]:
        total = 0
        with Stopwatch() as watch:
            async with await StreamClient.open(new_archive(DynamoTable(table), prefix=prefix)) as client:
                handle = await client.open_stream(STREAM, mode=OpenMode.SNAPSHOT)
                at = handle.start
                while batches := await handle.fetch(at):
                    total += sum(len(one.chunk) for one in batches)
                    at = batches[-1].next_offset
        return {"seconds": watch.seconds, "cpu_s": watch.cpu_s, "bytes": total}

    return asyncio.run(run())
