"""Table and bucket that stall, cut, corrupt and refuse, behind a gateway with the archive as it is deployed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from coldstream.errors import UnavailableError
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.frames.answers import MetadataUpdate
from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import Key
from coldstream.gateway.frames.requests import Credit, Subscribe, Unsubscribe
from coldstream.gateway.history.gateway_history import GatewayHistory
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.units import Offset
from tests.gateway.faults.abused import HOST, STREAM, Abused, is_served, read_all, read_on, until, write
from tests.gateway.faults.model_broker import ModelBroker
from tests.gateway.faults.opened import open_gateway
from tests.gateway.faults.raw_client import RawClient, RefusedError, delivered
from tests.support.http_archive import Fault, Get
from tests.support.interposed import Interposed
from tests.support.served_history import ServedHistory, served_history

NEW_CHUNKS, KEPT = 30, 50


@asynccontextmanager
async def abused_archive() -> AsyncIterator[tuple[Abused, ServedHistory, Interposed]]:
    """Have a broker with the last chunks of an archive and newer ones, and the archive's server and table."""
    with served_history() as served:
        loop = asyncio.get_running_loop()
        broker, figures = ModelBroker(), GatewayFigures()
        log = broker.declare(STREAM)
        for chunk in served.archive.chunks:
            log.copy(chunk.data)
        write(log, NEW_CHUNKS)
        log.retain(KEPT)
        table = Interposed(served.archive.table)
        history = GatewayHistory(
            cast(Any, table), served.archive.objects, figures=figures, read_timeout_s=1.0, attempts=2
        )
        server = await loop.create_server(broker.connection, HOST, 0)
        broker.port = server.sockets[0].getsockname()[1]
        gateway = await open_gateway(broker.port, history, figures)
        try:
            yield Abused(broker, cast(Any, history), figures, gateway, log, cast(Any, None), server), served, table
        finally:
            await gateway.close()
            await history.close()
            server.close()
            broker.cut()
            await asyncio.sleep(0.05)


async def test_the_whole_archive_and_the_broker_are_one_stream():
    async with abused_archive() as (world, _, _):
        await is_served(world)
        await until(lambda: not world.figures.connections)
        assert not world.figures.memory_used_bytes


@pytest.mark.parametrize(
    "fault",
    [Fault(status=503), Fault(keep_bytes=10), Fault(flip_at=60), Fault(status=500), Fault(stall_s=1.5)],
    ids=["slow down", "cut", "corrupt", "error", "stall"],
)
async def test_a_fault_of_the_bucket_that_passes_costs_time_and_nothing_else(fault):
    async with abused_archive() as (world, served, _):
        seen: dict[str, int] = {}

        def faults(get: Get) -> Fault | None:
            seen[get.key] = seen.get(get.key, 0) + 1
            return fault if seen[get.key] == 1 else None

        served.server.faults = faults
        await is_served(world)
        assert max(seen.values()) > 1


async def test_an_outage_of_the_bucket_is_waited_out():
    async with abused_archive() as (world, served, _), RawClient(world.port) as client:
        await client.login()
        await client.ask(Subscribe(client.next_id(), 0, STREAM, FIRST, 1, {}))
        client.passed.append(await client.until(Key.DELIVER))
        served.server.faults = lambda _: Fault(status=503)
        client.send(Credit(0, 9))
        task = asyncio.create_task(read_on(client, world))
        await asyncio.sleep(1.5)
        served.server.faults = lambda _: None
        assert await task == len(world.log.chunks)


async def test_a_corrupt_object_ends_its_subscription_with_no_wrong_byte_and_no_other():
    async with abused_archive() as (world, served, _), RawClient(world.port) as client:
        bad = served.archive.chunks[len(served.archive.chunks) // 2].key
        served.server.faults = lambda get: Fault(flip_at=60) if get.key == bad else None
        await client.login()
        await client.ask(Subscribe(client.next_id(), 1, STREAM, FIRST, 1000, {}))
        at = 0
        while key_of(body := client.passed.popleft() if client.passed else await client.body())[0] == Key.DELIVER:
            expected = world.log.after_all(at)
            assert expected is not None
            assert delivered(body) == (1, expected.delivered)
            at = expected.header.next_offset
        assert MetadataUpdate.from_body(body).stream == STREAM
        assert at == served.archive.chunks[len(served.archive.chunks) // 2].header.chunk_id
        served.server.faults = lambda _: None
        assert await read_all(client, world) == len(world.log.chunks)
        await client.close()
        await until(lambda: not world.figures.connections)


async def test_a_bucket_that_hangs_delays_no_other_request_of_the_client():
    async with abused_archive() as (world, served, _), RawClient(world.port, patience_s=5) as client:
        served.server.faults = lambda _: Fault(stall_s=30)
        await client.login()
        client.send(Subscribe(client.next_id(), 1, STREAM, FIRST, 10, {}))
        await asyncio.to_thread(served.server.got_one.wait, 5)
        began = time.monotonic()
        client.send(Credit(1, 5))
        await client.ask(Subscribe(client.next_id(), 2, STREAM, AtOffset(Offset(world.log.first_offset)), 10, {}))
        assert await read_on(client, world, subscription_id=2, at=world.log.first_offset) == KEPT
        await client.ask(Unsubscribe(client.next_id(), 1))
        await client.close()
        assert time.monotonic() - began < 3
        await until(lambda: not world.figures.connections)


async def test_a_table_that_throttles_costs_whoever_needs_the_archive_a_refusal_and_nobody_else_anything():
    async with abused_archive() as (world, _, table), RawClient(world.port) as client:
        await client.login()
        with table.failing("head", lambda: UnavailableError("ThrottlingException, as asked for by a test")):
            with pytest.raises(RefusedError, match="6"):
                await client.ask(Subscribe(client.next_id(), 1, STREAM, FIRST, 10, {}))
            at = world.log.first_offset
            await client.ask(Subscribe(client.next_id(), 2, STREAM, AtOffset(Offset(at)), 10, {}))
            assert await read_on(client, world, subscription_id=2, at=at) == KEPT
        await client.ask(Subscribe(client.next_id(), 1, STREAM, FIRST, 10, {}))
        assert await read_on(client, world, subscription_id=1) == len(world.log.chunks)


async def test_a_table_that_hangs_delays_no_goodbye():
    async with abused_archive() as (world, _, table), RawClient(world.port, patience_s=5) as client:
        await client.login()
        with table.held("head") as head, table.held("log_from_offset") as entries:
            client.send(Subscribe(client.next_id(), 1, STREAM, FIRST, 10, {}))
            await asyncio.sleep(0.2)
            await client.close()
            await until(lambda: not world.figures.connections)
            head.release()
            entries.release()
