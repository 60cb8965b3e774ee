"""The broker of one stream, over connections that come and go."""

from __future__ import annotations

import asyncio
import time

import pytest
from rstream import schema

from coldstream.consumer.broker import ReconnectingBroker
from coldstream.errors import UnavailableError
from coldstream.live.address import BrokerAddress
from coldstream.manifest.spec import FIRST
from tests.support.stream_broker import FakeBroker


async def test_one_connection_serves_everything_until_it_breaks() -> None:
    async with FakeBroker() as fake:
        link = ReconnectingBroker(fake.address, "/", name="me")
        assert await asyncio.gather(*(link.query_offset("s", "me") for _ in range(5))) == [7] * 5
        assert fake.count(schema.Open) == 1
        fake.cut()
        await asyncio.sleep(0.05)
        assert await link.query_offset("s", "me") == 7
        assert fake.count(schema.Open) == 2
        await link.close()


async def test_the_next_connection_after_one_of_no_use_is_to_the_next_host() -> None:
    async with FakeBroker() as one, FakeBroker() as two:
        link = ReconnectingBroker(BrokerAddress((*one.address.hosts, *two.address.hosts)), "/", name="me")
        opened = []
        for _ in range(3):
            await link.query_offset("s", "me")
            opened.append((one.count(schema.Open), two.count(schema.Open)))
            await link.renew()
        assert opened == [(1, 0), (1, 1), (2, 1)]


async def test_a_broker_that_hangs_is_left_in_less_than_a_second() -> None:
    async with FakeBroker() as fake:
        before = asyncio.all_tasks()
        link = ReconnectingBroker(fake.address, "/", name="me")
        async with link.subscribe("s", FIRST):
            fake.says.clear()
            began = time.monotonic()
            await link.close()
        assert time.monotonic() - began < 1
        await asyncio.sleep(0.05)
        assert asyncio.all_tasks() == before


async def test_a_broker_that_is_away_is_not_waited_for() -> None:
    link = ReconnectingBroker(BrokerAddress((("127.0.0.1", 1),)), "/", name="me")
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
            await link.probe("s", FIRST)
    await link.close()
