"""Single active consumers: the broker says who is active, the client from where on, and the archive serves that one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from coldstream.errors import UnavailableError
from coldstream.gateway.frames.keys import Code
from coldstream.gateway.frames.requests import ConsumerUpdateAnswer, Credit, Subscribe
from coldstream.manifest.spec import FIRST, NEXT, AtOffset
from coldstream.units import Offset
from tests.support.fake_stream_broker import FakeLog
from tests.support.made_chunks import made_chunk, made_chunks
from tests.support.takeover_rig import TakeoverRig, user_chunks

CHUNKS = made_chunks(20)
GROUP = {"single-active-consumer": "true", "name": "group"}


def run(scenario: Callable[[TakeoverRig, FakeLog], Awaitable[None]]) -> None:
    async def play() -> None:
        rig = TakeoverRig()
        await scenario(rig, rig.across(CHUNKS))
        rig.close()
        await rig.turn()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(play())


def test_the_broker_gets_no_credits_before_the_consumer_is_active() -> None:
    async def scenario(rig: TakeoverRig, log: FakeLog) -> None:
        number = rig.subscribe(1, "s", FIRST, 10, GROUP)
        rig.credit(1, 3)
        await rig.run()
        assert rig.client.codes == {number: Code.OK}
        (asked,) = rig.broker.requests
        assert isinstance(asked, Subscribe)
        assert (asked.credit, asked.spec, asked.properties) == (0, FIRST, GROUP)
        assert not rig.history.asked

    run(scenario)


@pytest.mark.parametrize(
    ("answered", "start"), [(FIRST, 0), (None, 0), (AtOffset(Offset(45)), 40), (AtOffset(Offset(170)), 170)], ids=str
)
def test_the_answer_to_the_broker_says_where_a_consumer_begins(answered: AtOffset | None, start: int) -> None:
    async def scenario(rig: TakeoverRig, log: FakeLog) -> None:
        rig.subscribe(1, "s", FIRST, 10, GROUP)
        await rig.run()
        update = rig.broker.activate(1, is_active=True)
        await rig.run()
        rig.answer_update(update, answered)
        for _ in range(10):
            await rig.run()
            rig.credit(1, 3)
        assert rig.client.chunks[1] == user_chunks(CHUNKS, start)
        log.append(made_chunk(200))
        rig.broker.dispatch()
        await rig.run()
        assert rig.client.chunks[1] == user_chunks(log.history, start)
        asked = [one.spec for one in rig.broker.requests if isinstance(one, ConsumerUpdateAnswer)]
        assert asked == [answered if start == 170 else AtOffset(Offset(160))]
        mine = [one for one in rig.broker.requests if isinstance(one, Subscribe) and one.subscription_id == 1]
        assert len(mine) == 1, "the consumer has lost its place"

    run(scenario)


def test_the_archive_stops_when_the_consumer_becomes_inactive() -> None:
    async def scenario(rig: TakeoverRig, log: FakeLog) -> None:
        rig.subscribe(1, "s", FIRST, 3, GROUP)
        await rig.run()
        up = rig.broker.activate(1, is_active=True)
        await rig.run()
        rig.answer_update(up, FIRST)
        await rig.run()
        assert len(rig.client.chunks[1]) == 3
        down = rig.broker.activate(1, is_active=False)
        await rig.run()
        rig.answer_update(down, None)
        rig.credit(1, 20)
        await rig.run()
        assert len(rig.client.chunks[1]) == 3
        assert not rig.history.open_readings
        assert not rig.client.refused_credits
        up = rig.broker.activate(1, is_active=True)
        await rig.run()
        rig.client.chunks[1].clear()
        rig.answer_update(up, AtOffset(Offset(100)))
        await rig.run()
        assert rig.client.chunks[1] == user_chunks(CHUNKS, 100)

    run(scenario)


def test_credits_that_were_left_at_the_broker_bring_nothing_twice() -> None:
    async def scenario(rig: TakeoverRig, log: FakeLog) -> None:
        rig.subscribe(1, "s", FIRST, 10, GROUP)
        await rig.run()
        up = rig.broker.activate(1, is_active=True)
        await rig.run()
        rig.answer_update(up, NEXT)
        await rig.run()
        assert rig.broker.readers[1].credit == 10
        rig.broker.activate(1, is_active=False)
        again = rig.broker.activate(1, is_active=True)
        await rig.run()
        rig.answer_update(again, FIRST)
        for _ in range(10):
            await rig.run()
            rig.credit(1, 3)
        assert rig.client.chunks[1] == user_chunks(log.history)

    run(scenario)


def test_a_broker_that_waits_for_an_answer_gets_one_though_the_archive_hangs() -> None:
    async def scenario(rig: TakeoverRig, log: FakeLog) -> None:
        rig.subscribe(1, "s", FIRST, 10, GROUP)
        await rig.run()
        rig.history.archives["/", "s"].answers.clear()
        up = rig.broker.activate(1, is_active=True)
        await rig.run()
        rig.answer_update(up, FIRST)
        await rig.run()
        assert rig.broker.updates, "nothing is known yet"
        down = rig.broker.activate(1, is_active=False)
        await rig.run()
        assert list(rig.broker.updates) == [down]
        up = rig.broker.activate(1, is_active=True)
        await rig.run()
        rig.answer_update(up, FIRST)
        await rig.run()
        rig.unsubscribe(1)
        await rig.run()
        assert list(rig.broker.updates) == [down]

    run(scenario)


def test_a_history_that_cannot_be_asked_ends_it() -> None:
    async def scenario(rig: TakeoverRig, log: FakeLog) -> None:
        rig.subscribe(1, "s", FIRST, 10, GROUP)
        await rig.run()
        rig.history.archives["/", "s"].question_error = UnavailableError("away")
        up = rig.broker.activate(1, is_active=True)
        await rig.run()
        rig.answer_update(up, FIRST)
        await rig.run()
        assert rig.client.gone == ["s"]
        assert not rig.broker.updates
        assert not rig.broker.readers
        assert not rig.client.chunks[1]
        assert not [one for one in rig.broker.requests if isinstance(one, Credit)]

    run(scenario)
