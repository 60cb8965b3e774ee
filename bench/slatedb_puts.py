"""SlateDB's Python binding, as the baseline of appends: puts, then a flush. Called by `harness.in_child`.

It runs in .venv-bench, which has SlateDB and nothing else: nothing of the layer can be imported here.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from typing import Any

from bench.harness import Stopwatch


def put_in_rounds(*, rounds: int, round_puts: int, value_bytes: int, as_batch: bool) -> dict[str, Any]:
    """Put rounds of values and flush after each; `as_batch` writes each round as one WriteBatch.

    The database is new, in the bucket `bench`, with SlateDB's default settings. Opening and closing it does not count.
    """
    from slatedb.uniffi import DbBuilder, ObjectStore, WriteBatch  # noqa: PLC0415  mypy's venv does not have it

    async def run() -> dict[str, Any]:
        db = await DbBuilder(f"slatedb-{secrets.token_hex(8)}", ObjectStore.resolve("s3://bench")).build()
        value = random.Random(1).randbytes(value_bytes)
        with Stopwatch() as watch:
            for start in range(0, rounds * round_puts, round_puts):
                keys = [b"%016d" % number for number in range(start, start + round_puts)]
                if as_batch:
                    batch = WriteBatch()
                    for key in keys:
                        batch.put(key, value)
                    await db.write(batch)
                else:
                    await asyncio.gather(*(db.put(key, value) for key in keys))
                await db.flush()
        await db.shutdown()
        size_bytes = rounds * round_puts * value_bytes
        return {"seconds": watch.seconds, "cpu_s": watch.cpu_s, "bytes": size_bytes}

    return asyncio.run(run())
