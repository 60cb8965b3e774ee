"""Clients that ask for more than there can be, ask again and again, or take nothing of what they asked for."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from coldstream.gateway.frames.answers import CodeAnswer
from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import (
    Credit,
    Heartbeat,
    QueryOffset,
    StoreOffset,
    StreamStats,
    Subscribe,
    Unsubscribe,
)
from coldstream.live.delivered import chunk_of
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.units import Offset
from tests.gateway.faults.abused import (
    STREAM,
    abused,
    comes,
    is_served,
    read_all,
    read_on,
    resident_bytes,
    until,
    write,
)
from tests.gateway.faults.raw_client import ConnectionGoneError, RawClient, delivered

MANY = 65_535
MIB = 1 << 20


@pytest.mark.parametrize("spec", [FIRST, AtOffset(Offset(2500))], ids=["in the archive", "at the broker"])
async def test_a_flood_of_credits_reaches_the_broker_in_small_doses(spec):
    async with abused() as world, RawClient(world.port) as client:
        await client.login()
        await client.ask(Subscribe(client.next_id(), 0, STREAM, spec, MANY, {}))
        client.send(*[Credit(0, MANY)] * 2000)
        at = 0 if spec is FIRST else 2500
        await read_on(client, world, at=at, give=0)
        world.write(2000)
        await read_on(client, world, at=3000, give=0)
        if spec is FIRST:
            assert world.broker.most_credit <= 256
        await client.close()
        await world.until_idle()


async def test_credits_are_counted_whatever_their_sum():
    async with abused(chunks=1000, archived=900, kept=300) as world, RawClient(world.port) as client:
        await client.login()
        await client.ask(Subscribe(client.next_id(), 0, STREAM, FIRST, 0, {}))
        for given in (1, 2, 3, 0, 255, 256, 257):
            client.send(Credit(0, given))
            for _ in range(given):
                client.passed.append(await client.until(Key.DELIVER))
            assert await comes(client, Key.DELIVER, 0.1) == 0
        client.send(Credit(0, MANY))
        assert await read_on(client, world, give=0) == 1000


async def test_255_subscriptions_of_a_connection_are_each_whole():
    async with abused(chunks=40, archived=30, kept=20) as world, RawClient(world.port) as client:
        await client.login()
        client.send(*(Subscribe(client.next_id(), number, STREAM, FIRST, 2, {}) for number in range(255)))
        at = dict.fromkeys(range(255), 0)
        while any(offset < world.log.users_end for offset in at.values()):
            body = client.passed.popleft() if client.passed else await client.body()
            if key_of(body)[0] == ANSWER | Key.SUBSCRIBE:
                assert CodeAnswer.from_body(body).code == Code.OK
                continue
            number, chunk = delivered(body)
            expected = world.log.after_all(at[number])
            assert expected is not None
            assert chunk == expected.delivered
            at[number] = expected.header.next_offset
            client.send(Credit(number, 1))
        client.send(Subscribe(client.next_id(), 77, STREAM, FIRST, 2, {}))
        assert CodeAnswer.from_body(await client.until(ANSWER | Key.SUBSCRIBE)).code == Code.SUBSCRIPTION_EXISTS
        await client.close()
        await world.until_idle()


async def test_a_storm_of_subscriptions_is_answered_one_by_one_in_order():
    times = 300
    async with abused() as world, RawClient(world.port) as client:
        await client.login()
        for number in range(times):
            client.send(Subscribe(2 * number + 1000, 5, STREAM, FIRST, 3, {}), Unsubscribe(2 * number + 1001, 5))
        answers = []
        while len(answers) < 2 * times:
            body = await client.body()
            if key_of(body)[0] != Key.DELIVER:
                answers.append((key_of(body)[0] & ~ANSWER, CodeAnswer.from_body(body)))
        assert [one.code for _, one in answers] == [Code.OK] * (2 * times)
        assert [one.correlation_id for _, one in answers] == list(range(1000, 1000 + 2 * times))
        assert await read_all(client, world, subscription_id=5) == len(world.log.chunks)
        await client.close()
        await world.until_idle()


async def test_after_an_unsubscribe_is_answered_nothing_more_is_delivered_under_its_id():
    async with abused(chunks=600, archived=500, kept=300) as world, RawClient(world.port) as client:
        await client.login()
        for wait in (0, 0, 0.001, 0.002, 0.005, 0.01, 0.02):
            await client.ask(Subscribe(client.next_id(), 1, STREAM, FIRST, 100, {}))
            await client.until(Key.DELIVER)
            await asyncio.sleep(wait)
            client.passed.clear()
            await client.ask(Unsubscribe(client.next_id(), 1))
            client.passed.clear()
            await client.ask(Subscribe(client.next_id(), 1, STREAM, AtOffset(Offset(70)), 0, {}))
            assert not client.passed
            client.send(Credit(1, 1))
            _, chunk = delivered(await client.until(Key.DELIVER))
            assert chunk == world.log.after_all(70).delivered
            await client.ask(Unsubscribe(client.next_id(), 1))
        assert await read_all(client, world) == 600


async def test_a_client_that_reads_nothing_holds_no_more_than_buffers():
    async with abused(chunks=2000, archived=1990, kept=20, messages=10, size=2000) as world:
        async with RawClient(world.port) as client:
            await client.login()
            client.send(*(Subscribe(client.next_id(), number, STREAM, FIRST, MANY, {}) for number in range(50)))
            await client.flush()
            await asyncio.sleep(1)
            sent_bytes = world.figures.archive_bytes_total
            assert sent_bytes < 8 * MIB, sent_bytes
            await is_served(world)
        await world.until_idle()


async def test_a_client_that_reads_slowly_holds_up_nobody_else():
    async with (
        abused(chunks=400, archived=390, kept=20, messages=10, size=2000) as world,
        RawClient(world.port) as slow,
    ):
        await slow.login()
        slow.send(Subscribe(slow.next_id(), 0, STREAM, FIRST, MANY, {}))
        for _ in range(20):
            await slow.reader.read(500)
            await asyncio.sleep(0.005)
        began = time.monotonic()
        await is_served(world)
        assert time.monotonic() - began < 5


async def test_a_never_reading_client_that_asks_on_is_not_read_on_without_bound():
    question = StreamStats(1, "s").to_bytes() * 1000  # its answer is five times as long
    async with abused() as world, RawClient(world.port, patience_s=3) as client:
        write(world.broker.declare("s"), 5)
        await client.login()
        assert await _send_until_stuck(client, question, 60 * MIB) < 50 * MIB  # what sockets hold
        await is_served(world)


async def _send_until_stuck(client: RawClient, piece: bytes, most_bytes: int) -> int:
    """Send a piece again and again until nobody takes more; return how many bytes were taken."""
    sent = 0
    with suppress(TimeoutError, ConnectionGoneError):
        while sent < most_bytes:
            client.send(piece)
            await client.flush()
            sent += len(piece)
    return sent


async def test_a_flood_of_credits_while_the_archive_hangs_takes_no_memory():
    async with abused() as world:
        await is_served(world)
        world.archive.answers.clear()
        world.archive.flows.clear()
        async with RawClient(world.port, patience_s=5) as client:
            await client.login()
            client.send(Subscribe(client.next_id(), 0, STREAM, FIRST, 1, {}))
            before = resident_bytes()
            await _send_until_stuck(client, Credit(0, 1).to_bytes() * 10_000, 6 * MIB)
            await asyncio.sleep(0.2)
            assert resident_bytes() - before < 30 * MIB
            world.archive.answers.set()
            world.archive.flows.set()
            await is_served(world)
        await world.until_idle()


async def test_an_archive_that_hangs_delays_neither_unsubscribe_nor_close_nor_another_subscription():
    async with abused() as world, RawClient(world.port, patience_s=5) as client:
        hanging = world.broker.declare("hanging")
        for one in world.log.chunks[:50]:
            hanging.write([one.delivered[52:60]])
        for hangs_at in ("answers", "flows"):
            archive = world.history.put("/", "hanging", (chunk_of(one.delivered, source="") for one in hanging.chunks))
            hanging.retain(10)
            if hangs_at == "answers":
                await client.login()
                archive.answers.clear()
            archive.flows.clear()
            client.send(Subscribe(500, 9, "hanging", FIRST, 5, {}))
            await asyncio.sleep(0.05)
            client.passed.clear()
            await client.ask(Subscribe(client.next_id(), 0, STREAM, AtOffset(Offset(0)), 5, {}))
            assert await read_on(client, world) == len(world.log.chunks)
            client.send(Unsubscribe(600, 9))
            while CodeAnswer.from_body(await client.until(ANSWER | Key.UNSUBSCRIBE)).correlation_id != 600:
                pass
            client.passed.clear()
            await client.ask(Unsubscribe(client.next_id(), 0))
        client.send(Subscribe(700, 9, "hanging", FIRST, 5, {}))
        await client.close()
        await world.until_idle()


async def test_stored_offsets_without_end_are_coalesced():
    async with abused() as world, RawClient(world.port) as client:
        await client.login()
        for number in range(20_000):
            client.send(StoreOffset("reader", STREAM, number))
        client.send(StoreOffset("x" * 300, STREAM, 3), Heartbeat())
        await client.flush()
        client.send(QueryOffset(client.next_id(), "reader", STREAM))
        await client.until(ANSWER | Key.QUERY_OFFSET)
        await until(lambda: world.history.offsets.get(("/", STREAM, "reader")) == 19_999)


async def test_requests_in_one_write_are_answered_in_order():
    async with abused() as world, RawClient(world.port) as client:
        await client.login()
        client.send(
            Subscribe(101, 0, STREAM, FIRST, 1, {}),
            Subscribe(102, 0, STREAM, FIRST, 1, {}),
            Subscribe(103, 1, "nowhere", FIRST, 1, {}),
            Unsubscribe(104, 0),
            Unsubscribe(105, 0),
            Subscribe(106, 0, STREAM, FIRST, 0, {}),
            Credit(0, 4),
        )
        codes = {}
        while len(codes) < 6:
            body = await client.body()
            if key_of(body)[0] != Key.DELIVER:
                answer = CodeAnswer.from_body(body)
                codes[answer.correlation_id] = answer.code
            elif 106 in codes:
                client.passed.append(body)
        assert codes == {
            101: Code.OK,
            102: Code.SUBSCRIPTION_EXISTS,
            103: Code.STREAM_DOES_NOT_EXIST,
            104: Code.OK,
            105: Code.SUBSCRIPTION_DOES_NOT_EXIST,
            106: Code.OK,
        }
        assert await read_on(client, world) == len(world.log.chunks)
