"""What is missing where archive and broker meet, and credits and versions at that place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from coldstream.gateway.frames.keys import Code
from coldstream.gateway.gap_rules import GapAction, GapRules
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.manifest.spec import FIRST, NEXT
from tests.support.made_chunks import made_chunk, made_chunks
from tests.support.takeover_rig import TakeoverRig, user_chunks

CHUNKS = made_chunks(20)


NEVER_S = 1_000.0
"""A wait whose end no test comes to."""


def options(policy: GapAction, wait_s: float) -> TakeoverOptions:
    return TakeoverOptions(GapRules(otherwise=policy), archive_wait_s=wait_s, archive_poll_s=0.01, question_s=0.2)


def run(
    scenario: Callable[[TakeoverRig], Awaitable[None]],
    policy: GapAction = GapAction.ERROR,
    version: int = 1,
    wait_s: float = 0.05,
) -> None:
    async def play() -> None:
        rig = TakeoverRig(options=options(policy, wait_s), version=version)
        await scenario(rig)
        rig.close()
        await rig.turn()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(play())


@pytest.mark.parametrize("policy", GapAction)
def test_an_archive_that_ends_sooner_than_it_did_leaves_a_gap_even_if_the_broker_has_what_is_missing(
    policy: GapAction,
) -> None:
    """The broker reads from the archive's former end on, so it never sends what lies before."""

    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        archive = rig.history.archives["/", "s"]
        archive.flows.clear()
        rig.subscribe(1, "s", FIRST, 50)
        await rig.run()
        del archive.chunks[14:]
        archive.flows.set()
        await rig.run(seconds=0.3)
        assert rig.figures.gaps_total == {policy.value: 1}
        if policy is GapAction.ERROR:
            assert rig.client.chunks[1] == user_chunks(CHUNKS[:14])
            assert rig.client.gone == ["s"]
        else:
            assert rig.client.chunks[1] == user_chunks(CHUNKS[:14] + CHUNKS[16:])

    run(scenario, policy)


def test_what_comes_back_into_the_archive_is_no_gap() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        archive = rig.history.archives["/", "s"]
        archive.flows.clear()
        rig.subscribe(1, "s", FIRST, 50)
        await rig.run()
        del archive.chunks[14:]
        archive.flows.set()
        await rig.run()
        archive.chunks.extend(CHUNKS[14:16])
        await rig.run(seconds=0.3)
        assert rig.client.chunks[1] == user_chunks(CHUNKS)

    run(scenario)


def test_a_gap_is_skipped_no_further_than_to_what_the_broker_has() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        log = rig.across(CHUNKS, left=100)
        rig.subscribe(1, "s", FIRST, 5)
        await rig.run()
        assert rig.client.chunks[1] == user_chunks(CHUNKS[:5])
        log.retain(4)
        del rig.history.archives["/", "s"].chunks[10:15]
        for _ in range(10):
            rig.credit(1, 2)
            await rig.run(seconds=0.02)
        assert rig.client.chunks[1] == user_chunks(CHUNKS[:10] + CHUNKS[12:])
        assert rig.figures.gaps_total == {"skip": 1}

    run(scenario, GapAction.SKIP)


@pytest.mark.parametrize("policy", GapAction)
def test_what_is_archived_in_another_order_is_no_gap(policy: GapAction) -> None:
    """Uploads run side by side: a later segment may be archived before an earlier one."""

    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        chunks = rig.history.archives["/", "s"].chunks
        late = chunks[4:8]
        del chunks[4:8]
        rig.subscribe(1, "s", FIRST, 50)
        await rig.run()
        assert rig.client.chunks[1] == user_chunks(CHUNKS[:4])
        chunks[4:4] = late
        await rig.run(seconds=0.1)
        assert rig.client.chunks[1] == user_chunks(CHUNKS)
        assert not rig.figures.gaps_total

    run(scenario, policy, wait_s=NEVER_S)


@pytest.mark.parametrize(
    ("reason", "wait_s", "is_skipped"),
    [(None, NEVER_S, False), (None, 0.05, True), ("lost", NEVER_S, True)],
)
def test_a_gap_without_a_reason_is_waited_for(reason: str | None, wait_s: float, is_skipped: bool) -> None:  # noqa: FBT001
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        archive = rig.history.archives["/", "s"]
        archive.reasons = {} if reason is None else {CHUNKS[4].header.chunk_id: reason}
        del archive.chunks[4:8]
        rig.subscribe(1, "s", FIRST, 50)
        await rig.run(seconds=0.2)
        assert rig.client.chunks[1] == user_chunks(CHUNKS[:4] + (CHUNKS[8:] if is_skipped else []))
        assert rig.figures.gaps_total == ({"skip": 1} if is_skipped else {})

    run(scenario, GapAction.SKIP, wait_s=wait_s)


def test_a_gap_that_was_filled_since_the_reading_was_planned_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        archive = rig.history.archives["/", "s"]
        archive.reasons = {CHUNKS[4].header.chunk_id: "lost"}
        late = archive.chunks[4:8]
        del archive.chunks[4:8]
        real = rig.history.read
        plans = []

        def read(*arguments: Any) -> Any:
            reading = real(*arguments)
            if len(plans) == 1:  # another node's agent had it after all
                archive.chunks[4:4] = late
            plans.append(arguments)
            return reading

        monkeypatch.setattr(rig.history, "read", read)
        rig.subscribe(1, "s", FIRST, 50)
        await rig.run(seconds=0.1)
        assert rig.client.chunks[1] == user_chunks(CHUNKS)
        assert len(plans) == 2

    run(scenario, GapAction.SKIP, wait_s=NEVER_S)


def test_credits_that_come_before_the_answer_count_if_the_subscription_has_none() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS, left=100)
        number = rig.subscribe(1, "s", FIRST, 0)
        rig.credit(1, 3)
        await rig.run()
        assert rig.client.codes == {number: Code.OK}
        assert rig.client.chunks[1] == user_chunks(CHUNKS[:3])

    run(scenario)


@pytest.mark.parametrize("version", [1, 2])
def test_what_retention_took_is_delivered_in_the_connections_version(version: int) -> None:
    async def scenario(rig: TakeoverRig) -> None:
        log = rig.across(CHUNKS)
        rig.subscribe(1, "s", NEXT, 1)
        await rig.run()
        chunks = [made_chunk(200 + 10 * number) for number in range(20)]
        for chunk in chunks:
            log.roll()
            log.append(chunk)
            rig.broker.dispatch()
        rig.history.archives["/", "s"].chunks.extend([*CHUNKS[16:], *chunks])
        log.retain(2)
        for _ in range(20):
            rig.credit(1, 1)
            await rig.run()
        assert rig.client.chunks[1] == user_chunks(chunks)
        assert rig.figures.returns_total
        assert rig.client.versions == {version}

    run(scenario, version=version)
