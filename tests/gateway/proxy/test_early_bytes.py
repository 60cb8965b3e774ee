"""What a client sends before there is a way to the broker: uvloop reads once, although reading is paused."""

from __future__ import annotations

import asyncio
import socket

import pytest

from coldstream.gateway.frames.requests import Heartbeat
from tests.support.gateway import gateway_in_front_of

HEARTBEAT = Heartbeat().to_bytes()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data)
    writer.close()


def _talk(place: tuple[str, int], sent: bytes) -> bytes:
    with socket.create_connection(place, timeout=30) as client, client.makefile("rb") as answers:
        client.sendall(sent)
        return answers.read(len(sent))


async def _pass_through(frames: int) -> bytes:
    """Send frames at once, in front of a broker that sends back what it gets; return what comes."""
    async with (
        await asyncio.start_server(_echo, "127.0.0.1", 0) as broker,
        gateway_in_front_of(broker.sockets[0].getsockname()) as gateway,
    ):
        return await asyncio.to_thread(_talk, gateway.place, frames * HEARTBEAT)


@pytest.mark.parametrize("frames", [1, 1000, 20_000])
def test_what_comes_before_there_is_a_broker_is_passed_on_under_uvloop(frames: int) -> None:
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(_pass_through(frames)) == frames * HEARTBEAT


@pytest.mark.parametrize("frames", [1, 1000, 20_000])
def test_what_comes_before_there_is_a_broker_is_passed_on(frames: int) -> None:
    with asyncio.Runner() as runner:
        assert runner.run(_pass_through(frames)) == frames * HEARTBEAT
