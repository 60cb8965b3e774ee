"""A clean end deletes the client's WALs, but not one that a head still names: elsewhere it would look like none."""

from __future__ import annotations

import asyncio

import pytest

from coldstream.errors import ExpiredEpochError, UnavailableError
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.streams import StreamClient
from coldstream.streams.wal.s3_store import ExpressWalStore
from coldstream.units import Offset
from tests.support.interposed_archive import InterposedArchive, bodies


async def open_in_vain(world: InterposedArchive, client: StreamClient) -> None:
    """Open the stream, and die in the recovery, with the epoch taken."""
    with world.objects.failing("put_new", lambda: UnavailableError("no answer")), pytest.raises(UnavailableError):
        await client.open_stream("orders")


def test_an_opening_that_failed_leaves_its_wal_to_be_found() -> None:
    async def run() -> None:
        world, wal = InterposedArchive(), ExpressWalStore(MemoryObjects(), Keys(""))
        first = await StreamClient.open(world.archive, wal=wal)
        await first.create("orders")
        await (await first.open_stream("orders")).append([b"a"])
        second = await StreamClient.open(world.archive, wal=wal)
        await open_in_vain(world, second)
        await second.close()
        async with await StreamClient.open(world.archive, wal=wal) as third:
            assert await bodies(await third.open_stream("orders")) == [b"a"]
        await first.close()

    asyncio.run(run())


def test_a_handle_that_expired_leaves_its_wal_until_the_other_opening_has_recovered() -> None:
    async def run() -> None:
        world, wal = InterposedArchive(), ExpressWalStore(MemoryObjects(), Keys(""))
        first = await StreamClient.open(world.archive, wal=wal)
        await first.create("orders")
        stream = await first.open_stream("orders")
        await stream.append([b"a"])
        await stream.flush()
        second = await StreamClient.open(world.archive, wal=wal)
        await open_in_vain(world, second)
        with pytest.raises(ExpiredEpochError):
            await stream.trim(Offset(1))
        await first.close()
        await second.close()
        async with await StreamClient.open(world.archive, wal=wal) as third:
            assert await bodies(await third.open_stream("orders")) == [b"a"]

    asyncio.run(run())
