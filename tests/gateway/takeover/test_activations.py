"""Single active consumers whose answers cross what the broker says next, and brokers that know no such consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from coldstream.gateway.frames.keys import Code
from coldstream.gateway.frames.requests import ConsumerUpdateAnswer, Subscribe
from coldstream.manifest.spec import FIRST, AtOffset, OffsetSpec
from coldstream.units import Offset
from tests.support.made_chunks import made_chunks
from tests.support.takeover_rig import TakeoverRig, user_chunks

CHUNKS = made_chunks(20)
GROUP = {"single-active-consumer": "true", "name": "group"}


def run(scenario: Callable[[TakeoverRig], Awaitable[None]], *, has_stats: bool = True) -> None:
    async def play() -> None:
        rig = TakeoverRig(has_stats=has_stats)
        rig.across(CHUNKS)
        await scenario(rig)
        rig.close()
        await rig.turn()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(play())


def answers(rig: TakeoverRig) -> list[tuple[int, OffsetSpec | None]]:
    return [(one.correlation_id, one.spec) for one in rig.broker.requests if isinstance(one, ConsumerUpdateAnswer)]


def test_an_answer_that_comes_after_the_consumer_became_inactive_brings_no_chunk() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.subscribe(1, "s", FIRST, 10, GROUP)
        await rig.run()
        up = rig.broker.activate(1, is_active=True)
        down = rig.broker.activate(1, is_active=False)
        await rig.run()
        assert [one.correlation_id for one in rig.client.updates] == [up, down]
        rig.answer_update(up, FIRST)
        rig.answer_update(down, None)
        await rig.run()
        assert answers(rig) == [(up, FIRST), (down, None)], "the broker waits for both"
        assert rig.client.chunks[1] == []
        assert rig.figures.live_subscriptions == rig.figures.cold_subscriptions == 0
        again = rig.broker.activate(1, is_active=True)
        await rig.run()
        rig.answer_update(again, AtOffset(Offset(50)))
        for _ in range(5):
            await rig.run()
            rig.credit(1, 3)
        assert rig.client.chunks[1] == user_chunks(CHUNKS, 50)

    run(scenario)


def test_the_answer_to_a_later_question_alone_says_where_a_consumer_begins() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.subscribe(1, "s", FIRST, 10, GROUP)
        await rig.run()
        first = rig.broker.activate(1, is_active=True)
        down = rig.broker.activate(1, is_active=False)
        second = rig.broker.activate(1, is_active=True)
        await rig.run()
        rig.answer_update(first, FIRST)
        await rig.run()
        assert rig.client.chunks[1] == []
        rig.answer_update(down, None)
        rig.answer_update(second, AtOffset(Offset(100)))
        for _ in range(5):
            await rig.run()
            rig.credit(1, 3)
        assert rig.client.chunks[1] == user_chunks(CHUNKS, 100)

    run(scenario)


@pytest.mark.parametrize("first_answer", ["sent", "held", "awaited"])
def test_a_consumer_that_is_made_active_twice_begins_anew(first_answer: str) -> None:
    """What the broker sends after it, from where on, cannot be known: chunks of both places may come."""

    async def scenario(rig: TakeoverRig) -> None:
        rig.subscribe(1, "s", FIRST, 10, GROUP)
        await rig.run()
        first = rig.broker.activate(1, is_active=True)
        await rig.run()
        if first_answer == "held":
            rig.history.archives["/", "s"].answers.clear()
            rig.answer_update(first, FIRST)
            await rig.run()
            assert answers(rig) == []
        elif first_answer == "sent":
            rig.answer_update(first, AtOffset(Offset(190)))
            await rig.run()
            assert rig.client.chunks[1] == user_chunks(CHUNKS, 190)
        again = rig.broker.activate(1, is_active=True)
        await rig.run()
        rig.history.archives["/", "s"].answers.set()
        assert rig.client.gone == ["s"]
        assert [one.correlation_id for one in rig.client.updates] == [first]
        assert [one for one, _ in answers(rig)] == [first, again][first_answer == "awaited" :], "the broker waits"
        assert 1 not in rig.broker.readers
        assert rig.figures.live_subscriptions == 0
        rig.client.gone.clear()
        rig.subscribe(1, "s", FIRST, 50, GROUP)
        await rig.run()
        third = rig.broker.activate(1, is_active=True)
        await rig.run()
        rig.answer_update(third, FIRST)
        await rig.run()
        assert rig.client.chunks[1] == user_chunks(CHUNKS)

    run(scenario)


def test_an_answer_with_another_code_begins_where_the_subscription_said_as_at_the_broker() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.subscribe(1, "s", FIRST, 50, GROUP)
        await rig.run()
        up = rig.broker.activate(1, is_active=True)
        await rig.run()
        rig.ask(ConsumerUpdateAnswer(up, Code.NO_OFFSET, None))
        await rig.run()
        assert rig.client.chunks[1] == user_chunks(CHUNKS)

    run(scenario)


def test_a_broker_that_knows_no_single_active_consumers_serves_it_as_any_other() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.subscribe(1, "s", FIRST, 50, GROUP)
        await rig.run()
        assert rig.client.chunks[1] == user_chunks(CHUNKS)
        (asked,) = [one for one in rig.broker.requests if isinstance(one, Subscribe) and one.subscription_id == 1]
        assert asked.properties == GROUP

    run(scenario, has_stats=False)
