"""Handshakes are bounded, in number and in time, and whoever means one gets in."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from coldstream.gateway.proxy import tls_door
from coldstream.gateway.proxy.tls_door import TlsDoor
from tests.support.certificates import self_signed_pem, shows, trusts

HOST = "127.0.0.1"
WITHIN_S = 60.0


Loop = Callable[[], asyncio.AbstractEventLoop] | None


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Loop:
    """Return what makes the loop: both kinds accept connections in their own ways."""
    return None if request.param == "asyncio" else pytest.importorskip("uvloop").new_event_loop  # type: ignore[no-any-return]


def run(loop: Loop, main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main)


class Greeter(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(b"hello")  # type: ignore[attr-defined]
        transport.close()


@asynccontextmanager
async def open_door(path: Path, **options: int) -> AsyncIterator[tuple[TlsDoor, int, ssl.SSLContext]]:
    """Have a door; give its port, and what its clients know it by."""
    pem = self_signed_pem(path / "gateway.pem")
    with socket.create_server((HOST, 0), backlog=64) as listening:
        port = listening.getsockname()[1]
        door = TlsDoor(listening, shows(pem), Greeter, **options)
        try:
            yield door, port, trusts(pem)
        finally:
            door.close()
            await door.gone()


async def hello(port: int, trusting: ssl.SSLContext) -> bytes:
    async with asyncio.timeout(WITHIN_S):
        reader, writer = await asyncio.open_connection(HOST, port, ssl=trusting, server_hostname=HOST)
        try:
            return await reader.read()
        finally:
            writer.close()


async def silent(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(HOST, port)


async def ended(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(WITHIN_S):
        with suppress(ConnectionError):
            assert await reader.read() == b""


async def settled(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110  it is not ours to be told
            await asyncio.sleep(0.01)


def test_those_who_say_nothing_make_room_for_those_who_do(loop: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path, max_handshakes=3) as (door, port, trusting):
            clients = [await silent(port) for _ in range(8)]
            # The oldest are broken off; the last three are given time, until somebody else comes.
            for reader, _ in clients[:5]:
                await ended(reader)
            await settled(lambda: len(door._handshakes) == 3)
            assert await hello(port, trusting) == b"hello"
            await ended(clients[5][0])
            for _, writer in clients:
                writer.close()
            await settled(lambda: not door._tasks and not len(door._handshakes))

    run(loop, main())


def test_a_handshake_that_takes_too_long_is_given_up(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_door, "HANDSHAKE_S", 0.2)

    async def main() -> None:
        async with open_door(tmp_path) as (door, port, _):
            reader, writer = await silent(port)
            writer.write(b"\x16\x03\x01")  # half a record
            await ended(reader)
            writer.close()
            await settled(lambda: not door._tasks)

    run(loop, main())


def test_garbage_is_no_news(loop: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as (door, port, trusting):
            reader, writer = await silent(port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            async with asyncio.timeout(WITHIN_S):
                with suppress(ConnectionError):
                    await reader.read()
            writer.close()
            assert await hello(port, trusting) == b"hello"
            await settled(lambda: not door._tasks)

    run(loop, main())
    assert caplog.messages == []


def test_a_door_that_is_closed_takes_nobody_and_finishes_what_has_begun(loop: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as (door, port, trusting):
            plain = socket.create_connection((HOST, port))
            await settled(lambda: door._tasks)
            door.close()
            with pytest.raises(ConnectionRefusedError):
                await silent(port)
            plain.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=plain, ssl=trusting, server_hostname=HOST)
            assert await reader.read() == b"hello"
            writer.close()

    run(loop, main())


def test_without_a_free_descriptor_it_pauses_and_goes_on(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls_door, "_NO_ROOM_PAUSE_S", 0.05)

    async def main() -> None:
        async with open_door(tmp_path) as (door, port, trusting):
            listening, failures = door._listening, [1, 1, 1]

            class Full:
                def fileno(self) -> int:
                    return listening.fileno()

                def accept(self) -> tuple[socket.socket, tuple[str, int]]:
                    if failures:
                        failures.pop()
                        raise OSError(errno.EMFILE, "Too many open files")
                    return listening.accept()

                def close(self) -> None:
                    listening.close()

            door._listening = Full()  # type: ignore[assignment]
            assert await hello(port, trusting) == b"hello"
        assert len(caplog.messages) == 3

    run(loop, main())
