"""Single active consumers, among the connections of two servers that share an archive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from coldstream.gateway.alone.consumer_turns import CONSUMERS, SESSIONS
from coldstream.gateway.alone.options import AloneOptions
from coldstream.gateway.alone.turns import TurnName
from coldstream.gateway.frames.answers import ConsumerUpdate
from coldstream.gateway.frames.keys import Code, Key
from coldstream.gateway.frames.requests import ConsumerUpdateAnswer, Subscribe, Unsubscribe
from coldstream.manifest.spec import FIRST, AtOffset, OffsetSpec
from coldstream.manifest.state_item import StateItem
from coldstream.store.keys import Keys
from coldstream.streams import DirectArchive
from coldstream.units import Offset
from tests.support.alone import Delivered, RawClient, RunningAlone, running_alone
from tests.support.archive import ChunkArchive, Spec
from tests.support.http_archive import HttpObjects, object_server

LEASE_S = 1.0


@pytest.fixture
def archive() -> Iterator[DirectArchive]:
    objects = HttpObjects()
    chunks = ChunkArchive(objects=objects)
    chunks.add(0, [Spec(5, 1000 * at) for at in range(4)])
    with object_server(objects):
        yield DirectArchive(chunks.table, chunks.objects, Keys())


@asynccontextmanager
async def a_server(archive: DirectArchive) -> AsyncIterator[RunningAlone]:
    options = AloneOptions(
        poll_s=0.2, turns_every_s=0.1, lease_s=LEASE_S, answer_s=5.0, super_streams=("ord*",), creates_streams=True
    )
    async with running_alone(archive, options=options) as alone:
        yield alone


async def subscribe(
    client: RawClient, *, number: int = 1, stream: str = "orders", name: str = "readers", **more: str
) -> int:
    properties = {
        "single-active-consumer": "true",
        "name": name,
        **{key.replace("_", "-"): one for key, one in more.items()},
    }
    return await client.code(lambda asked: Subscribe(asked, number, stream, FIRST, 10, properties))


async def told(client: RawClient) -> ConsumerUpdate:
    return ConsumerUpdate.from_body(await client.next_of(Key.CONSUMER_UPDATE))


def answer(client: RawClient, update: ConsumerUpdate, spec: OffsetSpec | None = None) -> None:
    client.send(ConsumerUpdateAnswer(update.correlation_id, Code.OK, spec).to_bytes())


async def nothing_comes(client: RawClient, key: int, within_s: float = 0.5) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(within_s):
            await client.next_of(key)


async def first_chunk(client: RawClient) -> int:
    return int.from_bytes(Delivered.of(await client.next_of(Key.DELIVER)).chunk[24:32], "big")


async def test_the_first_is_active_from_where_it_says_and_the_next_follows_when_it_unsubscribes(
    archive: DirectArchive,
) -> None:
    async with a_server(archive) as one, a_server(archive) as two, one.client() as a, two.client() as b:
        assert await subscribe(a) == Code.OK
        update = await told(a)
        assert (update.subscription_id, update.is_active) == (1, 1)
        await nothing_comes(a, Key.DELIVER)  # before its answer
        answer(a, update, AtOffset(Offset(7)))
        assert await first_chunk(a) == 5
        assert await subscribe(b) == Code.OK
        await nothing_comes(b, Key.CONSUMER_UPDATE)
        assert await a.code(lambda number: Unsubscribe(number, 1)) == Code.OK
        update = await told(b)
        assert update.is_active == 1
        answer(b, update)  # nothing said: as the subscription said
        assert await first_chunk(b) == 0


async def test_consumers_of_one_connection_and_of_others_wait_in_line(archive: DirectArchive) -> None:
    async with a_server(archive) as one, one.client() as a, one.client() as b:
        await subscribe(a, number=1)
        answer(a, await told(a))
        await subscribe(b, number=1)
        await subscribe(a, number=2)
        a.writer.transport.abort()
        assert (await told(b)).is_active == 1


async def test_another_name_or_stream_is_another_line(archive: DirectArchive) -> None:
    async with a_server(archive) as one, one.client() as a:
        await subscribe(a, number=1, name="some")
        await subscribe(a, number=2, name="others")
        assert {(await told(a)).subscription_id for _ in range(2)} == {1, 2}


async def test_a_single_active_consumer_without_a_name_is_refused(archive: DirectArchive) -> None:
    async with a_server(archive) as one, one.client() as a:
        properties = {"single-active-consumer": "true"}
        code = await a.code(lambda asked: Subscribe(asked, 1, "orders", FIRST, 10, properties))
        assert code == Code.PRECONDITION_FAILED


async def test_a_consumer_whose_process_stands_still_is_followed_and_sends_nothing_more(
    archive: DirectArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_server(archive) as one, a_server(archive) as two, one.client() as a, two.client() as b:
        assert await a.code(
            lambda asked: Subscribe(asked, 1, "orders", FIRST, 1, {"single-active-consumer": "true", "name": "r"})
        )
        answer(a, await told(a))
        assert await first_chunk(a) == 0
        await subscribe(b, name="r")
        turns = one.parts.turns
        step = turns.step
        goes_on = asyncio.Event()

        async def stand_still() -> None:
            await goes_on.wait()
            await step()

        monkeypatch.setattr(turns, "step", stand_still)
        began = asyncio.get_running_loop().time()
        update = await told(b)
        assert update.is_active == 1
        assert asyncio.get_running_loop().time() - began >= LEASE_S / 2
        # Its lease is over before the other's turn begins: with all the credit it is sent nothing.
        from coldstream.gateway.frames.requests import Credit  # noqa: PLC0415

        a.send(Credit(1, 10).to_bytes())
        await nothing_comes(a, Key.DELIVER)
        goes_on.set()
        update = await told(a)
        assert update.is_active == 0
        answer(a, update)
        # It stands in line again.
        b.writer.transport.abort()
        assert (await told(a)).is_active == 1


async def test_partitions_of_a_super_stream_are_shared_and_a_turn_is_given_up_only_when_the_client_knows(
    archive: DirectArchive,
) -> None:
    async with a_server(archive) as one, a_server(archive) as two, one.client() as a, two.client() as b:
        await one.parts.host.create("/", "ord-0")
        await one.parts.host.create("/", "ord-1")
        for number in (0, 1):
            assert await subscribe(a, number=number, stream=f"ord-{number}", super_stream="ord") == Code.OK
        updates = [await told(a), await told(a)]
        assert [one.is_active for one in updates] == [1, 1]
        for update in updates:
            answer(a, update)
        for number in (0, 1):
            assert await subscribe(b, number=number, stream=f"ord-{number}", super_stream="ord") == Code.OK
        update = await told(a)
        assert (update.subscription_id, update.is_active) == (1, 0)
        await nothing_comes(b, Key.CONSUMER_UPDATE)
        answer(a, update)
        update = await told(b)
        assert (update.subscription_id, update.is_active) == (1, 1)


async def test_a_client_that_does_not_answer_is_let_go(archive: DirectArchive) -> None:
    options = AloneOptions(turns_every_s=0.1, lease_s=LEASE_S, answer_s=0.3)
    async with running_alone(archive, options=options) as one, one.client() as a:
        await subscribe(a)
        await told(a)
        assert b"ConsumerUpdate" in await a.next_of(Key.CLOSE)


async def test_nothing_is_left_in_the_table_when_all_are_gone(archive: DirectArchive) -> None:
    async with a_server(archive) as one, one.client() as a:
        await subscribe(a)
        answer(a, await told(a))
    assert list(archive.table.state_items(CONSUMERS)) == []
    assert list(archive.table.state_items(SESSIONS)) == []


async def test_an_item_that_makes_no_sense_stops_the_turns_of_no_other_name(archive: DirectArchive) -> None:
    archive.table.add_state(StateItem(CONSUMERS, TurnName("/", "orders", "broken").key, 1, b"no JSON"))
    async with a_server(archive) as one, one.client() as a:
        assert await subscribe(a, number=1, name="broken") == Code.OK
        assert await subscribe(a, number=2, name="fine") == Code.OK
        assert (await told(a)).subscription_id == 2


async def test_an_answer_that_comes_after_the_turn_was_over_says_nothing_of_the_next_one(
    archive: DirectArchive,
) -> None:
    async with a_server(archive) as one, one.client() as a:
        await subscribe(a)
        late = await told(a)
        (seat,) = one.parts.turns._seats
        one.parts.turns._stop(seat)
        over = await told(a)
        assert over.is_active == 0
        answer(a, over)
        again = await told(a)
        assert again.is_active == 1
        answer(a, late, FIRST)  # found out before others had read on
        answer(a, again, AtOffset(Offset(7)))
        assert await first_chunk(a) == 5
