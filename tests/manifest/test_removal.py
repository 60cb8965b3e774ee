"""A prefix of a log goes for good, and the rest of the log is whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import BelowFloorError, HeldError, LostRaceError, StaleGenerationError
from coldstream.manifest.change import MAX_ITEMS, PutTombstone
from coldstream.manifest.entry import FragmentEntry, Gap, JournalKind
from coldstream.manifest.holding import plan_hold
from coldstream.manifest.removal import MAX_PREFIX, plan_prefix_removal
from coldstream.manifest.sparse import SparseIndex, SparsePoint
from coldstream.units import ChunkId, Offset, TimestampMs
from tests.manifest.world import AT, DUE, World, entry, hold


def test_what_is_removed_is_buried_and_the_rest_is_relinked() -> None:
    world = World((0, 10), (10, 20), (20, 30))
    world.remove(2, why="older than 30 days", by="alice")
    assert world.spans == [(20, 30)]
    change = world.changes[-1]
    event = change.event
    assert (event.kind, event.first_offset, event.next_offset) == (JournalKind.FRAGMENTS_REMOVED, 0, 20)
    assert (event.detail, event.by) == ("older than 30 days", "alice")
    assert [(one.tombstone.first_offset, one.tombstone.due_at) for one in change.of(PutTombstone)] == [
        (0, DUE),
        (10, DUE),
    ]
    head = world.head
    assert (head.floor, head.floor_timestamp, head.generation) == (20, 1, 1)
    assert (head.first_offset, head.next_offset, head.fragments, head.records) == (20, 30, 1, 10)
    assert (world.log[0].prior_offset, world.log[0].prior_timestamp) == (None, 1)


def test_gaps_up_to_the_entry_that_follows_go_too() -> None:
    world = World((0, 10), (20, 30), (40, 50), (60, 70))
    world.remove(2)
    assert list(world.state.gaps.values()) == [Gap(Offset(50), Offset(60))]
    assert (world.head.floor, world.head.first_offset, world.head.gaps) == (30, 40, 1)


def test_an_emptied_log_remembers_its_tail_and_goes_on_without_a_gap() -> None:
    world = World((0, 10), (10, 20))
    world.remove(2)
    head = world.head
    assert (head.first_offset, head.first_timestamp, head.next_offset, head.floor) == (None, None, 20, 20)
    assert (head.fragments, head.records, head.object_bytes) == (0, 0, 0)
    world.commit(entry(25, 30, time=0, generation=1))
    (new,) = world.log
    assert (new.prior_offset, new.prior_timestamp, new.running_timestamp) == (None, 1, 1)
    assert world.state.gaps == {}
    assert world.head.first_offset == 25
    world.commit(entry(20, 22, time=0, generation=1))
    assert world.spans == [(20, 22), (25, 30)]
    assert list(world.state.gaps.values()) == [Gap(Offset(22), Offset(25))]


def test_a_late_entry_above_the_floor_counts_what_was_removed_before_it() -> None:
    world = World((0, 10))
    world.commit(entry(20, 30, time=500))
    world.commit(entry(40, 50, time=100))
    world.remove(2)
    world.commit(entry(30, 40, time=50, generation=1))
    assert [(one.prior_offset, one.running_timestamp) for one in world.log] == [(None, 500), (40, 500)]


def test_the_floor_remembers_the_greatest_of_all_times_that_went() -> None:
    world = World((0, 10))
    world.commit(entry(10, 20, time=500))
    world.commit(entry(20, 30, time=100))
    world.remove(1)
    assert world.head.floor_timestamp == 0
    world.remove(1)
    world.remove(1)
    assert (world.head.floor_timestamp, world.head.greatest_timestamp) == (500, 500)


@pytest.mark.parametrize(("first", "following"), [(0, 10), (5, 10), (15, 20), (19, 21), (0, 40)])
def test_nothing_below_the_floor_is_committed_again(first: int, following: int) -> None:
    world = World((0, 10), (10, 20), (20, 30))
    world.remove(2)
    with pytest.raises(BelowFloorError) as caught:
        world.commit(entry(first, following, generation=9))
    assert (caught.value.floor, caught.value.retryable) == (20, False)


def test_a_key_of_a_generation_before_the_removal_is_put_anew() -> None:
    world = World((0, 10), (10, 20))
    world.remove(1)
    with pytest.raises(StaleGenerationError) as caught:
        world.commit(entry(20, 30))
    assert caught.value.generation == 1
    world.commit(entry(20, 30, generation=1))
    world.remove(2)
    assert world.head.generation == 2


def test_a_hold_keeps_what_it_overlaps_and_what_is_before_it_may_go() -> None:
    world = World((0, 10), (10, 20), (20, 30), (40, 50))
    world.apply(plan_hold(world.head, hold(29, 35)))
    for count in (3, 4):
        with pytest.raises(HeldError, match="a lawsuit"):
            world.remove(count)
    world.remove(2)
    assert world.spans == [(20, 30), (40, 50)]


def test_a_hold_that_does_not_show_keeps_everything() -> None:
    world = World((0, 10), (10, 20))
    log = world.log
    world.apply(plan_hold(world.head, hold(0, None)))
    with pytest.raises(LostRaceError, match="holds"):
        plan_prefix_removal(world.head, log[:1], log[1], [], [], at=AT, due_at=DUE, why="", by=None)


def test_nothing_is_removed_while_a_compaction_is_under_way() -> None:
    world = World(*((number, number + 1) for number in range(200)))
    world.compact(world.log[:150], generation=1, changes=1)
    assert world.head.compacting == 150
    with pytest.raises(LostRaceError, match="to be finished first"):
        world.remove(1)
    world.finish()
    world.remove(1)
    assert world.head.floor == 150


@pytest.mark.parametrize("count", [1, MAX_PREFIX])
def test_thousands_go_in_batches_each_of_which_leaves_a_whole_log(count: int) -> None:
    world = World(*((number * 2, number * 2 + 1) for number in range(100)))
    while world.log:
        world.remove(min(count, len(world.log)))
    assert world.changes[-1].items <= MAX_ITEMS
    assert (world.head.floor, world.head.gaps) == (199, 0)
    world.check_replay()


def test_a_view_that_shows_half_of_a_change_removes_nothing() -> None:
    world = World((0, 10), (10, 20), (30, 40))
    log, gaps = world.log, list(world.state.gaps.values())

    def plan(removed: list[FragmentEntry], following: FragmentEntry | None, gaps: list[Gap]) -> None:
        plan_prefix_removal(world.head, removed, following, gaps, [], at=AT, due_at=DUE, why="", by=None)

    plan(log[:2], log[2], gaps)
    for removed, following, found in (
        (log[1:2], log[2], gaps),
        (log[:1], log[2], gaps),
        ([log[0], log[2]], None, gaps),
        (log[:2], None, gaps),
        (log[:2], log[2], []),
        (log[:2], log[2], [replace(gaps[0], next_offset=Offset(25))]),
        ([replace(log[0], prior_offset=Offset(0))], log[1], gaps),
        ([replace(log[1], prior_offset=None)], log[2], gaps),
        (log[:1], log[2], [Gap(Offset(10), Offset(30))]),
    ):
        with pytest.raises(LostRaceError):
            plan(removed, following, found)


def test_more_than_a_transaction_takes_is_a_mistake() -> None:
    points = tuple(SparsePoint(ChunkId(0), n, 8 + n, TimestampMs(0), TimestampMs(0)) for n in range(20_000))
    large = World((0, 10), (10, 20), (20, 30), (30, 40))
    log = [replace(one, sparse=SparseIndex(points)) for one in large.log]
    many = World(*((number, number + 1) for number in range(MAX_PREFIX + 2)))
    for world, removed in ((large, log), (many, many.log[:-1]), (many, [])):
        with pytest.raises(ValueError, match="cannot remove"):
            plan_prefix_removal(world.head, removed, None, [], [], at=AT, due_at=DUE, why="", by=None)
