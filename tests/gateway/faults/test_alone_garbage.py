"""Garbage and goodbyes half-way, sent to a gateway that answers alone."""

from __future__ import annotations

import asyncio

from coldstream.gateway.frames.keys import Key
from coldstream.gateway.frames.requests import Subscribe
from coldstream.manifest.spec import FIRST
from tests.gateway.faults.abused import until
from tests.gateway.faults.garbage import FATAL_AFTER_LOGIN, FATAL_BEFORE_LOGIN, HARMLESS, STREAM
from tests.gateway.faults.raw_client import RawClient
from tests.support.alone import running_alone
from tests.support.interposed_archive import InterposedArchive

FORGIVEN = {"an answer to a question that nobody asked", "a ConsumerUpdate's answer cut short"}


async def _is_ended(port: int, garbage: bytes, *, logs_in: bool) -> bool:
    async with RawClient(port) as client:
        if logs_in:
            await client.login()
            client.send(Subscribe(5, 0, STREAM, FIRST, 5, {}))
        client.send(garbage)
        return await client.is_ended()


async def test_garbage_before_login_ends_the_connection_and_no_other():
    async with running_alone(InterposedArchive().archive) as alone, RawClient(alone.port) as other:
        await other.login()
        ended = await asyncio.gather(
            *(_is_ended(alone.port, garbage, logs_in=False) for garbage in FATAL_BEFORE_LOGIN.values())
        )
        assert dict(zip(FATAL_BEFORE_LOGIN, ended, strict=True)) == dict.fromkeys(FATAL_BEFORE_LOGIN, True)
        await other.close()
        await until(lambda: not alone.parts.figures.connections)


async def test_garbage_after_login_ends_the_connection_and_what_it_read():
    fatal = {what: garbage for what, garbage in FATAL_AFTER_LOGIN.items() if what not in FORGIVEN}
    async with running_alone(InterposedArchive().archive) as alone:
        ended = await asyncio.gather(*(_is_ended(alone.port, garbage, logs_in=True) for garbage in fatal.values()))
        assert dict(zip(fatal, ended, strict=True)) == dict.fromkeys(fatal, True)
        await until(lambda: not (alone.parts.figures.connections or alone.parts.figures.cold_subscriptions))


async def test_what_makes_no_sense_is_answered_and_the_connection_goes_on():
    async with running_alone(InterposedArchive().archive) as alone:
        for what, frames in HARMLESS.items():
            async with RawClient(alone.port) as client:
                await client.login()
                client.send(frames)
                await client.exchange_versions()
                assert all(body[1] != Key.CLOSE for body in client.passed), what
                await client.close()
