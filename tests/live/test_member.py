"""Streams with one replica each in a real cluster of three: reached directly, and through a load balancer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from coldstream.consumer.broker import ReconnectingBroker
from coldstream.consumer.connection_pool import ConnectionPool
from coldstream.errors import UnavailableError
from coldstream.live import member
from coldstream.live.address import BrokerAddress
from coldstream.live.connection import LiveConnection
from coldstream.live.member import connect_to_member
from coldstream.manifest.spec import FIRST
from tests.support.broker import find_rabbitmq
from tests.support.cluster import Cluster
from tests.support.fixtures import do_without
from tests.support.tcp_relay import RoundRobin

pytestmark = pytest.mark.broker

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes, and on each a stream `alone-N` with its only replica."""
    if find_rabbitmq() is None:
        do_without("RabbitMQ")
    with Cluster() as running:
        for number, node in enumerate(running.nodes):
            node.ctl(
                "eval",
                f'rabbit_stream_manager:create(<<"/">>, <<"alone-{number}">>,'
                ' #{<<"initial-cluster-size">> => <<"1">>, <<"queue-leader-locator">> => <<"client-local">>},'
                ' <<"guest">>).',
            )
            with node.connect() as streams:
                streams.publish(f"alone-{number}", [b"%d" % number])
        yield running


def addresses(cluster: Cluster) -> list[BrokerAddress]:
    return [BrokerAddress(((HOST, node.stream_port),)) for node in cluster.nodes]


async def first_message(connection: LiveConnection, stream: str) -> bytes:
    try:
        chunk = await connection.probe(stream, FIRST, timeout_s=10)
    finally:
        await connection.__aexit__(None, None, None)
    assert chunk is not None
    return bytes(chunk.data)


async def test_from_any_node_each_stream_is_found_on_its_own(cluster: Cluster) -> None:
    for address in addresses(cluster):
        for number in range(3):
            connection = await connect_to_member(address, "/", f"alone-{number}", name="test")
            assert connection.advertised in await connection.member_places(f"alone-{number}")
            assert (await first_message(connection, f"alone-{number}")).endswith(b"%d" % number)


async def test_through_a_load_balancer_it_connects_until_the_node_is_the_one(cluster: Cluster) -> None:
    async with RoundRobin([node.stream_port for node in cluster.nodes]) as balancer:
        address = BrokerAddress(((HOST, balancer.port),), load_balanced=True)
        for number in (2, 1, 0, 0, 2):
            before = balancer.connections
            connection = await connect_to_member(address, "/", f"alone-{number}", name="test")
            assert (await first_message(connection, f"alone-{number}")).endswith(b"%d" % number)
            assert balancer.connections - before <= 4


async def test_a_balancer_that_never_leads_to_a_member_is_told(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "MAX_TRIES", 3)
    address = replace(addresses(cluster)[0], load_balanced=True)
    with pytest.raises(UnavailableError, match=r"'alone-1'.*3 connections through the load balancer .* led to others"):
        await connect_to_member(address, "/", "alone-1", name="test")


async def test_names_that_mean_nothing_here_are_told_and_the_other_hosts_are_tried(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = addresses(cluster)
    unknown = [two.hosts, three.hosts]
    entered = LiveConnection.__aenter__

    async def entering(self: LiveConnection) -> LiveConnection:
        if self._address.hosts in unknown:
            unknown.remove(self._address.hosts)  # as the member's name; as a host of the address it is known
            raise UnavailableError("the name means nothing here")
        return await entered(self)

    monkeypatch.setattr(LiveConnection, "__aenter__", entering)
    both = replace(one, hosts=(*one.hosts, *two.hosts))
    connection = await connect_to_member(both, "/", "alone-1", name="test")
    assert (await first_message(connection, "alone-1")).endswith(b"1")
    with pytest.raises(UnavailableError, match=r"its members are at .*: the name means nothing here; .* another node"):
        await connect_to_member(both, "/", "alone-2", name="test")


async def test_a_consumers_broker_gets_there_by_itself(cluster: Cluster) -> None:
    async with RoundRobin([node.stream_port for node in cluster.nodes]) as balancer:
        for address in (addresses(cluster)[0], BrokerAddress(((HOST, balancer.port),), load_balanced=True)):
            pool = ConnectionPool(address, "/", name="test")
            broker = ReconnectingBroker(pool)
            for stream in ("alone-0", "alone-1", "alone-2"):
                for _ in range(10):
                    try:
                        chunk = await broker.probe(stream, FIRST)
                    except UnavailableError:
                        await broker.renew()
                    else:
                        break
                    await asyncio.sleep(0.1)
                assert chunk is not None
            await pool.close()
