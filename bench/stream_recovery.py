"""Recovery of direct streams whose process died. Called by `harness.in_child`."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from typing import Any
from zlib import crc32

from bench.harness import MIB, Stopwatch
from bench.stream_world import NEVER, append_all, batch_of, begin_peak, memory_mib, new_archive
from coldstream.errors import ColdstreamError
from coldstream.flow.window import map_ahead
from coldstream.streams.archive import DirectArchive
from coldstream.streams.client import StreamClient
from coldstream.streams.options import StreamOptions
from coldstream.units import ByteRange

GETS_AT_ONCE = 8
COPY_BYTES = 64 * MIB
ALL = ByteRange(0, 1 << 32)


def recover_streams(*, mib: int, streams: int, batch_bytes: int) -> dict[str, Any]:
    """Append without a flush, then open the streams elsewhere; return how long that takes, and the peak of memory.

    `copy_s` is what it takes to GET the log's objects and to PUT their bytes again, in objects of 64 MiB.
    """

    async def run() -> dict[str, Any]:
        archive = new_archive()
        names = [f"direct-{number}" for number in range(streams)]
        dead = await StreamClient.open(archive, StreamOptions(flush=NEVER, memory_bytes=4 * mib * MIB))
        await asyncio.gather(*map(dead.create, names))
        handles = await asyncio.gather(*map(dead.open_stream, names))
        await append_all(handles, batch_of(batch_bytes), mib * MIB // batch_bytes, under_way=256)
        tails = [handle.confirmed for handle in handles]
        with Stopwatch() as copying:
            copied = await asyncio.to_thread(_copy, archive)
        client = await StreamClient.open(archive, StreamOptions())
        before = begin_peak()
        with Stopwatch() as watch:
            opened = await asyncio.gather(*map(client.open_stream, names))
        peak = memory_mib("VmHWM") - before
        assert [handle.confirmed for handle in opened] == tails
        await client.close()
        with suppress(ColdstreamError):
            await dead.close()
        return {"seconds": watch.seconds, "cpu_s": watch.cpu_s, "bytes": copied, "copy_s": copying.seconds, "mib": peak}

    return asyncio.run(run())


def _copy(archive: DirectArchive) -> int:
    """Read every object of the log, and write the bytes again; return how many. No client could recover with less."""
    objects, prefix = archive.objects, archive.keys.prefix
    keys = list(objects.keys(f"{prefix}wal/"))
    copied = 0
    parts: list[bytes] = []
    with ThreadPoolExecutor(GETS_AT_ONCE) as executor:
        found = map_ahead(executor, lambda key: objects.get_range(key, ALL).data, keys, max_calls=GETS_AT_ONCE)
        for number, data in enumerate(found):
            parts.append(data)
            copied += len(data)
            if sum(map(len, parts)) >= COPY_BYTES or number == len(keys) - 1:
                body = b"".join(parts)
                key = f"{prefix}copy/{number}"
                objects.put_new(key, BytesIO(body), size_bytes=len(body), crc32=crc32(body))
                parts.clear()
    return copied
