"""Stored offsets, figures and resolved specs, where the archive knows better."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from coldstream.errors import UnavailableError
from coldstream.gateway.frames.answers import OffsetAnswer, ResolveOffsetSpecAnswer, StreamStatsAnswer
from coldstream.gateway.frames.frame import StreamFrame
from coldstream.gateway.frames.keys import ANSWER, Code
from coldstream.gateway.frames.requests import QueryOffset, ResolveOffsetSpec, StoreOffset, StreamStats
from coldstream.manifest.spec import FIRST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.units import Offset, TimestampMs
from tests.support.fake_stream_broker import FakeLog
from tests.support.made_chunks import made_chunk, made_chunks
from tests.support.takeover_rig import TakeoverRig

CHUNKS = made_chunks(20, first=50)


def run(scenario: Callable[[TakeoverRig, FakeLog], Awaitable[None]], *, has_stats: bool = True) -> None:
    async def play() -> None:
        rig = TakeoverRig(has_stats=has_stats)
        await scenario(rig, rig.across(CHUNKS))
        rig.close()
        await rig.turn()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(play())


async def asked(rig: TakeoverRig, request: StreamFrame) -> bytes:
    """Return the answer to a request, without its length."""
    rig.ask(request)
    await rig.run()
    key, frame = rig.client.frames[-1]
    assert key == ANSWER | request.KEY
    return frame[4:]


async def stored(rig: TakeoverRig, reference: str = "app") -> OffsetAnswer:
    return OffsetAnswer.from_body(await asked(rig, QueryOffset(rig.next_number(), reference, "s")))


@pytest.mark.parametrize("has_stats", [True, False], ids=["3.11", "3.10"])
def test_an_offset_that_retention_has_taken_is_answered(*, has_stats: bool) -> None:
    async def scenario(rig: TakeoverRig, log: FakeLog) -> None:
        rig.ask(StoreOffset("app", "s", 100))
        await rig.run()
        answer = await stored(rig)
        assert (answer.code, answer.offset) == (Code.OK, 100)
        log.retain(4)
        assert not log.offsets
        answer = await stored(rig)
        assert (answer.code, answer.offset) == (Code.OK, 100)
        assert (await stored(rig, "nobody")).code == Code.NO_OFFSET

    run(scenario, has_stats=has_stats)


def test_an_offset_that_the_broker_could_still_know_was_never_stored() -> None:
    async def scenario(rig: TakeoverRig, log: FakeLog) -> None:
        rig.history.note_offset("/", "s", "app", Offset(180))
        assert (await stored(rig)).code == Code.NO_OFFSET

    run(scenario)


def test_the_brokers_own_offset_counts() -> None:
    async def scenario(rig: TakeoverRig, log: FakeLog) -> None:
        rig.history.note_offset("/", "s", "app", Offset(100))
        log.offsets["app"] = 230
        assert (await stored(rig)).offset == 230

    run(scenario)


def test_an_offset_of_another_incarnation_is_none() -> None:
    async def scenario(rig: TakeoverRig, log: FakeLog) -> None:
        rig.history.note_offset("/", "s", "app", Offset(100))
        rig.history.put("/", "s", [made_chunk(10 * number, timestamp=5) for number in range(20)])
        assert (await stored(rig)).code == Code.NO_OFFSET

    run(scenario)


@pytest.mark.parametrize("fails", [True, False], ids=["an error", "silence"])
def test_while_the_archive_cannot_tell_a_client_is_not_told_that_it_has_stored_nothing(*, fails: bool) -> None:
    async def scenario(rig: TakeoverRig, log: FakeLog) -> None:
        rig.history.note_offset("/", "s", "app", Offset(100))
        archive = rig.history.archives["/", "s"]
        if fails:
            archive.question_error = UnavailableError("away")
        else:
            archive.answers.clear()
        rig.ask(QueryOffset(77, "app", "s"))
        await rig.run(seconds=0.5)
        assert rig.client.codes == {77: Code.STREAM_NOT_AVAILABLE}

    run(scenario)


def test_the_first_chunk_is_the_archives() -> None:
    async def scenario(rig: TakeoverRig, log: FakeLog) -> None:
        answer = StreamStatsAnswer.from_body(await asked(rig, StreamStats(5, "s")))
        assert answer == StreamStatsAnswer(5, Code.OK, (("first_chunk_id", 50), ("committed_chunk_id", 249)))
        rig.history.archives.clear()
        answer = StreamStatsAnswer.from_body(await asked(rig, StreamStats(6, "s")))
        assert dict(answer.figures)["first_chunk_id"] == 170

    run(scenario)


@pytest.mark.parametrize(
    ("spec", "offset"),
    [
        (FIRST, 50),
        (AtOffset(Offset(3)), 50),
        (AtOffset(Offset(77)), 70),
        (AtOffset(Offset(185)), 180),
        (AtTimestamp(TimestampMs(90_500)), 100),
        (AtTimestamp(TimestampMs(190_500)), 200),
        (NEXT, 250),
    ],
    ids=str,
)
def test_a_spec_is_resolved_where_it_lies(spec: OffsetSpec, offset: int) -> None:
    async def scenario(rig: TakeoverRig, log: FakeLog) -> None:
        answer = ResolveOffsetSpecAnswer.from_body(await asked(rig, ResolveOffsetSpec(5, "s", spec, {})))
        assert answer == ResolveOffsetSpecAnswer(5, Code.OK, AtOffset(Offset(offset)))

    run(scenario)


def test_more_questions_than_a_client_asks_at_once_are_the_brokers_but_nobody_is_told_that_nothing_is_stored() -> None:
    async def scenario(rig: TakeoverRig, log: FakeLog) -> None:
        rig.history.archives["/", "s"].answers.clear()
        for number in range(1000, 1400):
            rig.ask(QueryOffset(number, "app", "s"))
        await rig.run()
        assert len(rig.client.codes) == 400 - 256
        assert set(rig.client.codes.values()) == {Code.STREAM_NOT_AVAILABLE}
        rig.history.archives["/", "s"].answers.set()
        await rig.run()
        assert len(rig.client.codes) == 400
        log.offsets["other"] = 240
        for number in range(2000, 2300):
            rig.ask(QueryOffset(number, "other", "s"))
        await rig.run()
        assert {rig.client.codes[number] for number in range(2000, 2300)} == {Code.OK}

    run(scenario)


@pytest.mark.parametrize("proof", ["Subscribe", "QueryOffset"])
def test_an_offset_is_noted_at_once_if_the_broker_has_shown_that_the_client_may_read(proof: str) -> None:
    """Or one that is stored just before a client goes would be lost."""

    async def scenario(rig: TakeoverRig, log: FakeLog) -> None:
        if proof == "Subscribe":
            rig.subscribe(1, "s", NEXT)
        else:
            rig.ask(QueryOffset(77, "app", "s"))
        await rig.run()
        asked = len(rig.broker.requests)
        rig.ask(StoreOffset("app", "s", 100))
        assert rig.history.offsets == {("/", "s", "app"): 100}
        await rig.run()
        assert not [one for one in rig.broker.requests[asked:] if isinstance(one, QueryOffset)]

    run(scenario)


def test_what_a_refused_subscription_stores_is_not_noted() -> None:
    async def scenario(rig: TakeoverRig, log: FakeLog) -> None:
        rig.broker.refused["s"] = Code.ACCESS_REFUSED
        rig.subscribe(1, "s", NEXT)
        rig.ask(QueryOffset(77, "app", "s"))
        await rig.run()
        rig.ask(StoreOffset("app", "s", 100))
        await rig.run()
        assert not rig.history.offsets

    run(scenario)
