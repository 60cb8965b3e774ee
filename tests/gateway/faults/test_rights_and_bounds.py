"""What a client may not do to others by way of the archive, and what it may not make the gateway hold."""

from __future__ import annotations

import asyncio

from coldstream.gateway.frames.answers import MetadataUpdate
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import Credit, QueryOffset, StoreOffset, Subscribe
from coldstream.gateway.takeover import flow
from coldstream.live.delivered import chunk_of
from coldstream.manifest.spec import AtOffset
from coldstream.units import Offset
from tests.gateway.faults.abused import STREAM, Abused, abused, is_served, read_on, until
from tests.gateway.faults.garbage import frame
from tests.gateway.faults.raw_client import RawClient


async def _settled(client: RawClient, world: Abused) -> None:
    """Wait until all that was sent, and asked because of it, is answered."""
    for _ in range(3):
        client.send(QueryOffset(client.next_id(), "another", STREAM))
        await client.until(ANSWER | Key.QUERY_OFFSET)
    await asyncio.sleep(0.05)


async def test_who_may_not_read_a_stream_stores_no_offsets_for_those_who_may():
    async with abused() as world, RawClient(world.port) as client:
        await client.login()
        world.broker.refused.add(STREAM)
        client.send(*(StoreOffset("victim", STREAM, 2_999) for _ in range(3)))
        await _settled(client, world)
        assert not world.history.offsets
        world.broker.refused.clear()
        client.send(StoreOffset("mine", STREAM, 1), StoreOffset("mine", STREAM, 2), StoreOffset("other", STREAM, 7))
        await _settled(client, world)
        assert world.history.offsets == {("/", STREAM, "mine"): 2, ("/", STREAM, "other"): 7}


async def test_references_that_no_broker_takes_are_not_kept():
    async with abused() as world, RawClient(world.port) as client:
        await client.login()
        for number in range(100):
            client.send(StoreOffset(f"{number}".ljust(32_000, "x"), STREAM, number))
            client.send(StoreOffset("r", f"{number}".ljust(32_000, "x"), number))
        nothing = b"\xff\xff"
        client.send(frame(Key.STORE_OFFSET, nothing + nothing + bytes(8)))
        client.send(frame(Key.STORE_OFFSET, b"\0\1r" + nothing + bytes(8)))
        await _settled(client, world)
        assert not world.history.offsets


async def test_more_than_can_be_kept_ends_the_subscription_which_can_begin_anew(monkeypatch):
    monkeypatch.setattr(flow, "_MAX_KEPT_BYTES", 2000)
    async with abused(chunks=300, archived=300, kept=150) as world, RawClient(world.port) as client:
        await client.login()
        await client.ask(Subscribe(client.next_id(), 0, STREAM, AtOffset(Offset(2000)), 1, {}))
        await client.until(Key.DELIVER)
        world.write(300)
        world.archive.chunks = [chunk_of(one.delivered, source=STREAM) for one in world.log.chunks]
        world.log.retain(50)
        world.archive.answers.clear()
        client.send(Credit(0, 60))
        assert MetadataUpdate.from_body(await client.until(Key.METADATA_UPDATE)).code == Code.STREAM_NOT_AVAILABLE
        world.archive.answers.set()
        client.passed.clear()
        await client.ask(Subscribe(client.next_id(), 0, STREAM, AtOffset(Offset(2010)), 10, {}))
        await read_on(client, world, at=2010)
        await is_served(world)
        await client.close()
        await until(lambda: not world.history.open_readings)
