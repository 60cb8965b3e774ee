"""Connections of clients that are too slow."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from coldstream.web import guarded_connection
from coldstream.web.guarded_connection import GuardedConnection
from tests.support.serving import served

PATIENCE_S = 60
LARGE = 48 << 20


async def health(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def large(_: Request) -> Response:
    return Response(bytes(LARGE))


@asynccontextmanager
async def small_server() -> AsyncIterator[ASGIApp]:
    yield Starlette(routes=[Route("/healthz", health), Route("/large", large)])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(small_server) as found:
        yield found


def connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_S)


def received_until_the_end(client: socket.socket) -> bytes:
    """Return what comes until the server ends the connection, in whatever way."""
    parts = []
    with suppress(ConnectionError):
        while part := client.recv(1 << 20):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTT", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_connection_whose_request_does_not_come_is_cut_off(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_connection, "HEAD_WITHIN_S", 0.05)
    with served(small_server) as url, connected(url) as client:
        with suppress(ConnectionError):
            client.sendall(begun)
        assert received_until_the_end(client) == b""


def test_a_connection_is_cut_off_that_sends_a_second_head_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(small_server) as url, connected(url) as client:
        # The first head has as long as it takes: this one's time begins with the response.
        client.sendall(b"GET /healthz HTTP/1.1\r\n")
        monkeypatch.setattr(guarded_connection, "HEAD_WITHIN_S", 0.05)
        client.sendall(b"Host: localhost\r\n\r\nG")
        assert received_until_the_end(client).startswith(b"HTTP/1.1 200 ")


def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    is_looked_at = threading.Event()
    look = GuardedConnection._abort_if_stalled

    def looked_at(connection: GuardedConnection, unread_before: int) -> None:
        look(connection, unread_before)
        is_looked_at.set()

    monkeypatch.setattr(GuardedConnection, "_abort_if_stalled", looked_at)
    monkeypatch.setattr(guarded_connection, "STALL_S", 0.05)
    with served(small_server) as url, connected(url) as client:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert is_looked_at.wait(PATIENCE_S)
        assert len(received_until_the_end(client)) < LARGE


def test_a_head_without_end_is_refused(url: str) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Large: " + b"x" * (40 << 10)
    with connected(url) as client:
        client.sendall(head)
        assert received_until_the_end(client).startswith(b"HTTP/1.1 400 ")
