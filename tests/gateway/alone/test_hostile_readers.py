"""Readers that look where they may not, offsets that outlive their stream, and subscriptions that must not wait."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from coldstream.format.chunk import Chunk, ChunkHeader, iter_chunks
from coldstream.format.writer import make_chunk
from coldstream.gateway.alone import reading
from coldstream.gateway.alone.options import AloneOptions
from coldstream.gateway.alone.permissions import StreamPermissions
from coldstream.gateway.alone.served_stream import ServedChunk
from coldstream.gateway.frames.answers import (
    ConsumerUpdate,
    OffsetAnswer,
    PartitionsAnswer,
    ResolveOffsetSpecAnswer,
    RouteAnswer,
    SequenceAnswer,
    StreamStatsAnswer,
)
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import (
    Close,
    ConsumerUpdateAnswer,
    Create,
    Credit,
    DeclarePublisher,
    Delete,
    Partitions,
    QueryOffset,
    QueryPublisherSequence,
    ResolveOffsetSpec,
    Route,
    StoreOffset,
    StreamStats,
    Subscribe,
    Unsubscribe,
)
from coldstream.gateway.history.memory import MemoryHistory
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.streams import DirectArchive, StreamClient
from coldstream.units import MAX_OFFSET, ChunkId, Epoch, Offset, TimestampMs
from tests.support.alone import Delivered, RawClient, confirmed, publish, running_alone

STREAM = "orders"


@pytest.fixture
def archive() -> DirectArchive:
    return DirectArchive.in_memory()


def chunks(count: int, message: bytes = b"x") -> list[Chunk]:
    found: list[Chunk] = []
    for number in range(count):
        _, data = make_chunk([message], chunk_id=ChunkId(number), timestamp=TimestampMs(1000 * number), epoch=Epoch(1))
        found += iter_chunks(data, source="test", expected=ChunkId(number))
    return found


async def create(client: RawClient, stream: str = STREAM) -> None:
    assert await client.code(lambda number: Create(number, stream, {})) == Code.OK


async def publish_some(client: RawClient, count: int, publisher_id: int = 1, stream: str = STREAM) -> None:
    code = await client.code(lambda number: DeclarePublisher(number, publisher_id, None, stream))
    assert code in {Code.OK, Code.PRECONDITION_FAILED}
    for number in range(count):
        client.send(publish(publisher_id, (number, b"%d" % number)))
        assert confirmed(await client.next_of(Key.PUBLISH_CONFIRM)) == (publisher_id, [number])


async def stored(client: RawClient, reference: str = "readers", stream: str = STREAM) -> int | None:
    found = await client.ask(lambda number: QueryOffset(number, reference, stream), OffsetAnswer)
    return found.offset if isinstance(found, OffsetAnswer) else None


def first_offset(body: bytes) -> int:
    return int(ChunkHeader.from_bytes(Delivered.of(body).chunk, source="delivered", position=0).chunk_id)


async def test_who_may_only_write_moves_no_reader(archive: DirectArchive) -> None:
    rules = StreamPermissions.parse(["writer / orders w", "reader / orders r", "admin * * rw"])
    async with running_alone(archive, permissions=rules) as alone:
        async with alone.client("admin") as admin:
            await create(admin)
        async with alone.client("writer") as writer, alone.client("reader") as reader:
            await writer.ask(lambda number: QueryPublisherSequence(number, "till", STREAM), SequenceAnswer)
            writer.send(StoreOffset("readers", STREAM, 1000).to_bytes())
            await writer.ask(lambda number: QueryPublisherSequence(number, "till", STREAM), SequenceAnswer)
            assert await stored(reader) is None


@pytest.mark.parametrize("user", ["nobody", "writer"])
async def test_who_may_not_read_learns_nothing_of_a_stream_by_any_question(archive: DirectArchive, user: str) -> None:
    rules = StreamPermissions.parse(["admin * * rw", "nobody / other r", "writer / logs-* w", "writer / orders w"])
    options = AloneOptions(creates_streams=True, super_streams=("*",))
    async with running_alone(archive, permissions=rules, options=options) as alone:
        async with alone.client("admin") as admin:
            for name in (STREAM, "logs-0", "logs-1"):
                await create(admin, name)
        async with alone.client(user) as client:
            refused = Code.ACCESS_REFUSED
            for name in (STREAM, "there is none"):
                for ask in (
                    lambda number, name=name: StreamStats(number, name),
                    lambda number, name=name: QueryOffset(number, "readers", name),
                    lambda number, name=name: ResolveOffsetSpec(number, name, FIRST, {}),
                    lambda number, name=name: Subscribe(number, 1, name, FIRST, 1, {}),
                ):
                    assert await client.code(ask) == refused
            sight = Code.OK if user == "writer" else Code.STREAM_DOES_NOT_EXIST
            found = await client.ask(lambda number: Partitions(number, "logs"), PartitionsAnswer)
            assert found.code == sight
            route = await client.ask(lambda number: Route(number, "0", "logs"), RouteAnswer)
            assert route.code == sight


async def test_an_offset_that_was_stored_is_not_that_of_a_stream_created_anew(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone, alone.client() as client:
        await create(client)
        await publish_some(client, 3)
        client.send(StoreOffset("readers", STREAM, 2).to_bytes())
        assert await stored(client) == 2
        assert await client.code(lambda number: Delete(number, STREAM)) == Code.OK
        await create(client)
        assert await stored(client) is None
        await alone.parts.history.flush()
        assert await stored(client) is None


async def test_an_offset_that_is_stored_right_before_a_close_is_stored(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone:
        async with alone.client() as client:
            await create(client)
        for number in range(3):
            async with alone.client() as client:
                client.send(StoreOffset("readers", STREAM, number).to_bytes(), Close(1, Code.OK, "bye").to_bytes())
                assert await client.next_of(Key.CLOSE | ANSWER)
            async with alone.client() as client:
                assert await stored(client) == number


async def test_references_of_one_connection_are_bounded(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone, alone.client() as client, alone.client() as other:
        await create(client)
        other.send(StoreOffset("mine", STREAM, 7).to_bytes())
        assert await stored(other, "mine") == 7
        client.send(*(StoreOffset(f"r{number}", STREAM, number).to_bytes() for number in range(25_000)))
        assert await stored(client, "r24999") is None
        assert await stored(client, "r1") == 1
        # The flood has pushed nobody else's out.
        assert alone.parts.history._notes.noted(("/", STREAM, "mine")) == 7 or await stored(other, "mine") == 7


async def test_a_stream_that_others_created_anew_is_not_served_as_it_was(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone, alone.client() as client, alone.client() as reader:
        await create(client)
        await publish_some(client, 5)
        assert await reader.code(lambda number: Subscribe(number, 1, STREAM, NEXT, 10, {})) == Code.OK
        async with await StreamClient.open(archive) as others:
            handle = await others.open_stream(STREAM)
            await handle.destroy()
            await others.create(STREAM)
            assert (await reader.next_of(Key.METADATA_UPDATE)).endswith(STREAM.encode())
            anew = await others.open_stream(STREAM)
            await anew.append([b"new"])
            assert await reader.code(lambda number: Subscribe(number, 1, STREAM, FIRST, 10, {})) == Code.OK
            assert first_offset(await reader.next_of(Key.DELIVER)) == 0


async def test_figures_and_specs_are_those_of_who_has_taken_the_stream_over(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone, alone.client() as client:
        await create(client)
        await publish_some(client, 2)
        async with await StreamClient.open(archive) as others:
            handle = await others.open_stream(STREAM)
            for _ in range(5):
                await handle.append([b"new"])
            await asyncio.sleep(0.5)  # more than how old an answer may be here
            found = await client.ask(lambda number: StreamStats(number, STREAM), StreamStatsAnswer)
            assert isinstance(found, StreamStatsAnswer)
            assert dict(found.figures)["committed_offset"] == 6
            resolved = await client.ask(
                lambda number: ResolveOffsetSpec(number, STREAM, NEXT, {}), ResolveOffsetSpecAnswer
            )
            assert isinstance(resolved, ResolveOffsetSpecAnswer)
            assert resolved.spec == AtOffset(Offset(7))


async def test_a_single_active_consumer_without_its_lease_delays_no_other_subscription(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = MemoryHistory()
    history.put("/", "one", chunks(5))
    history.put("/", "two", chunks(5))
    options = AloneOptions(turns_every_s=0.05, lease_s=5.0)
    async with (
        running_alone(DirectArchive.in_memory(), history=history, options=options) as alone,
        alone.client() as client,
    ):
        properties = {"single-active-consumer": "true", "name": "r"}
        assert await client.code(lambda number: Subscribe(number, 1, "one", FIRST, 1, properties)) == Code.OK
        update = ConsumerUpdate.from_body(await client.next_of(Key.CONSUMER_UPDATE))
        client.send(ConsumerUpdateAnswer(update.correlation_id, Code.OK, FIRST).to_bytes())
        assert first_offset(await client.next_of(Key.DELIVER)) == 0
        (connection,) = alone.server._connections
        single = connection._frames.consumers._by_id[1].subscription
        assert single is not None
        source = single._source
        assert source is not None
        take, has_taken = source.take, asyncio.Event()

        async def take_and_lose_the_lease() -> ServedChunk:
            chunk = await take()
            single.may_send = lambda: False
            has_taken.set()
            return chunk

        monkeypatch.setattr(source, "take", take_and_lose_the_lease)
        client.send(Credit(1, 10).to_bytes())
        await has_taken.wait()
        assert await client.code(lambda number: Subscribe(number, 2, "two", FIRST, 100, {})) == Code.OK
        for number in range(5):
            found = Delivered.of(await client.next_of(Key.DELIVER))
            assert (found.subscription_id, found.chunk[24:32]) == (2, number.to_bytes(8))


@pytest.mark.parametrize(
    ("spec", "at"),
    [
        (AtOffset(Offset(MAX_OFFSET)), 3),
        (AtTimestamp(TimestampMs(-1)), 0),
        (AtTimestamp(TimestampMs(-(1 << 63))), 0),
        (AtTimestamp(TimestampMs((1 << 63) - 1)), 3),
        (LAST, 2),
    ],
)
async def test_specs_outside_of_the_stream_are_its_ends(archive: DirectArchive, spec: OffsetSpec, at: int) -> None:
    async with running_alone(archive) as alone, alone.client() as client:
        await create(client)
        await publish_some(client, 3)
        found = await client.ask(lambda number: ResolveOffsetSpec(number, STREAM, spec, {}), ResolveOffsetSpecAnswer)
        assert isinstance(found, ResolveOffsetSpecAnswer)
        assert found.spec == AtOffset(Offset(at))
        assert await client.code(lambda number: Subscribe(number, 1, STREAM, spec, 65535, {})) == Code.OK
        if at < 3:
            assert first_offset(await client.next_of(Key.DELIVER)) == at


async def test_a_flood_of_credit_is_counted_once_and_for_an_id_that_is_gone_it_is_refused(
    archive: DirectArchive,
) -> None:
    async with running_alone(archive) as alone, alone.client() as client:
        await create(client)
        await publish_some(client, 3)
        client.send(Subscribe(1, 255, STREAM, FIRST, 0, {}).to_bytes(), *[Credit(255, 65535).to_bytes()] * 1000)
        for number in range(3):
            assert first_offset(await client.next_of(Key.DELIVER)) == number
        assert await client.code(lambda number: Unsubscribe(number, 255)) == Code.OK
        client.send(Credit(255, 1).to_bytes())
        assert (await client.next_of(Key.CREDIT | ANSWER))[4:6] == int(Code.SUBSCRIPTION_DOES_NOT_EXIST).to_bytes(2)


async def test_subscriptions_of_a_client_that_reads_nothing_hold_little_and_then_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "_REST_S", 0.3)
    size_bytes = 300_000
    history = MemoryHistory()
    history.put("/", STREAM, chunks(5, bytes(size_bytes)))
    history.put("/", "small", chunks(5))
    options = AloneOptions(max_sending_bytes=4 * size_bytes)
    async with (
        running_alone(DirectArchive.in_memory(), history=history, options=options) as alone,
        alone.client() as client,
        alone.client() as other,
    ):
        budget = alone.parts.sending
        seen = [0]
        give = budget.give
        monkeypatch.setattr(budget, "give", lambda size: (seen.append(budget.used_bytes), give(size)))
        client.writer.transport.pause_reading()
        client.send(*(Subscribe(number, number, STREAM, FIRST, 10, {}).to_bytes() for number in range(100)))
        figures = alone.parts.figures
        async with asyncio.timeout(60):
            while figures.cold_subscriptions < 100 or not 0 < budget.used_bytes < 2 * size_bytes:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert max(seen) < 6 * size_bytes
        # Nobody else waits for it.
        assert await other.code(lambda number: Subscribe(number, 1, "small", FIRST, 10, {})) == Code.OK
        for number in range(5):
            assert first_offset(await other.next_of(Key.DELIVER)) == number
        # And when it reads, each subscription has every chunk once, in order.
        client.writer.transport.resume_reading()
        found: dict[int, list[int]] = {}
        for _ in range(500):
            body = await client.next_of(Key.DELIVER)
            found.setdefault(Delivered.of(body).subscription_id, []).append(first_offset(body))
        assert found == {number: [0, 1, 2, 3, 4] for number in range(100)}


async def test_a_subscriber_at_the_tail_is_not_left_waiting_for_the_offsets_of_a_stream_created_anew(
    archive: DirectArchive,
) -> None:
    options = AloneOptions(poll_s=2.0)
    async with (
        await StreamClient.open(archive) as others,
        running_alone(archive, options=options) as alone,
        alone.client() as reader,
    ):
        await others.create(STREAM)
        handle = await others.open_stream(STREAM)
        for _ in range(5):
            await handle.append([b"old"])
        assert await reader.code(lambda number: Subscribe(number, 1, STREAM, NEXT, 10, {})) == Code.OK
        look = alone.parts.host._look
        looked = asyncio.Event()

        async def looks_again(*asked: Any) -> Any:
            found = await look(*asked)
            looked.set()
            return found

        alone.parts.host._look = looks_again  # type: ignore[method-assign]
        await looked.wait()
        # Between two looks.
        await handle.destroy()
        await others.create(STREAM)
        await (await others.open_stream(STREAM)).append([b"new"])
        assert (await reader.next_of(Key.METADATA_UPDATE)).endswith(STREAM.encode())


async def test_who_is_refused_again_and_again_fills_no_log(
    archive: DirectArchive, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running_alone(archive) as alone, alone.client() as client:
        for number in range(1000):
            client.send(StreamStats(number, "none").to_bytes(), Subscribe(number, 1, "", FIRST, 1, {}).to_bytes())
            client.send(StoreOffset("x" * 300, STREAM, number).to_bytes())
        for _ in range(1000):
            await client.next_of(Key.STREAM_STATS | ANSWER)
    refused = [one for one in caplog.records if "refused" in one.getMessage() or "not stored" in one.getMessage()]
    assert len(refused) < 110
