"""One broker, over connections that break and reopen."""

from __future__ import annotations

import asyncio
import time

import pytest
from rstream import schema

from coldstream.consumer.broker import ReconnectingBroker
from coldstream.consumer.connection_pool import ConnectionPool
from coldstream.errors import UnavailableError
from coldstream.live.address import BrokerAddress
from coldstream.manifest.spec import FIRST
from tests.support.stream_broker import FakeBroker, answer


async def test_one_connection_serves_everything_until_it_breaks() -> None:
    async with FakeBroker() as fake:
        pool = ConnectionPool(fake.address, "/", name="me")
        broker = ReconnectingBroker(pool)
        assert await asyncio.gather(*(broker.query_offset("s", "me") for _ in range(5))) == [7] * 5
        assert fake.count(schema.Open) == 1
        fake.cut()
        await asyncio.sleep(0.05)
        assert await broker.query_offset("s", "me") == 7
        assert fake.count(schema.Open) == 2
        await pool.close()


async def test_the_next_connection_after_one_of_no_use_is_to_the_next_host() -> None:
    async with FakeBroker() as one, FakeBroker() as two:
        for fake in (one, two):
            fake.says[schema.Metadata] = lambda asked: [answer(schema.MetadataResponse(asked.correlation_id, [], []))]
        pool = ConnectionPool(BrokerAddress((*one.address.hosts, *two.address.hosts)), "/", name="me")
        broker = ReconnectingBroker(pool)
        opened = []
        for _ in range(3):
            await broker.query_offset("s", "me")
            opened.append((one.count(schema.Open), two.count(schema.Open)))
            await broker.renew()
        assert opened == [(1, 0), (1, 1), (2, 1)]


async def test_a_broker_that_hangs_is_left_in_less_than_a_second() -> None:
    async with FakeBroker() as fake:
        before = asyncio.all_tasks()
        pool = ConnectionPool(fake.address, "/", name="me")
        broker = ReconnectingBroker(pool)
        async with broker.subscribe("s", FIRST):
            fake.says.clear()
            began = time.monotonic()
            await pool.close()
        assert time.monotonic() - began < 1
        await asyncio.sleep(0.05)
        assert asyncio.all_tasks() == before


async def test_a_broker_that_is_away_is_not_waited_for() -> None:
    pool = ConnectionPool(BrokerAddress((("127.0.0.1", 1),)), "/", name="me")
    broker = ReconnectingBroker(pool)
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
            await broker.probe("s", FIRST)
    await pool.close()
