"""A real broker that is killed and comes back, behind a gateway."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from coldstream.format.chunk import CHUNK_HEADER_BYTES, Chunk, ChunkType, iter_chunks
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.gateway.frames.answers import OffsetAnswer
from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import Credit, QueryOffset, StoreOffset, Subscribe
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.units import Offset
from tests.gateway.faults.abused import STREAM
from tests.gateway.faults.gateway_process import GatewayProcess
from tests.gateway.faults.raw_client import ConnectionGoneError, RawClient, RefusedError, delivered
from tests.support.broker import Broker, find_rabbitmq
from tests.support.fixtures import do_without

pytestmark = pytest.mark.broker

SIZE = 200
LITTLE = 700
"""Messages that fill more than a segment, and less than retention leaves."""
RETURN_S = 60


def _create(broker: Broker) -> None:
    with broker.connect() as streams:
        streams.create_stream(STREAM, max_segment_bytes=100_000)


def _publish(broker: Broker, first: int, messages: int) -> int:
    with broker.connect() as streams:
        for at in range(first, first + messages, 100):
            streams.publish(STREAM, [b"%0*d" % (SIZE, number) for number in range(at, at + 100)])
    return first + messages


class Archive:
    """A copy of what is on a node's disk of the stream: all chunks that there ever were, and the file of a gateway."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.chunks: list[Chunk] = []

    def copy(self, broker: Broker) -> None:
        """Add what is new."""
        for segment in sorted(broker.stream_directory(STREAM).glob("*.segment")):
            for chunk in iter_chunks(segment.read_bytes()[SEGMENT_HEADER_BYTES:], source=segment.name):
                if not self.chunks or chunk.header.chunk_id == self.chunks[-1].header.next_offset:
                    self.chunks.append(chunk)

    def publish(self, *, without: int = 0) -> None:
        """Have it in the gateway's archive, but for the last chunks."""
        kept = self.chunks[: len(self.chunks) - without]
        self.file.write_bytes(
            b"".join(each for one in kept for each in (one.header.to_bytes(), one.bloom, one.data, one.trailer))
        )

    def delivered_at(self, offset: int) -> tuple[int, bytes]:
        """Return where the chunk ends that a client is to get at an offset, and its bytes."""
        chunk = next(
            one for one in self.chunks if one.header.next_offset > offset and one.header.type is ChunkType.USER
        )
        return chunk.header.next_offset, chunk.header.to_bytes() + bytes(chunk.data)

    @property
    def end(self) -> int:
        """The offset after the last message."""
        return next(one.header.next_offset for one in reversed(self.chunks) if one.header.type is ChunkType.USER)


async def _read(port: int, archive: Archive, at: int, chunks: int) -> int:
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


async def _read_patiently(port: int, archive: Archive, at: int, chunks: int) -> int:
    """Do so as soon as the broker is back."""
    end = time.monotonic() + RETURN_S
    while True:
        try:
            return await _read(port, archive, at, chunks)
        except (ConnectionGoneError, RefusedError, OSError):
            assert time.monotonic() < end
            await asyncio.sleep(0.3)


def _retain_little(broker: Broker) -> None:
    broker.ctl("set_policy", "little", f"^{STREAM}$", json.dumps({"max-length-bytes": 250_000}), "--apply-to", "queues")


async def test_a_real_broker_is_killed_and_comes_back_and_readers_go_on_where_they_were(tmp_path):
    if find_rabbitmq() is None:
        do_without("RabbitMQ")
    archive = Archive(tmp_path / "archive")
    with Broker() as broker:
        await asyncio.to_thread(_create, broker)
        written = await asyncio.to_thread(_publish, broker, 0, 4000)
        archive.copy(broker)
        _retain_little(broker)
        written = await asyncio.to_thread(_publish, broker, written, LITTLE)
        archive.copy(broker)
        archive.publish(without=5)
        async with GatewayProcess(broker.stream_port, archive.file) as gateway:
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
            archive.copy(broker)
            archive.publish(without=5)
            assert (await gateway.held()).connections == 0
            at = await _read_patiently(gateway.port, archive, at, 1 << 30)
            assert at == archive.end
