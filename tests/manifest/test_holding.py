"""Holds are put, found by what they overlap, and released."""

from __future__ import annotations

import pytest

from coldstream.manifest.entry import Hold, JournalKind
from coldstream.manifest.holding import held, plan_hold, plan_release
from coldstream.units import Offset
from tests.manifest.world import AT, World, hold


@pytest.mark.parametrize(
    ("first", "following", "is_held"),
    [(0, 10, False), (0, 11, True), (19, 30, True), (20, 30, False), (12, 13, True), (30, 31, False), (40, 50, True)],
)
def test_a_hold_protects_what_it_overlaps(first: int, following: int, *, is_held: bool) -> None:
    holds = [hold(10, 20), hold(31, None, "open")]
    assert (held(holds, Offset(first), Offset(following)) is not None) == is_held


def test_holds_are_counted_and_told_with_who_and_why() -> None:
    world = World((0, 10))
    world.apply(plan_hold(world.head, hold(0, None)))
    event = world.changes[-1].event
    assert (event.kind, event.by, event.detail) == (JournalKind.HOLD_PUT, "alice", "case-7: a lawsuit")
    assert (event.first_offset, event.next_offset) == (0, None)
    assert world.head.holds == 1
    world.apply(plan_release(world.head, hold(0, None), AT, "bob"))
    event = world.changes[-1].event
    assert (event.kind, event.by) == (JournalKind.HOLD_RELEASED, "bob")
    assert (world.head.holds, world.state.holds) == (0, {})
    world.check_replay()


@pytest.mark.parametrize("following", [0, 5])
def test_a_hold_of_nothing_is_no_hold(following: int) -> None:
    with pytest.raises(ValueError, match="first < next"):
        Hold("x", Offset(5), Offset(following), "", "", AT)
