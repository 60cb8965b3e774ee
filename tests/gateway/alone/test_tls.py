"""TLS towards clients; and connections that never come to speak it."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from rstream import Consumer

from coldstream.streams import DirectArchive, StreamClient
from tests.support.alone import HOST, RawClient, running_alone
from tests.support.certificates import self_signed_pem


def contexts(path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the server's context, and that of a client that trusts it."""
    pem = self_signed_pem(path / "gateway.pem")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(pem)
    return server, ssl.create_default_context(cafile=str(pem))


async def test_a_client_logs_in_by_tls(tmp_path: Path) -> None:
    server, trusting = contexts(tmp_path)
    archive = DirectArchive.in_memory()
    async with await StreamClient.open(archive) as streams:
        await streams.create("orders")
    async with running_alone(archive, tls=server) as alone:
        consumer = Consumer(HOST, port=alone.port, username="guest", password="guest", ssl_context=trusting)
        await consumer.start()
        assert await consumer.stream_exists("orders")
        assert not await consumer.stream_exists("nothing")
        await consumer.close()


async def test_who_does_not_speak_tls_takes_no_place(tmp_path: Path) -> None:
    server, _ = contexts(tmp_path)
    async with running_alone(DirectArchive.in_memory(), tls=server) as alone:
        async with RawClient.connected(alone.port) as client:
            client.send(b"GET / HTTP/1.1\r\n\r\n")
            assert await client.is_closed()
        await asyncio.sleep(0)
        assert alone.server.open_connections == 0
        assert alone.parts.figures.connections == 0
