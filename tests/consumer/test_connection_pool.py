"""Many streams over few connections."""

from __future__ import annotations

import asyncio
import time

import pytest
from rstream import schema

from coldstream.consumer.broker import ReconnectingBroker
from coldstream.consumer.connection_pool import MAX_STREAMS, ConnectionPool
from coldstream.errors import UnavailableError
from coldstream.live import connection
from coldstream.live.address import BrokerAddress
from tests.support.stream_broker import HOST, FakeBroker, answer


def advertise(fake: FakeBroker, node: int) -> None:
    """Have a broker call itself by its own port, as node `node` of a cluster."""
    told = {"advertised_host": HOST, "advertised_port": str(fake.port)}
    fake.says[schema.Open] = lambda asked: [
        answer(schema.OpenResponse(asked.correlation_id, 1, [schema.Property(*pair) for pair in told.items()]))
    ]


def place_streams(fakes: list[FakeBroker]) -> None:
    """Have stream `x-1` on node 1 alone, and so on, and every other node refuse to serve it."""
    for node, fake in enumerate(fakes):
        advertise(fake, node)

        def members(asked: schema.Frame) -> list[bytes]:
            (stream,) = asked.streams
            home = int(stream.rpartition("-")[2])
            brokers = [schema.Broker(home, HOST, fakes[home].port)]
            found = [schema.StreamMetadata(stream, 1, home, [])]
            return [answer(schema.MetadataResponse(asked.correlation_id, brokers, found))]

        def offset(asked: schema.Frame, node: int = node) -> list[bytes]:
            is_here = asked.stream.endswith(f"-{node}")
            return [answer(schema.QueryOffsetResponse(asked.correlation_id, 1 if is_here else 6, 7))]

        fake.says[schema.Metadata] = members
        fake.says[schema.QueryOffset] = offset


async def stored(broker: ReconnectingBroker, stream: str) -> int | None:
    """Ask as a follower does: again after leaving a connection that is of no use."""
    while True:
        try:
            return await broker.query_offset(stream, "me")
        except UnavailableError:
            await broker.renew()


async def test_256_streams_take_three_connections() -> None:
    async with FakeBroker() as fake:
        pool = ConnectionPool(fake.address, "/", name="me")
        brokers = [ReconnectingBroker(pool) for _ in range(256)]
        assert set(await asyncio.gather(*(broker.query_offset("s", "me") for broker in brokers))) == {7}
        assert fake.count(schema.Open) == -(-256 // MAX_STREAMS) == 3
        fake.cut()
        await asyncio.sleep(0.05)
        assert set(await asyncio.gather(*(broker.query_offset("s", "me") for broker in brokers))) == {7}
        assert fake.count(schema.Open) == 6
        await pool.close()


async def test_streams_on_one_node_each_take_a_connection_a_node() -> None:
    async with FakeBroker() as one, FakeBroker() as two, FakeBroker() as three:
        fakes = [one, two, three]
        place_streams(fakes)
        pool = ConnectionPool(one.address, "/", name="me")
        brokers = {f"s{at}-{at % 3}": ReconnectingBroker(pool) for at in range(60)}
        async with asyncio.timeout(20):
            offsets = await asyncio.gather(*(stored(broker, stream) for stream, broker in brokers.items()))
        assert set(offsets) == {7}
        # To get to another node, the first one is asked once more where that is.
        assert [fake.count(schema.Open) for fake in fakes] == [3, 1, 1]
        await pool.close()


async def test_a_stream_that_leaves_takes_nobody_with_it() -> None:
    async with FakeBroker() as fake:
        fake.says[schema.Metadata] = lambda asked: [answer(schema.MetadataResponse(asked.correlation_id, [], []))]
        pool = ConnectionPool(fake.address, "/", name="me")
        brokers = [ReconnectingBroker(pool) for _ in range(3)]
        kept = [await broker._opened("s") for broker in brokers]
        for _ in range(2):  # only the second time nobody can say that another node would do
            await brokers[0].renew()
            assert await brokers[0].query_offset("s", "me") == 7
        assert [await broker._opened("s") for broker in brokers[1:]] == kept[1:]
        assert not kept[1].is_lost
        assert fake.count(schema.Open) == 2
        await pool.close()


async def test_a_connection_that_everybody_has_left_is_closed() -> None:
    async with FakeBroker() as fake:
        pool = ConnectionPool(fake.address, "/", name="me")
        brokers = [ReconnectingBroker(pool) for _ in range(3)]
        opened = [await broker._opened("s") for broker in brokers]
        for broker in brokers:
            assert not opened[0].is_lost
            await broker.renew()
        assert opened[0].is_lost


async def test_streams_that_wait_for_a_broker_that_is_away_share_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_S", 0.3)
    async with FakeBroker() as fake:
        fake.says.clear()  # it accepts connections, and says nothing
        pool = ConnectionPool(BrokerAddress(fake.address.hosts), "/", name="me")
        brokers = [ReconnectingBroker(pool) for _ in range(100)]
        began = time.monotonic()
        results = await asyncio.gather(*(one.query_offset("s", "me") for one in brokers), return_exceptions=True)
        assert all(isinstance(one, UnavailableError) for one in results)
        assert fake.count(schema.PeerProperties) == 1
        assert time.monotonic() - began < 10
        await pool.close()
