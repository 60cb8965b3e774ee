"""Processes of `coldstream gateway --archive-only`, at S3's and DynamoDB's API: one is killed, another goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldstream.gateway.alone.password_file import hash_password
from coldstream.gateway.frames.answers import ConsumerUpdate, OffsetAnswer, SequenceAnswer
from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import Code, Key
from coldstream.gateway.frames.requests import (
    ConsumerUpdateAnswer,
    Create,
    DeclarePublisher,
    QueryOffset,
    QueryPublisherSequence,
    StoreOffset,
    Subscribe,
)
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.store.objects import S3Objects
from coldstream.streams import BlockingStreamClient, DirectArchive, OpenMode
from coldstream.units import Offset
from tests.support.alone import Delivered, RawClient, confirmed, publish
from tests.support.gateway_program import GatewayProgram

pytestmark = pytest.mark.server
USER, PASSWORD = "ana", "s3cret"


@pytest.fixture
def environment(table_name: str, s3_objects: S3Objects) -> dict[str, str]:
    return {"COLDSTREAM_TABLE": table_name, "COLDSTREAM_BUCKET": s3_objects.bucket, "COLDSTREAM_PREFIX": "archive/"}


@pytest.fixture
def gateways(environment: dict[str, str], tmp_path: Path) -> Iterator[list[GatewayProgram]]:
    """Two gateways of a process each, that share nothing but the archive."""
    users = tmp_path / "users"
    users.write_text(f"{USER}:{hash_password(PASSWORD)}\n")
    options = ("--archive-only", "--users", users, "--create", "--processes", 1)
    with (
        GatewayProgram(environment, tmp_path / "one.log", *options) as one,
        GatewayProgram(environment, tmp_path / "two.log", *options) as two,
    ):
        yield [one, two]


def kill(gateway: GatewayProgram) -> None:
    """Kill the process that serves, and its parent, at once."""
    for child in gateway.status()["processes"]:
        os.kill(child["pid"], signal.SIGKILL)
    gateway.signal(signal.SIGKILL)
    gateway.wait()


async def send_all(client: RawClient, numbers: range) -> None:
    for number in numbers:
        client.send(publish(1, (number, b"message %d" % number)))
        await asyncio.sleep(0)


async def test_the_next_consumer_goes_on_where_the_killed_process_had_stored_the_offset(
    gateways: list[GatewayProgram],
) -> None:
    one, two = gateways
    properties = {"single-active-consumer": "true", "name": "readers"}
    async with RawClient.connected(one.port) as a, RawClient.connected(two.port) as b:
        await a.log_in(USER, PASSWORD)
        await b.log_in(USER, PASSWORD)
        assert await a.code(lambda number: Create(number, "orders", {})) == Code.OK
        assert await a.code(lambda number: DeclarePublisher(number, 1, None, "orders")) == Code.OK
        for number in range(10):
            a.send(publish(1, (number, b"%d" % number)))
            await a.next_of(Key.PUBLISH_CONFIRM)
        for client in (a, b):
            assert await client.code(lambda number: Subscribe(number, 1, "orders", FIRST, 10, properties)) == Code.OK
            if client is a:
                update = ConsumerUpdate.from_body(await a.next_of(Key.CONSUMER_UPDATE))
                a.send(ConsumerUpdateAnswer(update.correlation_id, Code.OK, FIRST).to_bytes())
        assert Delivered.of(await a.next_of(Key.DELIVER)).chunk[24:32] == bytes(8)
        a.send(StoreOffset("readers", "orders", 6).to_bytes())
        stored = None
        async with asyncio.timeout(30):
            while stored is None:
                found = await b.ask(lambda number: QueryOffset(number, "readers", "orders"), OffsetAnswer)
                stored = found.offset if isinstance(found, OffsetAnswer) else None
                await asyncio.sleep(0.2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await b.next_of(Key.CONSUMER_UPDATE)
        await asyncio.to_thread(kill, one)
        async with asyncio.timeout(120):
            body = await b.body()
            while key_of(body)[0] != Key.CONSUMER_UPDATE:
                body = await b.body()
        update = ConsumerUpdate.from_body(body)
        assert (update.subscription_id, update.is_active) == (1, 1)
        b.send(ConsumerUpdateAnswer(update.correlation_id, Code.OK, AtOffset(Offset(stored + 1))).to_bytes())
        first = Delivered.of(await b.next_of(Key.DELIVER)).chunk
        assert int.from_bytes(first[24:32]) <= stored + 1 < int.from_bytes(first[24:32]) + int.from_bytes(first[4:8])


async def test_a_publisher_that_goes_on_at_another_process_has_each_message_once(
    gateways: list[GatewayProgram], environment: dict[str, str]
) -> None:
    one, two = gateways
    count = 3000
    known: set[int] = set()
    async with RawClient.connected(one.port) as client:
        await client.log_in(USER, PASSWORD)
        assert await client.code(lambda number: Create(number, "orders", {})) == Code.OK
        assert await client.code(lambda number: DeclarePublisher(number, 1, "till", "orders")) == Code.OK
        sending = asyncio.create_task(send_all(client, range(1, count + 1)))
        while len(known) < count // 10:
            known.update(confirmed(await client.next_of(Key.PUBLISH_CONFIRM))[1])
        await asyncio.to_thread(kill, one)
        sending.cancel()
    async with RawClient.connected(two.port) as client:
        await client.log_in(USER, PASSWORD)
        assert await client.code(lambda number: DeclarePublisher(number, 1, "till", "orders")) == Code.OK
        found = await client.ask(lambda number: QueryPublisherSequence(number, "till", "orders"), SequenceAnswer)
        assert isinstance(found, SequenceAnswer)
        assert found.sequence >= max(known)
        # All that was not confirmed is sent again, some of which is there.
        again = range(min(max(known) + 1, count), count + 1)
        await send_all(client, again)
        while not known.issuperset(range(1, count + 1)):
            known.update(confirmed(await client.next_of(Key.PUBLISH_CONFIRM))[1])
    two.signal(signal.SIGTERM)
    assert await asyncio.to_thread(two.wait) == 0
    assert await asyncio.to_thread(stored_messages, environment) == [b"message %d" % one for one in range(1, count + 1)]


def stored_messages(environment: dict[str, str]) -> list[bytes]:
    """Return what is in the archive once nobody has the stream open: simple entries, as they were published."""
    found: list[bytes] = []
    with BlockingStreamClient(DirectArchive.from_environment({**os.environ, **environment})) as client:
        stream = client.open_stream("orders", mode=OpenMode.SNAPSHOT)
        at = stream.start
        while batches := stream.fetch(at):
            for batch in batches:
                data, place = batch.chunk[48:], 0
                for _ in range(batch.next_offset - batch.base_offset):
                    size = int.from_bytes(data[place : place + 4])
                    found.append(data[place + 4 : place + 4 + size])
                    place += 4 + size
                at = batch.next_offset
    return found
