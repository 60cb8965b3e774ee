"""A broker's stream whose broker is gone: read by every spec, byte for byte, followed, and never written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.gateway.alone.options import AloneOptions
from coldstream.gateway.frames.answers import (
    CreditAnswer,
    MetadataAnswer,
    OffsetAnswer,
    ResolveOffsetSpecAnswer,
    StreamStatsAnswer,
)
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import (
    Create,
    Credit,
    DeclarePublisher,
    Delete,
    Metadata,
    QueryOffset,
    ResolveOffsetSpec,
    StoreOffset,
    StreamStats,
    Subscribe,
    Unsubscribe,
)
from coldstream.gateway.gap_rules import GapAction, GapRules
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.store.keys import Keys
from coldstream.streams import DirectArchive
from coldstream.units import MAX_OFFSET, Offset, TimestampMs
from tests.support.alone import Delivered, RawClient, RunningAlone, running_alone
from tests.support.archive import ChunkArchive, Spec
from tests.support.http_archive import HttpObjects, object_server

NAME = "orders"


@pytest.fixture
def chunks() -> Iterator[ChunkArchive]:
    """Two fragments, with a tracking chunk at the end of the first: offsets 0 to 20, and 21 to 40."""
    objects = HttpObjects()
    archive = ChunkArchive(objects=objects)
    archive.add(0, [*(Spec(5, 1000 * at) for at in range(4)), Spec(1, 4000, ChunkType.TRACKING_SNAPSHOT)])
    archive.add(21, [Spec(5, 5000 + 1000 * at) for at in range(4)])
    with object_server(objects):
        yield archive


@pytest.fixture
async def alone(chunks: ChunkArchive) -> AsyncIterator[RunningAlone]:
    async with running_alone(DirectArchive(chunks.table, chunks.objects, Keys())) as running:
        yield running


def expected(chunks: ChunkArchive, start: int = 0) -> list[bytes]:
    """Return what a broker delivers: header and data of the user chunks that hold an offset from `start` on."""
    return [
        one.header.to_bytes() + one.data[48 + one.header.bloom_bytes :][: one.header.data_bytes]
        for one in chunks.chunks
        if one.header.type is ChunkType.USER and one.header.next_offset > start
    ]


async def subscribe(client: RawClient, spec: OffsetSpec, credit: int = 100, subscription_id: int = 1) -> int:
    return await client.code(lambda number: Subscribe(number, subscription_id, NAME, spec, credit, {}))


async def delivered(client: RawClient, count: int) -> list[bytes]:
    return [Delivered.of(await client.next_of(Key.DELIVER)).chunk for _ in range(count)]


async def nothing_comes(client: RawClient) -> None:
    """Fail if anything is delivered within a moment."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await client.next_of(Key.DELIVER)


@pytest.mark.parametrize(
    ("spec", "start"),
    [
        (FIRST, 0),
        (AtOffset(Offset(0)), 0),
        (AtOffset(Offset(7)), 7),
        (AtOffset(Offset(20)), 20),
        (AtOffset(Offset(21)), 21),
        (AtTimestamp(TimestampMs(2500)), 15),
        (AtTimestamp(TimestampMs(0)), 0),
        (AtTimestamp(TimestampMs(-1)), 0),
        (AtTimestamp(TimestampMs(-(1 << 63))), 0),
        (LAST, 36),
    ],
)
async def test_each_spec_attaches_where_the_broker_would_and_chunks_are_byte_for_byte(
    alone: RunningAlone, chunks: ChunkArchive, spec: OffsetSpec, start: int
) -> None:
    async with alone.client() as client:
        assert await subscribe(client, spec) == Code.OK
        wanted = expected(chunks, start)
        assert await delivered(client, len(wanted)) == wanted
        await nothing_comes(client)


@pytest.mark.parametrize(
    "spec",
    [
        NEXT,
        AtOffset(Offset(1_000_000)),
        AtOffset(Offset(MAX_OFFSET)),
        AtTimestamp(TimestampMs(99_000)),
        AtTimestamp(TimestampMs((1 << 63) - 1)),
    ],
)
async def test_what_is_archived_later_is_followed_from_the_tail(
    alone: RunningAlone, chunks: ChunkArchive, spec: OffsetSpec
) -> None:
    async with alone.client() as client:
        assert await subscribe(client, spec) == Code.OK
        await nothing_comes(client)
        chunks.add(41, [Spec(3, 99_000)])
        assert await delivered(client, 1) == expected(chunks, 41)


