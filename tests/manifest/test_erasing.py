"""An erasure takes fragment after fragment, and says how far it is in the same change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import HeldError, LostRaceError, StaleGenerationError
from coldstream.manifest.change import PutTombstone
from coldstream.manifest.entry import Erasure, ErasureState, FragmentEntry, JournalKind
from coldstream.manifest.erasing import (
    plan_erased_fragment,
    plan_erasure_begin,
    plan_erasure_done,
    plan_erasure_progress,
)
from coldstream.manifest.holding import plan_hold
from coldstream.units import Offset
from tests.manifest.world import AT, DUE, World, hold

ERASURE = Erasure(
    id="erasure-1",
    first_offset=Offset(5),
    next_offset=Offset(15),
    where="key = 'mallory'",
    reason="article 17",
    by="alice",
    at=AT,
    messages=0,
    digest="",
    state=ErasureState.RUNNING,
    reached=Offset(5),
)


def erased(before: FragmentEntry) -> FragmentEntry:
    """Return the entry of the erased object."""
    return replace(
        before,
        key=before.key + ".erased",
        generation=before.generation + 1,
        erased=True,
        data_bytes=60,
        object_bytes=99,
    )


def begun() -> World:
    world = World((0, 10), (10, 20))
    world.apply(plan_erasure_begin(world.head, ERASURE, []))
    return world


def further(world: World, number: int, after: Erasure) -> None:
    before = world.log[number]
    known, holds = world.state.erasures[after.id], list(world.state.holds.values())
    world.apply(plan_erased_fragment(world.head, before, erased(before), known, after, holds, at=AT, due_at=DUE))


def test_an_erasure_goes_from_fragment_to_fragment_to_its_end() -> None:
    world = begun()
    assert (world.head.erasures, world.state.erasures) == (1, {"erasure-1": ERASURE})
    first = replace(ERASURE, messages=3, reached=Offset(10), digest="a")
    old = world.log[0]
    further(world, 0, first)
    event = world.changes[-1].event
    assert (event.kind, event.by, event.detail) == (JournalKind.MESSAGES_ERASED, "alice", "erasure-1: 3 messages")
    assert [one.tombstone.key for one in world.changes[-1].of(PutTombstone)] == [old.key]
    assert [one.erased for one in world.log] == [True, False]
    assert (world.head.data_bytes, world.head.object_bytes, world.head.generation) == (160, 182 + 99, 1)
    second = replace(first, reached=Offset(20))
    world.apply(plan_erasure_progress(world.head, first, second, AT))
    done = replace(second, state=ErasureState.DONE)
    world.apply(plan_erasure_done(world.head, second, done, AT))
    assert world.state.erasures == {"erasure-1": done}
    with pytest.raises(ValueError, match="running"):
        plan_erasure_done(world.head, first, second, AT)
    world.check_replay()


def test_a_run_that_is_behind_another_loses() -> None:
    world = begun()
    first = replace(ERASURE, reached=Offset(10))
    world.apply(plan_erasure_progress(world.head, ERASURE, first, AT))
    with pytest.raises(LostRaceError):
        world.apply(plan_erasure_progress(world.head, ERASURE, replace(ERASURE, reached=Offset(8)), AT))
    with pytest.raises(LostRaceError):
        world.apply(plan_erasure_begin(world.head, ERASURE, []))


def test_what_was_erased_is_not_committed_again() -> None:
    world = begun()
    old = world.log[0]
    further(world, 0, replace(ERASURE, reached=Offset(10)))
    with pytest.raises(StaleGenerationError):
        world.commit(old)


def test_an_entry_that_was_relinked_meanwhile_keeps_its_links() -> None:
    world = begun()
    stale = replace(erased(world.log[1]), prior_offset=Offset(3))
    known = world.state.erasures["erasure-1"]
    world.apply(plan_erased_fragment(world.head, world.log[1], stale, known, known, [], at=AT, due_at=DUE))
    assert world.log[1].prior_offset == 10


def test_a_held_fragment_is_not_erased_even_beside_what_is_held() -> None:
    world = begun()
    world.apply(plan_hold(world.head, hold(0, 1)))
    with pytest.raises(HeldError):
        further(world, 0, ERASURE)
    with pytest.raises(LostRaceError):
        plan_erasure_begin(world.head, replace(ERASURE, id="2"), [])
    with pytest.raises(HeldError):
        plan_erasure_begin(world.head, replace(ERASURE, id="2", first_offset=Offset(0)), [hold(0, 1)])


@pytest.mark.parametrize(
    "wrong",
    [{"erased": False}, {"records": 9}, {"chunks": 2}, {"first_offset": 1}, {"greatest_timestamp": 5}, {"epoch": 2}],
)
def test_an_object_of_other_offsets_or_times_is_no_erased_one(wrong: dict[str, int]) -> None:
    world = begun()
    before = world.log[0]
    after = replace(erased(before), **wrong)
    with pytest.raises(ValueError, match="without some of its messages"):
        plan_erased_fragment(world.head, before, after, ERASURE, ERASURE, [], at=AT, due_at=DUE)


def test_an_erased_object_at_a_collected_key_is_put_anew() -> None:
    world = begun()
    head = replace(world.head, generation=7)
    before = world.log[0]
    with pytest.raises(StaleGenerationError):
        plan_erased_fragment(head, before, erased(before), ERASURE, ERASURE, [], at=AT, due_at=DUE)
    head = replace(world.head, compacting=Offset(20))
    with pytest.raises(LostRaceError, match="finished"):
        plan_erased_fragment(head, before, erased(before), ERASURE, ERASURE, [], at=AT, due_at=DUE)
