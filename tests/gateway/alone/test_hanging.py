"""An archive that hangs, and fails: it delays what asks it, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from coldstream.errors import CorruptionError, UnavailableError
from coldstream.format.chunk import Chunk, ChunkHeader, iter_chunks
from coldstream.format.writer import make_chunk
from coldstream.gateway.alone.options import AloneOptions
from coldstream.gateway.frames.answers import MetadataAnswer
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import Close, CloseAnswer, Metadata, QueryOffset, Subscribe, Unsubscribe
from coldstream.gateway.history.memory import MemoryArchive, MemoryHistory
from coldstream.manifest.spec import FIRST
from coldstream.manifest.stream import Incarnation
from coldstream.streams import DirectArchive
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.support.alone import Delivered, RawClient, running_alone


def chunks(count: int) -> Iterator[Chunk]:
    for number in range(count):
        _, data = make_chunk([b"x"], chunk_id=ChunkId(number), timestamp=TimestampMs(1000 * number), epoch=Epoch(1))
        yield from iter_chunks(data, source="test", expected=ChunkId(number))


@pytest.fixture
async def history() -> MemoryHistory:
    return MemoryHistory()


def put(history: MemoryHistory, name: str, count: int = 5) -> MemoryArchive:
    archive = history.archives["/", name] = MemoryArchive(Incarnation(f"__{name}_1763700000000000000"))
    archive.chunks = list(chunks(count))
    return archive


async def subscribe(client: RawClient, number: int, stream: str) -> int:
    return await client.code(lambda asked: Subscribe(asked, number, stream, FIRST, 100, {}))


async def delivered(client: RawClient, subscription_id: int, count: int) -> list[int]:
    found = []
    while len(found) < count:
        one = Delivered.of(await client.next_of(Key.DELIVER))
        assert one.subscription_id == subscription_id
        found.append(int(ChunkHeader.from_bytes(one.chunk, source="delivered", position=0).chunk_id))
    return found


async def test_a_stream_that_hangs_delays_no_other_nor_unsubscribe_nor_close(history: MemoryHistory) -> None:
    stuck, _ = put(history, "stuck"), put(history, "fine")
    async with running_alone(DirectArchive.in_memory(), history=history) as alone, alone.client() as client:
        stuck.flows.clear()
        assert await subscribe(client, 1, "stuck") == Code.OK
        assert await subscribe(client, 2, "fine") == Code.OK
        assert await delivered(client, 2, 5) == [0, 1, 2, 3, 4]
        stuck.answers.clear()
        client.send(Subscribe(77, 3, "stuck", FIRST, 1, {}).to_bytes())
        client.send(QueryOffset(78, "r", "stuck").to_bytes())
        assert await client.code(lambda number: Unsubscribe(number, 3)) == Code.OK
        assert await client.code(lambda number: Unsubscribe(number, 1)) == Code.OK
        client.send(Close(9, 1, "bye").to_bytes())
        async with asyncio.timeout(2):
            assert CloseAnswer.from_body(await client.next_of(Key.CLOSE | ANSWER)) == CloseAnswer(9, Code.OK)
            assert await client.is_closed()


async def test_questions_that_are_not_answered_in_time_are_refused_and_metadata_says_which(
    history: MemoryHistory,
) -> None:
    stuck, _ = put(history, "stuck"), put(history, "fine")
    options = AloneOptions(request_within_s=1.0)
    async with (
        running_alone(DirectArchive.in_memory(), history=history, options=options) as alone,
        alone.client() as client,
    ):
        stuck.answers.clear()
        assert await subscribe(client, 1, "stuck") == Code.STREAM_NOT_AVAILABLE
        assert await client.code(lambda number: QueryOffset(number, "r", "stuck")) == Code.STREAM_NOT_AVAILABLE
        client.send(Metadata(9, ("fine", "stuck", "none")).to_bytes())
        found = MetadataAnswer.from_body(await client.next_of(Key.METADATA | ANSWER))
        wanted = [Code.OK, Code.STREAM_NOT_AVAILABLE, Code.STREAM_DOES_NOT_EXIST]
        assert [code for _, code, _, _ in found.streams] == wanted
        stuck.answers.set()
        assert await subscribe(client, 1, "stuck") == Code.OK
        assert await delivered(client, 1, 5) == [0, 1, 2, 3, 4]


async def test_a_subscription_outlasts_an_archive_that_is_not_there_for_a_while(history: MemoryHistory) -> None:
    stream = put(history, "orders")
    stream.error, stream.error_at = UnavailableError("S3 is slow"), Offset(2)
    async with running_alone(DirectArchive.in_memory(), history=history) as alone, alone.client() as client:
        assert await subscribe(client, 1, "orders") == Code.OK
        assert await delivered(client, 1, 2) == [0, 1]
        await asyncio.sleep(0.3)
        stream.error = None
        assert await delivered(client, 1, 3) == [2, 3, 4]


async def test_a_corrupt_chunk_is_never_sent_and_ends_the_subscription(history: MemoryHistory) -> None:
    stream = put(history, "orders")
    stream.error, stream.error_at = CorruptionError("fragment", 7, "bad CRC"), Offset(2)
    async with running_alone(DirectArchive.in_memory(), history=history) as alone, alone.client() as client:
        assert await subscribe(client, 1, "orders") == Code.OK
        assert await delivered(client, 1, 2) == [0, 1]
        body = await client.next_of(Key.METADATA_UPDATE)
        assert body[4:6] == int(Code.STREAM_NOT_AVAILABLE).to_bytes(2)
        assert await client.code(lambda number: Unsubscribe(number, 1)) == Code.SUBSCRIPTION_DOES_NOT_EXIST


async def test_texts_that_are_null_are_names_of_nothing(history: MemoryHistory) -> None:
    put(history, "orders")
    null = b"\xff\xff"
    async with running_alone(DirectArchive.in_memory(), history=history) as alone, alone.client() as client:
        body = b"\0\x07\0\x01" + (5).to_bytes(4) + b"\x01" + null + b"\0\x01\0\x0a"
        client.send(len(body).to_bytes(4) + body)
        answer = await client.next_of(Key.SUBSCRIBE | ANSWER)
        assert int.from_bytes(answer[8:10]) == Code.STREAM_DOES_NOT_EXIST
        body = b"\0\x0f\0\x01" + (6).to_bytes(4) + (1).to_bytes(4) + null
        client.send(len(body).to_bytes(4) + body)
        found = MetadataAnswer.from_body(await client.next_of(Key.METADATA | ANSWER))
        assert found.streams == (("", Code.STREAM_DOES_NOT_EXIST, 0xFFFF, ()),)