async def test_no_more_chunks_come_than_there_is_credit_for(alone: RunningAlone, chunks: ChunkArchive) -> None:
    async with alone.client() as client:
        assert await subscribe(client, FIRST, credit=2) == Code.OK
        assert await delivered(client, 2) == expected(chunks)[:2]
        await nothing_comes(client)
        client.send(Credit(1, 1).to_bytes())
        assert await delivered(client, 1) == expected(chunks)[2:3]
        await nothing_comes(client)
        client.send(Credit(9, 1).to_bytes())
        refused = CreditAnswer.from_body(await client.next_of(Key.CREDIT | ANSWER))
        assert refused == CreditAnswer(Code.SUBSCRIPTION_DOES_NOT_EXIST, 9)


async def test_two_subscriptions_of_a_connection_have_all_each_and_end_by_themselves(
    alone: RunningAlone, chunks: ChunkArchive
) -> None:
    async with alone.client() as client:
        await client.exchange()
        assert await subscribe(client, FIRST, subscription_id=1) == Code.OK
        assert await subscribe(client, FIRST, subscription_id=1) == Code.SUBSCRIPTION_EXISTS
        assert await subscribe(client, LAST, subscription_id=2) == Code.OK
        wanted = expected(chunks)
        found = [Delivered.of(await client.next_of(Key.DELIVER)) for _ in range(len(wanted) + 1)]
        assert [one.chunk for one in found if one.subscription_id == 1] == wanted
        assert [one.chunk for one in found if one.subscription_id == 2] == wanted[-1:]
        assert all(one.committed is not None and one.committed >= 36 for one in found)
        assert await client.code(lambda number: Unsubscribe(number, 1)) == Code.OK
        assert await client.code(lambda number: Unsubscribe(number, 1)) == Code.SUBSCRIPTION_DOES_NOT_EXIST
        chunks.add(41, [Spec(3, 99_000)])
        last = Delivered.of(await client.next_of(Key.DELIVER))
        assert (last.subscription_id, last.chunk) == (2, expected(chunks, 41)[0])
        await nothing_comes(client)


async def test_it_is_the_leader_of_every_stream_that_it_has(alone: RunningAlone) -> None:
    async with alone.client() as client:
        client.send(Metadata(9, (NAME, "nothing", NAME)).to_bytes())
        found = MetadataAnswer.from_body(await client.next_of(Key.METADATA | ANSWER))
        assert found.brokers == ((0, "127.0.0.1", alone.port),)
        there, unknown = (NAME, Code.OK, 0, ()), ("nothing", Code.STREAM_DOES_NOT_EXIST, 0xFFFF, ())
        assert found.streams == (there, unknown, there)


async def test_figures_and_resolved_specs_are_those_of_the_archive(alone: RunningAlone) -> None:
    async with alone.client() as client:
        stats = await client.ask(lambda number: StreamStats(number, NAME), StreamStatsAnswer)
        assert isinstance(stats, StreamStatsAnswer)
        assert dict(stats.figures) == {
            "first_chunk_id": 0,
            "last_chunk_id": 36,
            "committed_chunk_id": 36,
            "committed_offset": 40,
        }
        for spec, offset in ((FIRST, 0), (LAST, 36), (NEXT, 41), (AtTimestamp(TimestampMs(2500)), 15)):
            found = await client.ask(
                lambda number, spec=spec: ResolveOffsetSpec(number, NAME, spec, {}), ResolveOffsetSpecAnswer
            )
            assert isinstance(found, ResolveOffsetSpecAnswer)
            assert found.spec == AtOffset(Offset(offset))
        assert await client.code(lambda number: StreamStats(number, "nothing")) == Code.STREAM_DOES_NOT_EXIST


async def test_a_spec_that_cannot_be_resolved_is_refused_with_an_offset_as_brokers_do(alone: RunningAlone) -> None:
    """The Java client reads it before it looks at the code, and else waits for the rest."""
    async with alone.client() as client:
        client.send(ResolveOffsetSpec(9, "nothing", FIRST, {}).to_bytes())
        answer = await client.next_of(Key.RESOLVE_OFFSET_SPEC | ANSWER)
    # RabbitMQ 4.3.6 sends these bytes.
    assert answer.hex() == "801f000100000009000200040000000000000000"


