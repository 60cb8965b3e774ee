"""The journal replayed gives the state, at its end and at any time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import LostRaceError, NotRecordedError
from coldstream.manifest.change import DeleteLoss, DeleteQuarantine, PutHold, PutLoss, PutQuarantine
from coldstream.manifest.entry import Loss, Quarantine
from coldstream.manifest.state import ManifestState, replay
from coldstream.units import Offset, TimestampMs
from tests.manifest.world import AT, World, hold
from tests.support.changes import change_to

BAD = Quarantine(Offset(0), Offset(9), "bad", AT, "quarantine/x", '"etag"')


def test_the_state_at_a_time_is_that_after_the_last_change_until_then() -> None:
    world = World((0, 10), (10, 20), (20, 30))
    timed = [(replace(one.event, at=TimestampMs(100 * one.head.revision)), one) for one in world.changes]
    for until, entries in ((99, 0), (100, 1), (199, 1), (200, 2), (10_000, 3)):
        assert len(replay(timed, until_ms=TimestampMs(until)).entries) == entries
    assert replay([]) == ManifestState()


@pytest.mark.parametrize(("left_out", "revision"), [(0, 1), (1, 2)])
def test_a_journal_of_an_earlier_release_does_not_tell_the_state(left_out: int, revision: int) -> None:
    recorded = [(one.event, one) for one in World((0, 10), (10, 20), (20, 30)).changes]
    del recorded[left_out]
    with pytest.raises(NotRecordedError) as caught:
        replay(recorded)
    assert (caught.value.revision, caught.value.since) == (revision, revision + 1)


def test_a_change_is_made_on_the_revision_before_it() -> None:
    world = World((0, 10))
    for revision in (world.head.revision, world.head.revision + 2):
        with pytest.raises(LostRaceError, match="the head is at 1"):
            world.state.after(change_to(replace(world.head, revision=revision), ()))


def test_a_reader_keeps_the_state_that_it_holds() -> None:
    world = World((0, 10))
    before = world.state
    world.remove(1)
    assert len(before.entries) == 1


def test_records_of_what_is_missing_are_replaced_and_deleted_only_as_they_were_read() -> None:
    world = World((0, 10))
    loss = Loss(Offset(0), Offset(9), "x", AT)

    def apply(*writes: object) -> None:
        head = replace(world.head, revision=world.head.revision + 1)
        world.state = world.state.after(change_to(head, writes))  # type: ignore[arg-type]

    apply(PutLoss(loss), PutQuarantine(BAD), PutHold(hold(0, 1)))
    again = replace(BAD, key="y", copies=2)
    for refused in (
        DeleteQuarantine(again),
        DeleteQuarantine(replace(BAD, key="z")),
        DeleteLoss(replace(loss, next_offset=Offset(8))),
        PutHold(hold(5, 9)),
    ):
        with pytest.raises(LostRaceError):
            apply(refused)
    apply(PutQuarantine(again))
    apply(DeleteQuarantine(again), DeleteLoss(loss))
    assert world.state.missing == {}
