"""A thousand connections, of which most are idle."""

from __future__ import annotations

import asyncio
import resource
from contextlib import AsyncExitStack
from pathlib import Path

from coldstream.gateway.frames.keys import Key
from coldstream.gateway.frames.requests import Credit, Subscribe
from coldstream.manifest.spec import NEXT, AtOffset
from coldstream.units import Offset
from tests.gateway.faults.abused import HOST, STREAM, Abused, read_all, read_on, until, write
from tests.gateway.faults.gateway_process import GatewayProcess, Held
from tests.gateway.faults.model_broker import ModelBroker
from tests.gateway.faults.model_log import ModelLog
from tests.gateway.faults.raw_client import RawClient, delivered

ALL, BUSY = 1000, 100
CHUNKS = 60
MOST_BYTES_IDLE = 40 << 10
"""Of memory of the process, for each idle connection and its one to the broker."""


async def test_idle_connections_take_little_memory_and_busy_ones_are_served_beside_them(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))  # both ends of all of them are here
    broker = ModelBroker()
    log = broker.declare(STREAM)
    write(log, CHUNKS)
    log.retain(20)
    server = await asyncio.get_running_loop().create_server(broker.connection, HOST, 0, backlog=512)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        async with GatewayProcess(broker.port, archived(log, CHUNKS - 10, tmp_path)) as gateway:
            await _live(broker, gateway)
    finally:
        server.close()
        broker.cut()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def archived(log: ModelLog, chunks: int, directory: Path) -> Path:
    """Write the first chunks of a log to a file."""
    file = directory / "archive"
    file.write_bytes(b"".join(one.delivered for one in log.chunks[:chunks]))
    return file


async def _live(broker: ModelBroker, gateway: GatewayProcess) -> None:
    world = Abused(broker, None, None, gateway, broker.streams[STREAM], None, None)  # type: ignore[arg-type]
    async with RawClient(gateway.port) as first:
        await first.login()
        await read_all(first, world)
        await first.close()
    before = await _settled(gateway, 0)
    async with AsyncExitStack() as idle:
        gate = asyncio.Semaphore(25)
        clients = await asyncio.gather(*(_come(idle, gateway.port, number, gate) for number in range(ALL - BUSY)))
        held = await _settled(gateway, ALL - BUSY)
        each_bytes = (held.resident_bytes - before.resident_bytes) / (ALL - BUSY)
        assert each_bytes < MOST_BYTES_IDLE, each_bytes
        assert held.tasks <= before.tasks + 2, "idle connections need no task"
        await asyncio.gather(*(_read_whole(gateway.port, world, gate) for _ in range(BUSY)))
        at = world.log.next_offset
        world.write(1)
        for client in clients[::2]:  # those that wait for what is new
            await read_on(client, world, at=at)
    after = await _settled(gateway, 0)
    assert (after.files, after.tasks, after.cold_subscriptions) == (before.files, before.tasks, 0)


async def _come(idle: AsyncExitStack, port: int, number: int, gate: asyncio.Semaphore) -> RawClient:
    async with gate:
        client = await idle.enter_async_context(RawClient(port))
        await client.login()
        if number % 2 == 0:
            await client.ask(Subscribe(client.next_id(), 0, STREAM, NEXT, 10, {}))
        return client


async def _read_whole(port: int, world: Abused, gate: asyncio.Semaphore) -> None:
    async with gate, RawClient(port) as client:
        await client.login()
        assert await read_all(client, world) == CHUNKS
        await client.close()


async def _settled(gateway: GatewayProcess, connections: int) -> Held:
    """Wait until it has so many connections, and return what it holds then."""
    held = await gateway.held()
    end = asyncio.get_running_loop().time() + 20
    while held.connections != connections or held.cold_subscriptions:
        assert asyncio.get_running_loop().time() < end, held
        await asyncio.sleep(0.1)
        held = await gateway.held()
    return held


async def test_a_gateway_that_is_killed_in_the_middle_is_replaced_and_nothing_is_missed(tmp_path):
    broker = ModelBroker()
    log = broker.declare(STREAM)
    write(log, 400)
    log.retain(100)
    server = await asyncio.get_running_loop().create_server(broker.connection, HOST, 0)
    broker.port = server.sockets[0].getsockname()[1]
    at = 0
    try:
        for chunks_before in (3, 50, 290, 320, 1000):
            async with GatewayProcess(broker.port, archived(log, 350, tmp_path)) as gateway:
                world = Abused(broker, None, None, gateway, log, None, None)  # type: ignore[arg-type]
                at = await _read_and_kill(gateway, world, at, chunks_before)
            await until(lambda: not broker.connections)
    finally:
        server.close()
        broker.cut()
    assert at == log.users_end


async def _read_and_kill(gateway: GatewayProcess, world: Abused, at: int, chunks: int) -> int:
    """Read so many chunks from an offset on, kill the gateway, and return where to go on."""
    async with RawClient(gateway.port) as client:
        await client.login()
        await client.ask(Subscribe(client.next_id(), 0, STREAM, AtOffset(Offset(at)), 10, {}))
        for _ in range(chunks):
            if at == world.log.users_end:
                break
            _, chunk = delivered(client.passed.popleft() if client.passed else await client.until(Key.DELIVER))
            expected = world.log.after_all(at)
            assert expected is not None
            assert chunk == expected.delivered
            at = expected.header.next_offset
            client.send(Credit(0, 1))
        gateway.kill()
        assert await client.is_ended()
    return at
