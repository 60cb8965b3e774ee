"""Which of the broker's nodes a connection goes to, and by TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from rstream import schema

from coldstream.errors import InvalidSettingError, UnavailableError
from coldstream.gateway.frames.keys import Key
from coldstream.gateway.frames.requests import StoreOffset, Subscribe
from coldstream.gateway.proxy.options import ProxyOptions, Upstream
from coldstream.gateway.proxy.server import GatewayServer
from coldstream.gateway.proxy.upstream_connector import UpstreamConnector
from tests.support.certificates import self_signed_pem, shows, trusts
from tests.support.gateway import HOST, gateway_in_front_of
from tests.support.raw_stream_client import RawStreamClient
from tests.support.stream_broker import FakeBroker, chunk, delivery


def dead_port() -> tuple[socket.socket, int]:
    """Return a port at which nobody listens, and what holds it."""
    held = socket.socket()
    held.bind((HOST, 0))
    return held, held.getsockname()[1]


async def test_connections_go_to_the_nodes_in_turn() -> None:
    async with AsyncExitStack() as stack:
        brokers = [await stack.enter_async_context(FakeBroker()) for _ in range(2)]
        gateway = await stack.enter_async_context(gateway_in_front_of(*((HOST, each.port) for each in brokers)))
        for _ in range(4):
            client = await stack.enter_async_context(RawStreamClient(gateway.place))
            await client.open()
        assert [each.count(schema.Open) for each in brokers] == [2, 2]


async def test_a_node_that_is_down_is_passed_over() -> None:
    held, port = dead_port()
    with held:
        async with FakeBroker() as broker, gateway_in_front_of((HOST, port), (HOST, broker.port)) as gateway:
            for _ in range(3):
                async with RawStreamClient(gateway.place) as client:
                    await client.open()
            assert broker.count(schema.Open) == 3


async def test_a_node_that_does_not_answer_is_given_up_in_time() -> None:
    with socket.create_server((HOST, 0), backlog=1) as deaf:
        place = deaf.getsockname()[:2]
        # By TLS: the socket connects, but the server never says a word.
        connector = UpstreamConnector(Upstream((place,), ssl.create_default_context()), timeout_s=0.05)
        with pytest.raises(UnavailableError, match=r"no answer within 0\.05 s"):
            await connector.connect(asyncio.Protocol)


async def test_a_node_that_has_just_failed_comes_last() -> None:
    held, port = dead_port()
    with held:
        connector = UpstreamConnector(Upstream(((HOST, port), ("rabbit-2", 1))))
        with pytest.raises(UnavailableError, match=f"{HOST}:{port}: .*; rabbit-2:1: "):
            await connector.connect(asyncio.Protocol)
        loop = asyncio.get_running_loop()
        assert connector._order(loop.time())[0] == ("rabbit-2", 1)
        connector._failed_at.pop(("rabbit-2", 1))
        for _ in range(4):
            assert connector._order(loop.time()) == [("rabbit-2", 1), (HOST, port)]
        assert {connector._order(loop.time() + 11)[0] for _ in range(2)} == {("rabbit-2", 1), (HOST, port)}


async def test_without_a_node_there_is_nothing_to_do() -> None:
    with pytest.raises(InvalidSettingError):
        Upstream(())


async def test_an_address_that_is_taken_is_told() -> None:
    with socket.create_server((HOST, 0)) as taken:
        options = ProxyOptions(Upstream(((HOST, 1),)), listen=taken.getsockname()[:2])
        with pytest.raises(InvalidSettingError, match="already in use"):
            await GatewayServer(options).__aenter__()


async def test_a_socket_that_listens_already_is_used() -> None:
    async with FakeBroker() as broker:
        bound = socket.create_server((HOST, 0))
        place = bound.getsockname()
        async with (
            GatewayServer(ProxyOptions(Upstream(((HOST, broker.port),))), bound=bound) as gateway,
            RawStreamClient(place) as client,
        ):
            await client.open()
            assert gateway.place == place


async def test_both_sides_speak_tls(tmp_path: Path) -> None:
    pem = self_signed_pem(tmp_path / "both.pem")
    large = delivery(1, chunk(0, *(b"x" * 1000 for _ in range(2000))))
    async with FakeBroker(ssl_context=shows(pem)) as broker:
        upstream = Upstream(((HOST, broker.port),), trusts(pem))
        async with (
            GatewayServer(ProxyOptions(upstream, tls=shows(pem))) as gateway,
            RawStreamClient(gateway.place, trusts(pem)) as client,
        ):
            await client.open()
            client.send(Subscribe(5, 1, "orders", None, 10, {}))
            assert await client.code(Key.SUBSCRIBE) == 1
            broker.say(*[large] * 5)
            for _ in range(5):
                assert await client.frame() == large
            client.send(*(StoreOffset("me", "orders", offset) for offset in range(5000)))
            await broker.until(schema.StoreOffset, 5000)


async def test_a_broker_with_another_name_in_its_certificate_is_refused(tmp_path: Path) -> None:
    pem = self_signed_pem(tmp_path / "broker.pem", name="rabbit-1")
    async with FakeBroker(ssl_context=shows(pem)) as broker:
        place = ("localhost", broker.port)
        with pytest.raises(UnavailableError, match="not valid for 'localhost'"):
            await UpstreamConnector(Upstream((place,), trusts(pem))).connect(asyncio.Protocol)
        await UpstreamConnector(Upstream((place,), trusts(pem), "rabbit-1")).connect(_Closing)


class _Closing(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


async def test_a_client_without_tls_is_ended_by_a_listener_with_it(tmp_path: Path) -> None:
    pem = self_signed_pem(tmp_path / "gateway.pem")
    async with (
        FakeBroker() as broker,
        gateway_in_front_of((HOST, broker.port), tls=shows(pem)) as gateway,
        RawStreamClient(gateway.place) as client,
    ):
        client.send(StoreOffset("me", "orders", 1), bytes(100))
        assert await client.ended()
        assert gateway.open_connections == 0
