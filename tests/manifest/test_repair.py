"""What is damaged is put right in one change, or given up with a reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import HeldError, LostRaceError, StaleGenerationError
from coldstream.manifest.change import EntryVersion, Relink
from coldstream.manifest.commit import plan_missing
from coldstream.manifest.entry import Gap, Head, JournalKind, Loss
from coldstream.manifest.holding import plan_hold
from coldstream.manifest.repair import plan_items_repair, plan_range_removal
from coldstream.units import Offset, TimestampMs
from tests.manifest.world import AT, DUE, STREAM, World, entry, hold


def give_up(world: World, number: int) -> None:
    log = world.log
    change = plan_range_removal(
        world.head,
        log[number - 1] if number else None,
        log[number],
        log[number + 1] if number + 1 < len(log) else None,
        missing=list(world.state.missing.values()),
        holds=list(world.state.holds.values()),
        at=AT,
        due_at=DUE,
        reason="the object is gone",
        by="alice",
    )
    world.apply(change)


def test_totals_and_links_are_put_right() -> None:
    world = World((0, 10), (10, 20))
    right, head = world.log[1], world.head
    wrong = replace(right, prior_timestamp=TimestampMs(99))
    world.state.entries[right.next_offset] = wrong
    world.state = replace(world.state, head=replace(head, chunks=77))
    link = Relink(EntryVersion.of(wrong), right.prior_offset, right.prior_timestamp, right.running_timestamp)
    world.apply(plan_items_repair(world.head, head, [link], AT, "chunks 77, not 2"))
    assert world.log[1] == right
    assert world.head == replace(head, revision=3)


def test_a_range_that_is_given_up_is_a_gap_with_the_reason() -> None:
    world = World((0, 10), (10, 20), (20, 30))
    give_up(world, 1)
    assert list(world.state.gaps.values()) == [Gap(Offset(10), Offset(20), "the object is gone")]
    assert list(world.state.missing.values()) == [Loss(Offset(10), Offset(20), "the object is gone", AT)]
    event = world.changes[-1].event
    assert (event.kind, event.detail, event.by) == (JournalKind.RANGE_REMOVED, "the object is gone", "alice")
    with pytest.raises(StaleGenerationError):
        world.commit(entry(10, 20))
    world.commit(entry(10, 20, generation=1))
    assert world.spans == [(0, 10), (10, 20), (20, 30)]
    world.check_replay()


@pytest.mark.parametrize(
    ("spans", "number", "gaps"),
    [
        ([(0, 10), (15, 20), (20, 30)], 1, [(10, 20)]),
        ([(0, 10), (10, 20), (25, 30)], 1, [(10, 25)]),
        ([(0, 10), (15, 20), (25, 30)], 1, [(10, 25)]),
        ([(0, 10), (15, 20), (25, 30)], 0, [(20, 25)]),
        ([(0, 10), (10, 20)], 0, []),
    ],
)
def test_gaps_beside_a_range_that_is_given_up_join(
    spans: list[tuple[int, int]], number: int, gaps: list[tuple[int, int]]
) -> None:
    world = World(*spans)
    give_up(world, number)
    assert [(gap.first_offset, gap.next_offset) for gap in world.state.gaps.values()] == gaps
    assert world.head.floor == 0


def test_neither_the_last_entry_nor_a_held_one_is_given_up() -> None:
    world = World((0, 10), (10, 20), (20, 30))
    with pytest.raises(ValueError, match="last entry"):
        give_up(world, 2)
    world.apply(plan_hold(world.head, hold(10, 11)))
    with pytest.raises(HeldError):
        give_up(world, 1)
    assert Head(STREAM).generation == 0


def test_a_loss_that_is_recorded_already_gives_the_reason_whichever_comes_first_by_name() -> None:
    for reason in ("a fire", "the disk was full"):
        world = World((0, 10), (10, 20), (20, 30))
        world.apply(plan_missing(world.head, Loss(Offset(10), Offset(20), reason, AT), (), ()))
        give_up(world, 1)
        assert [gap.reason for gap in world.state.gaps.values()] == [reason]


def test_a_range_is_not_given_up_unless_all_that_is_missing_shows() -> None:
    world = World((0, 10), (10, 20), (20, 30))
    world.apply(plan_missing(world.head, Loss(Offset(5), Offset(20), "the disk was full", AT), (), ()))
    known = world.state.missing
    world.state = replace(world.state, missing={})
    with pytest.raises(LostRaceError, match="changed while they were read"):
        give_up(world, 1)
    world.state = replace(world.state, missing=known)
    give_up(world, 1)
    assert [gap.reason for gap in world.state.gaps.values()] == ["the disk was full"]
