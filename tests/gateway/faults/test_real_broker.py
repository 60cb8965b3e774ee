"""A real broker that is killed and comes back, behind a gateway."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator

import pytest

from coldstream.format.chunk import CHUNK_HEADER_BYTES
from coldstream.gateway.frames.answers import OffsetAnswer
from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import Credit, QueryOffset, StoreOffset, Subscribe
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.units import Offset
from tests.gateway.faults.abused import STREAM
from tests.gateway.faults.disk_archive import DiskArchive
from tests.gateway.faults.gateway_process import GatewayProcess
from tests.gateway.faults.raw_client import ConnectionGoneError, RawClient, RefusedError, delivered
from tests.gateway.faults.restless_publisher import RestlessPublisher
from tests.support.broker import Broker, find_rabbitmq
from tests.support.fixtures import do_without
from tests.support.gateway import GatewayThread

pytestmark = pytest.mark.broker

SIZE = 200
SEGMENT_BYTES = 100_000
LITTLE = 700
"""Messages that fill more than a segment, and less than retention leaves."""
RETURN_S = 60


def _create(broker: Broker) -> None:
    with broker.connect() as streams:
        streams.create_stream(STREAM, max_segment_bytes=SEGMENT_BYTES)


def _publish(broker: Broker, first: int, messages: int) -> int:
    with broker.connect() as streams:
        for at in range(first, first + messages, 100):
            streams.publish(STREAM, [b"%0*d" % (SIZE, number) for number in range(at, at + 100)])
    return first + messages


async def _read(port: int, archive: DiskArchive, at: int, chunks: int) -> int:
    """Read so many chunks, or to the end, from the stored offset on or from the first; store where, and return it."""
    async with RawClient(port) as client:
        await client.login(with_versions=False)
        client.send(QueryOffset(client.next_id(), "reader", STREAM))
        found = OffsetAnswer.from_body(await client.until(ANSWER | Key.QUERY_OFFSET))
        if found.code not in {Code.OK, Code.NO_OFFSET}:
            raise RefusedError(Key.QUERY_OFFSET, found.code)
        assert found.code == (Code.OK if at else Code.NO_OFFSET)
        assert not at or found.offset == at - 1
        spec = AtOffset(Offset(at)) if at else FIRST
        await client.ask(Subscribe(client.next_id(), 0, STREAM, spec, 10, {}))
        for _ in range(chunks):
            if at == archive.end:
                break
            body = client.passed.popleft() if client.passed else await client.body()
            if key_of(body)[0] == Key.METADATA_UPDATE:
                raise ConnectionGoneError
            _, chunk = delivered(body)
            at, expected = archive.delivered_at(at)
            assert chunk[:36] == expected[:36]
            assert chunk[CHUNK_HEADER_BYTES:] == expected[CHUNK_HEADER_BYTES:]
            client.send(Credit(0, 1))
        client.send(StoreOffset("reader", STREAM, at - 1))
        # Answered after it is stored.
        client.send(QueryOffset(client.next_id(), "reader", STREAM))
        await client.until(ANSWER | Key.QUERY_OFFSET)
        await client.close()
    return at


async def _read_patiently(port: int, archive: DiskArchive, at: int, chunks: int) -> int:
    """Do so as soon as the broker is back."""
    end = time.monotonic() + RETURN_S
    while True:
        try:
            return await _read(port, archive, at, chunks)
        except (ConnectionGoneError, RefusedError, OSError):
            assert time.monotonic() < end
            await asyncio.sleep(0.3)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    if find_rabbitmq() is None:
        do_without("RabbitMQ")
    with Broker() as running:
        yield running


def _retain_little(broker: Broker) -> None:
    broker.ctl("set_policy", "little", f"^{STREAM}$", json.dumps({"max-length-bytes": 250_000}), "--apply-to", "queues")


async def test_a_real_broker_is_killed_and_comes_back_and_readers_go_on_where_they_were(broker, tmp_path):
    archive = DiskArchive()
    file = tmp_path / "archive"
    await asyncio.to_thread(_create, broker)
    directory = broker.stream_directory(STREAM)
    written = await asyncio.to_thread(_publish, broker, 0, 4000)
    archive.copy(directory)
    _retain_little(broker)
    written = await asyncio.to_thread(_publish, broker, written, LITTLE)
    archive.copy(directory)
    file.write_bytes(archive.to_bytes(without=5))
    async with GatewayProcess(broker.stream_port, file) as gateway:
        at = await _read(gateway.port, archive, 0, 5)
        async with RawClient(gateway.port) as client:
            await client.login(with_versions=False)
            await client.ask(Subscribe(client.next_id(), 0, STREAM, FIRST, 3, {}))
            await client.until(Key.DELIVER)
            broker.kill()
            assert await client.is_ended()
        broker.start()
        at = await _read_patiently(gateway.port, archive, at, 8)
        written = await asyncio.to_thread(_publish, broker, written, LITTLE)
        archive.copy(directory)
        file.write_bytes(archive.to_bytes(without=5))
        assert (await gateway.held()).connections == 0
        at = await _read_patiently(gateway.port, archive, at, 1 << 30)
        assert at == archive.end


def test_what_is_confirmed_outlives_a_broker_that_is_killed(broker):
    with broker.connect() as streams:
        streams.create_stream("published", max_segment_bytes=SEGMENT_BYTES)
    with GatewayThread((broker.host, broker.stream_port)) as gateway:
        with RestlessPublisher(gateway.port, "published", first=1) as publisher:
            publisher.wait_confirmed(500)
            broker.kill()
            before = set(publisher.confirmed)
            broker.start()
            publisher.wait_confirmed(500)
        with broker.connect() as streams:
            read = streams.read("published", len(publisher.confirmed))
    numbers = [int(body.partition(b":")[0]) for _, body in read]
    assert before <= set(numbers)
    assert publisher.confirmed <= set(numbers)
    assert numbers == list(range(1, len(numbers) + 1))
    assert publisher.endings
