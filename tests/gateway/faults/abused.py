"""A gateway between a model of a broker and a filled archive, in one loop, for clients that behave badly."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import ANSWER, Key
from coldstream.gateway.frames.requests import Credit, Subscribe
from coldstream.gateway.history.memory import MemoryArchive, MemoryHistory
from coldstream.live.delivered import chunk_of
from coldstream.manifest.spec import FIRST
from tests.gateway.faults.model_broker import ModelBroker
from tests.gateway.faults.model_log import ModelLog
from tests.gateway.faults.opened import OpenedGateway, open_gateway
from tests.gateway.faults.raw_client import ConnectionGoneError, RawClient, delivered

STREAM = "orders"
HOST = "127.0.0.1"
SOON_S = 5.0


@dataclass
class Abused:
    """What a test looks at. `log` is all that was ever written to `STREAM`."""

    broker: ModelBroker
    history: MemoryHistory
    figures: GatewayFigures
    gateway: OpenedGateway
    log: ModelLog
    archive: MemoryArchive
    server: asyncio.Server
    """The broker's."""

    @property
    def port(self) -> int:
        """Where clients connect."""
        return self.gateway.port

    def write(self, chunks: int, *, messages: int = 10, size: int = 20) -> None:
        """Write more, and let the broker deliver it."""
        write(self.log, chunks, messages=messages, size=size)
        self.broker.pump()

    async def until_idle(self) -> None:
        """Wait until every connection and all that belongs to it is gone."""

        def is_idle() -> bool:
            figures = self.figures
            served = figures.connections + figures.cold_subscriptions + figures.live_subscriptions
            return not (served or self.broker.connections or self.history.open_readings)

        await until(is_idle, lambda: f"{self.figures}, {len(self.broker.connections)} at the broker")


async def until(condition: Callable[[], bool], what: Callable[[], str] = str, seconds: float = SOON_S) -> None:
    """Wait until something is so."""
    end = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < end, what()
        await asyncio.sleep(0.01)


def write(log: ModelLog, chunks: int, *, messages: int = 10, size: int = 20) -> None:
    """Write chunks of messages that tell their offset."""
    for _ in range(chunks):
        log.write([(b"%d " % (log.next_offset + at)).ljust(size, b".") for at in range(messages)])


@asynccontextmanager
async def abused(
    *, chunks: int = 300, archived: int = 200, kept: int = 150, messages: int = 10, size: int = 20
) -> AsyncIterator[Abused]:
    """Have a stream whose first chunks are archived, and whose last ones the broker has."""
    loop = asyncio.get_running_loop()
    broker, history, figures = ModelBroker(), MemoryHistory(), GatewayFigures()
    log = broker.declare(STREAM)
    write(log, chunks, messages=messages, size=size)
    archive = history.put("/", STREAM, [chunk_of(one.delivered, source=STREAM) for one in log.chunks[:archived]])
    log.retain(kept)
    server = await loop.create_server(broker.connection, HOST, 0)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        gateway = await open_gateway(broker.port, history, figures)
        try:
            yield Abused(broker, history, figures, gateway, log, archive, server)
        finally:
            await gateway.close()
    finally:
        server.close()
        broker.cut()
        await asyncio.sleep(0.05)


async def read_all(client: RawClient, world: Abused, *, subscription_id: int = 0, credit: int = 10) -> int:
    """Subscribe from the first message, read to the end, and hold every byte against the log; return the chunks."""
    await client.ask(Subscribe(client.next_id(), subscription_id, STREAM, FIRST, credit, {}))
    return await read_on(client, world, subscription_id=subscription_id)


async def read_on(client: RawClient, world: Abused, *, subscription_id: int = 0, at: int = 0, give: int = 1) -> int:
    """Read from an offset to the end, giving credit for each chunk."""
    count = 0
    while at < world.log.users_end:
        body = client.passed.popleft() if client.passed else await client.body()
        if key_of(body)[0] & ANSWER or key_of(body)[0] == Key.HEARTBEAT:
            continue
        assert key_of(body)[0] == Key.DELIVER, body[:60]
        found_id, chunk = delivered(body)
        expected = world.log.after_all(at)
        assert expected is not None
        assert found_id == subscription_id
        assert chunk == expected.delivered, (at, expected.header)
        at = expected.header.next_offset
        count += 1
        if give:
            client.send(Credit(subscription_id, give))
    return count


async def is_served(world: Abused) -> None:
    """Check that a well-behaved client gets everything."""
    async with RawClient(world.port) as client:
        await client.login()
        assert await read_all(client, world)
        await client.close()


def open_files() -> int:
    """Return how many files and sockets this process has."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  a path object is no better here


def resident_bytes() -> int:
    """Return how much memory this process holds."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def comes(client: RawClient, key: int, seconds: float) -> int:
    """Read for a while, and return how many frames of a key came."""
    count = 0
    with suppress(TimeoutError, ConnectionGoneError):
        async with asyncio.timeout(seconds):
            while True:
                count += key_of(await client.body())[0] == key
    return count