async def test_offsets_are_stored_under_their_references(alone: RunningAlone) -> None:
    async with alone.client() as client:
        assert await client.code(lambda number: QueryOffset(number, "r", NAME)) == Code.NO_OFFSET
        assert await client.code(lambda number: QueryOffset(number, "r", "nothing")) == Code.STREAM_DOES_NOT_EXIST
        client.send(StoreOffset("r", NAME, 12).to_bytes(), StoreOffset("", NAME, 13).to_bytes())
        found = await client.ask(lambda number: QueryOffset(number, "r", NAME), OffsetAnswer)
        assert isinstance(found, OffsetAnswer)
        assert found.offset == 12


async def test_a_brokers_stream_takes_no_writes(alone: RunningAlone, caplog: pytest.LogCaptureFixture) -> None:
    async with alone.client() as client:
        with caplog.at_level("INFO"):
            code = await client.code(lambda number: DeclarePublisher(number, 1, None, NAME))
        assert code == Code.ACCESS_REFUSED
        assert "is a broker's stream" in str([vars(record).get("error") for record in caplog.records])
        assert await client.code(lambda number: Delete(number, NAME)) == Code.ACCESS_REFUSED
        assert await client.code(lambda number: Create(number, NAME, {})) == Code.STREAM_EXISTS


async def test_a_gap_ends_the_subscription_with_an_error_or_is_skipped_as_configured(chunks: ChunkArchive) -> None:
    chunks.add(100, [Spec(5, 200_000)])
    archive = DirectArchive(chunks.table, chunks.objects, Keys())
    options = AloneOptions(poll_s=0.2)
    async with running_alone(archive, options=options) as running, running.client() as client:
        assert await subscribe(client, FIRST) == Code.OK
        assert await delivered(client, 8) == expected(chunks)[:8]
        body = await client.next_of(Key.METADATA_UPDATE)
        assert body[4:] == int(Code.STREAM_NOT_AVAILABLE).to_bytes(2) + b"\0\x06orders"
        assert await client.code(lambda number: Unsubscribe(number, 1)) == Code.SUBSCRIPTION_DOES_NOT_EXIST
    options = AloneOptions(poll_s=0.2, gaps=GapRules(otherwise=GapAction.SKIP))
    async with running_alone(archive, options=options) as running, running.client() as client:
        assert await subscribe(client, FIRST) == Code.OK
        assert await delivered(client, 9) == expected(chunks)
        assert running.parts.figures.gaps_total == {"skip": 1}


async def test_a_client_that_takes_nothing_costs_no_more_than_a_buffer(chunks: ChunkArchive) -> None:
    for number in range(40):
        chunks.add(41 + 1000 * number, [Spec(500, 100_000 + at) for at in range(2)])
    archive = DirectArchive(chunks.table, chunks.objects, Keys())
    async with running_alone(archive) as running, running.client() as client:
        transport = client.writer.transport
        transport.pause_reading()
        for one in range(1, 60):
            client.send(Subscribe(one, one, NAME, FIRST, 1000, {}).to_bytes())
        await asyncio.sleep(1)
        (connection,) = running.server._connections
        inner = connection.client.transport
        largest = max(len(one.data) for one in chunks.chunks)
        assert inner.get_write_buffer_size() <= (1 << 20) + 2 * largest
        transport.resume_reading()
        bodies: dict[int, list[bytes]] = {}
        for _ in range(59 * len(expected(chunks))):
            found = Delivered.of(await client.next_of(Key.DELIVER))
            bodies.setdefault(found.subscription_id, []).append(found.chunk)
        assert all(one == expected(chunks) for one in bodies.values())
        assert len(bodies) == 59


async def test_headers_are_as_the_broker_wrote_them(alone: RunningAlone, chunks: ChunkArchive) -> None:
    async with alone.client() as client:
        await subscribe(client, FIRST)
        (first, *_) = await delivered(client, 1)
        header = ChunkHeader.from_bytes(first, source="delivered", position=0)
        assert header == chunks.chunks[0].header
