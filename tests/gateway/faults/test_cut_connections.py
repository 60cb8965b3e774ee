"""Connections that end in the middle of something, on either side."""

from __future__ import annotations

import asyncio
import random

import pytest

from coldstream.gateway.frames.keys import Key
from coldstream.gateway.frames.requests import Subscribe
from coldstream.manifest.spec import FIRST
from tests.gateway.faults.abused import STREAM, abused, comes, is_served, open_files, until
from tests.gateway.faults.garbage import GREETING
from tests.gateway.faults.raw_client import ConnectionGoneError, RawClient

HALF_WAYS = ("nothing", "half a frame", "half a greeting", "login", "half a Subscribe", "a Subscribe", "deliveries")


async def _come(port: int, how_far: str, ending: str) -> None:
    async with RawClient(port) as client:
        if how_far == "half a frame":
            client.send(GREETING[:7])
        elif how_far == "half a greeting":
            client.send(GREETING[:-3])
        elif how_far != "nothing":
            await client.login()
            subscribe = Subscribe(9, 0, STREAM, FIRST, 50, {}).to_bytes()
            if how_far == "half a Subscribe":
                client.send(subscribe[:20])
            elif how_far != "login":
                client.send(subscribe)
            if how_far == "deliveries":
                await client.until(Key.DELIVER)
        if ending == "half-closed":
            client.writer.write_eof()
            await client.is_ended()
        else:
            await asyncio.sleep(random.random() * 0.01)


@pytest.mark.parametrize("ending", ["cut", "half-closed"])
@pytest.mark.parametrize("how_far", HALF_WAYS)
async def test_a_client_that_goes_half_way_leaves_nothing(how_far, ending):
    async with abused() as world:
        await asyncio.gather(*(_come(world.port, how_far, ending) for _ in range(10)))
        await world.until_idle()
        await is_served(world)


async def test_a_broker_that_dies_ends_its_clients_connections_and_takes_new_ones_when_it_is_back():
    async with abused() as world:
        async with RawClient(world.port) as cold, RawClient(world.port) as idle:
            await cold.login()
            await idle.login()
            await cold.ask(Subscribe(1, 0, STREAM, FIRST, 5, {}))
            await cold.until(Key.DELIVER)
            world.broker.cut()
            assert await cold.is_ended()
            assert await idle.is_ended()
        await world.until_idle()
        await is_served(world)


async def test_a_broker_that_cannot_be_reached_costs_the_client_its_connection_and_nothing_else():
    async with abused() as world:
        world.server.close()
        world.broker.cut()
        async with RawClient(world.port) as client:
            with pytest.raises(ConnectionGoneError):
                await client.login()
        await until(lambda: not world.figures.connections)
        assert world.figures.broker_failures_total


async def test_connections_that_come_and_go_leave_no_file_and_no_task_behind():
    async with abused() as world:
        await is_served(world)
        await world.until_idle()
        files, tasks = open_files(), len(asyncio.all_tasks())
        for _ in range(5):
            ways = [(way, ending) for way in HALF_WAYS for ending in ("cut", "half-closed")] * 2
            await asyncio.gather(*(_come(world.port, *way) for way in ways))
        await world.until_idle()
        await until(lambda: open_files() <= files, lambda: f"{open_files()} of {files}")
        await until(lambda: len(asyncio.all_tasks()) <= tasks, lambda: f"{asyncio.all_tasks()}")


async def test_a_stream_whose_leader_moves_ends_its_subscriptions_alone():
    async with abused(chunks=2000, archived=1900) as world, RawClient(world.port) as client:
        world.broker.declare("other")
        await client.login()
        await client.ask(Subscribe(client.next_id(), 0, STREAM, FIRST, 5, {}))
        await client.until(Key.DELIVER)
        world.broker.move_leader(STREAM)
        await client.until(Key.METADATA_UPDATE)
        client.passed.clear()
        await until(lambda: not world.history.open_readings)
        assert await comes(client, Key.DELIVER, 0.2) == 0
        await client.ask(Subscribe(client.next_id(), 0, STREAM, FIRST, 5, {}))
        await client.until(Key.DELIVER)
