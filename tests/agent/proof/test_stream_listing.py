"""Names are asked for now and then, by all streams at once."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from coldstream.agent.proof import stream_listing as naming_module
from coldstream.agent.proof.management import BrokerStream, ManagementClient
from coldstream.agent.proof.stream_listing import StreamListing
from coldstream.errors import UnavailableError

ORDERS = BrokerStream("/", "orders", None, None, None)


class Management:
    def __init__(self) -> None:
        self.asked = 0
        self.is_down = False

    def streams(self) -> list[BrokerStream]:
        self.asked += 1
        if self.is_down:
            raise UnavailableError("the management API is down")
        return [ORDERS]


@pytest.fixture
def management() -> Management:
    return Management()


@pytest.fixture
def naming(management: Management) -> StreamListing:
    return StreamListing(cast(ManagementClient, management))


async def test_many_streams_ask_once(naming, management):
    assert await asyncio.gather(*(naming.known() for _ in range(20))) == [(ORDERS,)] * 20
    assert management.asked == 1


async def test_many_streams_do_not_wait_one_after_another_for_an_api_that_is_down(naming, management, monkeypatch):
    management.is_down = True
    told = await asyncio.gather(*(naming.known() for _ in range(20)), return_exceptions=True)
    assert all(isinstance(err, UnavailableError) for err in told)
    assert management.asked == 1
    management.is_down = False
    monkeypatch.setattr(naming_module, "RETRY_S", 0.0)
    assert await naming.known() == (ORDERS,)


async def test_without_an_api_nothing_is_known():
    assert await StreamListing(None).known() == ()


async def test_names_are_asked_for_again_after_a_while_and_not_before(naming, management, monkeypatch):
    for _ in range(3):
        assert await naming.known() == (ORDERS,)
    assert management.asked == 1
    monkeypatch.setattr(naming_module, "REFRESH_S", 0.0)
    await asyncio.sleep(0.01)
    await naming.known()
    assert management.asked == 2


async def test_who_needs_names_as_of_now_is_not_given_older_ones(naming, management, monkeypatch):
    monkeypatch.setattr(naming_module, "REST_S", 0.0)
    monkeypatch.setattr(naming_module, "REST_FACTOR", 0)
    loop = asyncio.get_running_loop()
    await naming.known()
    before = loop.time()
    await asyncio.gather(*(naming.known_since(before) for _ in range(20)))
    assert management.asked == 2
    await naming.known_since(before)
    assert management.asked == 2


async def test_the_api_is_left_alone_for_a_while_whoever_waits_for_it(naming, management, monkeypatch):
    monkeypatch.setattr(naming_module, "REST_S", 0.2)
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(3):
        await naming.known_since(loop.time())
    assert loop.time() - began >= 0.4
    assert management.asked == 3
