from __future__ import annotations

import pytest

from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import Key
from coldstream.gateway.frames.requests import Credit, Subscribe
from coldstream.manifest.spec import FIRST
from tests.gateway.faults.abused import STREAM, abused, is_served, read_all, read_on
from tests.gateway.faults.garbage import (
    BEFORE_LOGIN_TOO_EARLY,
    FATAL_AFTER_LOGIN,
    FATAL_BEFORE_LOGIN,
    GREETING,
    HARMLESS,
)
from tests.gateway.faults.raw_client import RawClient


@pytest.mark.parametrize("what", FATAL_BEFORE_LOGIN)
async def test_garbage_before_login_ends_the_connection_and_no_other(what):
    async with abused() as world, RawClient(world.port) as other:
        await other.login()
        async with RawClient(world.port) as client:
            client.send(FATAL_BEFORE_LOGIN[what])
            assert await client.is_ended()
        assert await read_all(other, world)
        await other.close()
        await world.until_idle()


@pytest.mark.parametrize("what", FATAL_AFTER_LOGIN)
async def test_garbage_after_login_ends_the_connection_and_what_it_read(what):
    async with abused() as world, RawClient(world.port) as other:
        await other.login()
        async with RawClient(world.port) as client:
            await client.login()
            await client.ask(Subscribe(client.next_id(), 0, STREAM, FIRST, 5, {}))
            await client.until(Key.DELIVER)
            client.send(FATAL_AFTER_LOGIN[what])
            assert await client.is_ended()
        assert await read_all(other, world)
        await other.close()
        await world.until_idle()


@pytest.mark.parametrize("what", HARMLESS)
async def test_what_makes_no_sense_is_answered_and_deliveries_go_on(what):
    async with abused() as world, RawClient(world.port) as client:
        await client.login()
        await client.ask(Subscribe(client.next_id(), 0, STREAM, FIRST, 1, {}))
        client.send(HARMLESS[what], Credit(0, 9))
        await _read_past(client, world)
        await client.close()
        await world.until_idle()


async def _read_past(client: RawClient, world) -> None:
    """Read to the end, whatever answers come in between."""
    kept = []
    while not kept or len(kept) < len([one for one in world.log.chunks if one.is_user]):
        body = client.passed.popleft() if client.passed else await client.body()
        if key_of(body)[0] == Key.DELIVER:
            kept.append(body)
            client.send(Credit(0, 1))
    client.passed.extend(kept)
    await read_on(client, world, give=0)


@pytest.mark.parametrize("what", BEFORE_LOGIN_TOO_EARLY)
async def test_who_has_not_logged_in_gets_nothing_of_the_archive(what):
    async with abused() as world:
        async with RawClient(world.port, patience_s=1) as client:
            client.send(GREETING, BEFORE_LOGIN_TOO_EARLY[what])
            await client.is_ended()
            assert all(key_of(body)[0] != Key.DELIVER for body in client.passed)
        assert not world.history.asked["read"]
        assert not world.history.offsets
        await is_served(world)


async def test_a_handshake_in_single_bytes_is_a_handshake():
    async with abused() as world, RawClient(world.port) as client:
        real, client.send = client.send, None  # type: ignore[assignment,method-assign]

        def send_bytewise(*frames) -> None:
            for one in frames:
                for byte in one if isinstance(one, bytes) else one.to_bytes():
                    real(bytes([byte]))

        client.send = send_bytewise  # type: ignore[method-assign]
        await client.login()
        assert await read_all(client, world) == len(world.log.chunks)
