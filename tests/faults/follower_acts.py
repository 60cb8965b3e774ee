"""What a consumer reads of the archive: a stream that no broker has any more, up to its end."""

from __future__ import annotations

import asyncio
import hashlib
import os

from coldstream.consumer.archive import StreamArchive
from coldstream.consumer.archive_follower import ArchiveFollower
from coldstream.consumer.batch import BatchItem, ChunkBatch
from coldstream.errors import ColdstreamError
from coldstream.manifest.spec import FIRST
from coldstream.read.client import ResolverClient
from coldstream.read.fetch_pool import FetchPool
from coldstream.units import MIB
from tests.faults.fault_acts import Outcome
from tests.faults.faulty_world import ORDERS, FaultyWorld


def follow_archive(world: FaultyWorld) -> Outcome:
    """Take every chunk, in order."""
    try:
        return Outcome(asyncio.run(_follow(world)))
    except ColdstreamError as err:
        return Outcome(b"", f"{type(err).__name__}: {err}")
    except Exception as err:  # noqa: BLE001  this is what must not happen, and the judge says so
        return Outcome(b"", f"{type(err).__name__}: {err}", is_typed=False)


async def _follow(world: FaultyWorld) -> bytes:
    found = hashlib.sha256()

    async def give(item: BatchItem) -> None:
        if isinstance(item, ChunkBatch):
            for chunk in item.chunks:
                found.update(b"%d " % chunk.header.chunk_id)
                found.update(chunk.data)

    pool = FetchPool(2)
    client = ResolverClient(os.environ["COLDSTREAM_RESOLVER_URL"], sign=False)
    try:
        await ArchiveFollower(
            ORDERS.name,
            FIRST,
            ORDERS.incarnation,
            archive=StreamArchive(client, ORDERS.vhost, ORDERS.name, pool, MIB, MIB),
            give=give,
            is_over=True,
            end=world.staged[0].first_offset,
            archive_wait_s=0,
        ).run()
    finally:
        pool.close()
        client.close()
    return found.hexdigest().encode()
