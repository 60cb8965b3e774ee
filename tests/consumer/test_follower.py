"""Followers in one situation each; test_random_schedules.py has all situations at once."""

from __future__ import annotations

import asyncio
import logging

import pytest

from coldstream.consumer.catchup import GAP_WAIT_S
from coldstream.errors import (
    AccessDeniedError,
    GapError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp
from coldstream.resolve.attach import REMOVED
from coldstream.units import Offset, TimestampMs
from tests.support.following import Following, chunks, in_a_world
from tests.support.world import CREDITS, FakeBroker, World


@in_a_world
async def test_jumps_that_arrived_together_cost_one_question(world: World) -> None:
    chunks(world, 2)
    reading = Following(world)
    await reading.settled(6)
    asked = world.probes
    for _ in range(CREDITS):
        world.track()
        world.publish(1)
    await reading.settled(world.next_offset)
    assert await reading.stop() is None
    assert reading.offsets == world.messages()
    assert world.probes - asked <= 2


@in_a_world
async def test_what_one_node_has_left_out_is_read_though_the_next_node_that_is_asked_still_has_it(world: World) -> None:
    chunks(world, 2)
    reading = Following(world)
    await reading.settled(6)
    world.archive(2)
    world.publish(3)
    world.archive(3)
    delivered = list(world.subscriptions)
    for subscription in delivered:
        subscription.leave_out()
    world.publish(3)

    async def another_node(stream: str) -> Offset:
        for subscription in delivered:
            subscription.end(UnavailableError("the connection is lost"))
        return Offset(0)

    reading.broker.first_offset = another_node  # type: ignore[method-assign]
    await reading.settled(world.next_offset)
    assert await reading.stop() is None
    assert reading.offsets == world.messages()


@in_a_world
async def test_a_log_without_the_witness_is_no_other_one_because_the_next_node_that_is_asked_still_has_it(
    world: World,
) -> None:
    chunks(world, 2)
    reading = Following(world)
    await reading.settled(6)
    world.archive(2)
    world.disconnect()
    world.publish(3)
    world.retain(1)
    asked = reading.broker.first_offset

    async def another_node(stream: str) -> Offset:
        for subscription in list(world.subscriptions):
            subscription.end(UnavailableError("the connection is lost"))
        reading.broker.first_offset = asked  # type: ignore[method-assign]
        return Offset(0)

    reading.broker.first_offset = another_node  # type: ignore[method-assign]
    await reading.settled(world.next_offset)
    assert await reading.stop() is None
    assert reading.offsets == world.messages()


@in_a_world
async def test_the_takeover_costs_no_question_if_nothing_is_left_out(world: World) -> None:
    chunks(world, 20)
    world.archive(12)
    reading = Following(world)
    await reading.settled(60)
    assert await reading.stop() is None
    assert world.probes == 1  # for the broker's first chunk, to compare incarnations


@in_a_world
async def test_what_only_the_broker_has_comes_before_what_is_archived(world: World) -> None:
    chunks(world, 20)
    world.archive(5, hole=8)
    reading = Following(world)
    await reading.settled(60)
    assert await reading.stop() is None
    assert reading.offsets == list(range(60))


@in_a_world
async def test_a_gap_that_the_broker_can_fill_is_no_gap(world: World) -> None:
    chunks(world, 20)
    world.archive(5)
    world.archive(5, hole=3, reason="lost")
    reading = Following(world)
    await reading.settled(60)
    assert await reading.stop() is None
    assert reading.offsets == list(range(60))
    assert reading.items.gaps == []


async def run_into_a_gap(world: World, reason: str | None) -> float:
    """Read up to a gap that the broker cannot fill, and return how long that took."""
    chunks(world, 20)
    world.archive(5)
    world.archive(12, hole=3, reason=reason)
    world.retain(2)
    began = asyncio.get_running_loop().time()
    reading = Following(world)
    with pytest.raises(GapError) as gap:
        await reading.task
    assert (gap.value.first_offset, gap.value.next_offset, gap.value.reason) == (15, 24, reason)
    assert reading.offsets == list(range(15))
    return asyncio.get_running_loop().time() - began


@in_a_world
async def test_a_gap_with_a_reason_is_raised_at_once(world: World) -> None:
    assert await run_into_a_gap(world, "the disk was full") < 20


@in_a_world
async def test_a_gap_that_nobody_explains_may_yet_be_filled(world: World) -> None:
    assert GAP_WAIT_S <= await run_into_a_gap(world, None) < GAP_WAIT_S + 30


def lose_what_follows_the_tail(world: World) -> None:
    """Have retention delete what is not archived, before and while a tracking chunk begins what is left."""
    world.is_unaware = False
    chunks(world, 8)
    world.archive(4)
    world.track()
    chunks(world, 2)
    world.retain(3)
    world.lost[12] = 24, "retention"


@in_a_world
async def test_what_is_lost_past_the_tail_is_raised_at_once(world: World) -> None:
    lose_what_follows_the_tail(world)
    began = asyncio.get_running_loop().time()
    reading = Following(world)
    with pytest.raises(GapError) as gap:
        await reading.task
    assert (gap.value.first_offset, gap.value.next_offset, gap.value.reason) == (12, 24, "retention")
    assert asyncio.get_running_loop().time() - began < 20
    assert reading.offsets == list(range(12))


@in_a_world
async def test_what_is_lost_past_the_tail_is_skipped_up_to_where_the_broker_begins(world: World) -> None:
    lose_what_follows_the_tail(world)
    reading = Following(world, on_gap="skip")
    await reading.settled(world.next_offset)
    chunks(world, 2)
    await reading.settled(world.next_offset)
    assert await reading.stop() is None
    assert reading.offsets == [*range(12), *range(25, 37)]
    assert [(gap.first_offset, gap.next_offset) for gap in reading.items.gaps] == [(12, 24)]


@in_a_world
async def test_a_broker_that_begins_with_a_stored_offset_is_read_on_without_the_archive(world: World) -> None:
    world.is_unaware = False
    chunks(world, 4)
    world.archive(4)
    world.track()
    chunks(world, 1)
    world.retain(2)
    began = asyncio.get_running_loop().time()
    reading = Following(world)
    await reading.settled(world.next_offset)
    assert await reading.stop() is None
    assert reading.offsets == world.messages()
    assert asyncio.get_running_loop().time() - began < 60


@in_a_world
async def test_a_stream_that_is_deleted_keeps_its_gaps(world: World) -> None:
    chunks(world, 20)
    world.archive(5)
    world.archive(15, hole=3, reason="lost")
    world.delete()
    reading = Following(world, on_gap="skip")
    with pytest.raises(StreamNotFoundError):
        await reading.task
    assert reading.offsets == [*range(15), *range(24, 60)]
    assert [(gap.first_offset, gap.next_offset, gap.reason) for gap in reading.items.gaps] == [(15, 24, "lost")]


@in_a_world
async def test_a_stream_that_is_nowhere_is_not_found(world: World) -> None:
    world.delete()
    for start in (FIRST, LAST, NEXT, AtOffset(Offset(3)), AtTimestamp(TimestampMs(5))):
        with pytest.raises(StreamNotFoundError):
            await Following(world, start).task


@in_a_world
async def test_offsets_that_are_nowhere_are_waited_for_and_then_named(world: World) -> None:
    loop = asyncio.get_running_loop()
    chunks(world, 10)
    world.archive(10)
    reading = Following(world, archive_wait_s=60.0)
    await reading.settled(30)
    world.disconnect()
    chunks(world, 10)
    world.retain(2)
    began = loop.time()
    with pytest.raises(UnavailableError, match="offset 30 and what follows is not at the broker any more"):
        await reading.task
    assert 60 <= loop.time() - began < 90
    assert reading.offsets == list(range(30))


@in_a_world
async def test_offsets_that_are_archived_late_are_waited_for(world: World) -> None:
    chunks(world, 10)
    world.archive(10)
    reading = Following(world)
    await reading.settled(30)
    world.disconnect()
    chunks(world, 10)
    world.retain(2)
    await asyncio.sleep(250)
    world.archive(9)
    await reading.settled(60)
    assert await reading.stop() is None
    assert reading.offsets == list(range(60))


@in_a_world
async def test_the_broker_may_be_away_for_ever_and_that_is_logged_once(world: World) -> None:
    chunks(world, 5)
    reading = Following(world)
    await reading.settled(15)
    said: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = said.append
    logger = logging.getLogger("coldstream.consumer")
    logger.addHandler(handler)
    try:
        world.is_up = False
        world.disconnect()
        await asyncio.sleep(100_000)
        assert len(said) == 1
        assert 5_000 < reading.broker.renewed < 20_000
        world.is_up = True
        chunks(world, 1)
        await reading.settled(18)
    finally:
        logger.removeHandler(handler)
    assert await reading.stop() is None
    assert reading.offsets == list(range(18))


@in_a_world
async def test_a_broker_that_denies_access_is_not_asked_again(world: World) -> None:
    async def deny(broker: FakeBroker) -> None:
        raise AccessDeniedError("wrong password")

    chunks(world, 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeBroker, "_answer", deny)
        with pytest.raises(AccessDeniedError):
            await Following(world).task


@in_a_world
async def test_an_empty_stream_is_read_from_its_first_message(world: World) -> None:
    for start in (FIRST, LAST, NEXT, AtOffset(Offset(0))):
        world.redeclare()
        world.track()
        reading = Following(world, start)
        await asyncio.sleep(10)
        chunks(world, 2)
        await reading.settled(world.next_offset)
        assert await reading.stop() is None
        assert reading.offsets == list(range(1, 7))


@in_a_world
async def test_a_start_that_the_broker_has_passed_waits_for_its_archive_though_nothing_is_archived_yet(
    world: World,
) -> None:
    world.is_unaware = False
    chunks(world, 20)
    world.retain(5)
    reading = Following(world, AtOffset(Offset(7)))
    await asyncio.sleep(20)
    assert reading.offsets == []
    world.archive(18)
    await reading.settled(60)
    assert await reading.stop() is None
    assert reading.offsets == list(range(7, 60))


@in_a_world
async def test_a_start_that_is_nowhere_ends_with_the_offset_that_is_missing(world: World) -> None:
    world.is_unaware = False
    chunks(world, 20)
    world.retain(5)
    reading = Following(world, AtOffset(Offset(7)))
    with pytest.raises(UnavailableError, match="offset 7 and what follows is not at the broker any more"):
        await reading.task
    assert reading.offsets == []


@in_a_world
async def test_a_start_that_the_broker_has_needs_no_archive(world: World) -> None:
    chunks(world, 20)
    world.retain(5)
    for start, first in ((50, 50), (45, 45), (70, None)):
        reading = Following(world, AtOffset(Offset(start)))
        await reading.settled(60) if first else await asyncio.sleep(30)
        assert await reading.stop() is None
        assert reading.offsets == ([] if first is None else list(range(first, 60)))


@in_a_world
async def test_a_start_that_the_broker_has_passed_is_found_once_the_broker_is_there(world: World) -> None:
    world.is_unaware = False
    chunks(world, 20)
    world.retain(5)
    world.is_up = False
    reading = Following(world, AtOffset(Offset(7)))
    await asyncio.sleep(20)
    world.is_up = True
    await asyncio.sleep(20)
    assert reading.offsets == []
    world.archive(18)
    await reading.settled(60)
    assert await reading.stop() is None
    assert reading.offsets == list(range(7, 60))


@in_a_world
async def test_what_was_archived_while_the_broker_was_away_is_asked_for_again(world: World) -> None:
    world.is_up = False
    reading = Following(world)
    await asyncio.sleep(5)
    chunks(world, 10)
    world.archive(10)
    world.retain(2)
    world.is_up = True
    await reading.settled(30)
    assert await reading.stop() is None
    assert reading.offsets == list(range(30))


@in_a_world
async def test_a_stored_offset_that_both_have_passed_is_a_gap(world: World) -> None:
    chunks(world, 20)
    world.archive(5, hole=8)
    world.retain(10)
    world.stored["billing"] = 11
    with pytest.raises(GapError) as gap:
        await Following(world, LAST, reference="billing").task
    assert (gap.value.first_offset, gap.value.next_offset) == (12, 24)
    reading = Following(world, LAST, reference="billing", on_gap="skip")
    await reading.settled(60)
    assert await reading.stop() is None
    assert reading.offsets == list(range(24, 60))


def remove_what_the_broker_has_not(world: World, *, removed: int) -> None:
    """Archive 20 chunks of 3 messages, of which the broker keeps the last two, and remove the first ones."""
    world.is_unaware = False
    chunks(world, 20)
    world.archive(20)
    world.retain(2)
    world.remove(removed)


@in_a_world
async def test_a_start_below_what_the_archive_had_removed_begins_with_what_is_left(world: World) -> None:
    remove_what_the_broker_has_not(world, removed=10)
    for start in (FIRST, AtOffset(Offset(7))):
        reading = Following(world, start)
        await reading.settled(60)
        assert await reading.stop() is None
        assert reading.offsets == list(range(30, 60))
        assert reading.items.gaps == []


@in_a_world
async def test_a_stored_offset_below_what_the_archive_had_removed_is_a_gap_at_once_and_says_why(world: World) -> None:
    remove_what_the_broker_has_not(world, removed=10)
    world.stored["me"] = 6
    began = asyncio.get_running_loop().time()
    reading = Following(world, reference="me")
    with pytest.raises(GapError) as gap:
        await reading.task
    assert (gap.value.first_offset, gap.value.next_offset, gap.value.reason) == (7, 30, REMOVED)
    assert asyncio.get_running_loop().time() - began < GAP_WAIT_S


@in_a_world
async def test_a_stored_offset_below_what_the_archive_had_removed_is_skipped_if_gaps_are(world: World) -> None:
    remove_what_the_broker_has_not(world, removed=10)
    world.stored["me"] = 6
    reading = Following(world, reference="me", on_gap="skip")
    await reading.settled(60)
    assert await reading.stop() is None
    assert reading.offsets == list(range(30, 60))
    assert [(gap.first_offset, gap.next_offset, gap.reason) for gap in reading.items.gaps] == [(7, 30, REMOVED)]


@in_a_world
async def test_a_log_that_lost_all_of_its_entries_is_passed_like_any_other(world: World) -> None:
    remove_what_the_broker_has_not(world, removed=20)
    world.stored["me"] = 6
    reading = Following(world, reference="me", on_gap="skip")
    chunks(world, 2)
    await reading.settled(world.next_offset)
    assert await reading.stop() is None
    assert reading.offsets[-1] == world.next_offset - 1
    assert [(gap.first_offset, gap.reason) for gap in reading.items.gaps] == [(7, REMOVED)]


@in_a_world
async def test_what_the_archive_had_removed_and_the_broker_still_has_is_no_gap(world: World) -> None:
    chunks(world, 20)
    world.archive(10)
    world.remove(8)
    world.stored["me"] = 6
    reading = Following(world, reference="me")
    await reading.settled(60)
    assert await reading.stop() is None
    assert reading.offsets == list(range(7, 60))
