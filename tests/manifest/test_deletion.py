"""A stream is deleted, comes back while nothing of it has gone, and is purged."""

from __future__ import annotations

import pytest

from coldstream.errors import HeldError, LostRaceError, NotDeletedError, PurgedError, StreamDeletedError
from coldstream.manifest.deletion import plan_delete, plan_purged, plan_undelete
from coldstream.manifest.entry import JournalKind
from coldstream.manifest.holding import plan_hold, plan_release
from tests.manifest.world import AT, DUE, World, entry, hold


def deleted(*spans: tuple[int, int]) -> World:
    world = World(*spans)
    world.apply(plan_delete(world.head, AT, DUE, "alice"))
    return world


def test_a_deleted_stream_keeps_its_log_and_takes_nothing_more() -> None:
    world = deleted((0, 10), (10, 20))
    assert (world.head.is_deleted, world.head.deleted_at, world.head.purge_at) == (True, AT, DUE)
    assert (world.changes[-1].event.kind, world.changes[-1].event.by) == (JournalKind.STREAM_DELETED, "alice")
    assert world.spans == [(0, 10), (10, 20)]
    with pytest.raises(StreamDeletedError):
        world.commit(entry(20, 30, generation=5))
    with pytest.raises(StreamDeletedError):
        world.compact(world.log, generation=5)
    with pytest.raises(StreamDeletedError):
        plan_delete(world.head, AT, DUE, "bob")


def test_what_is_undeleted_goes_on_at_a_newer_generation() -> None:
    world = deleted((0, 10))
    world.apply(plan_undelete(world.head, AT, "alice"))
    assert (world.head.is_deleted, world.head.deleted_at, world.head.purge_at) == (False, None, None)
    assert world.head.generation == 2
    world.commit(entry(10, 20, generation=2))
    with pytest.raises(NotDeletedError):
        plan_undelete(world.head, AT, "alice")


def test_the_purge_begins_with_the_first_removal_and_is_not_undone() -> None:
    world = deleted((0, 10), (10, 20))
    world.remove(1)
    assert (world.head.purge_began_at, world.head.purged_at) == (AT, None)
    with pytest.raises(PurgedError):
        plan_undelete(world.head, AT, "alice")
    with pytest.raises(PurgedError):
        plan_hold(world.head, hold(0, None))
    with pytest.raises(LostRaceError):
        plan_purged(world.head, AT)
    world.remove(1)
    world.apply(plan_purged(world.head, AT))
    assert (world.head.purged_at, world.head.is_deleted) == (AT, True)
    assert world.changes[-1].event.kind is JournalKind.STREAM_PURGED
    with pytest.raises(PurgedError):
        plan_purged(world.head, AT)
    with pytest.raises(StreamDeletedError):
        world.commit(entry(20, 30, generation=99))
    world.check_replay()


def test_a_removal_by_retention_is_no_purge() -> None:
    world = World((0, 10), (10, 20))
    world.remove(1)
    world.apply(plan_delete(world.head, AT, DUE, None))
    world.apply(plan_undelete(world.head, AT, None))
    assert world.head.purge_began_at is None


def test_a_stream_without_entries_is_purged_at_once() -> None:
    world = deleted((0, 10))
    world.remove(1)
    world.apply(plan_purged(world.head, AT))
    with pytest.raises(NotDeletedError):
        plan_purged(World((0, 10)).head, AT)


def test_a_held_stream_is_neither_deleted_nor_purged() -> None:
    world = World((0, 10), (10, 20))
    world.apply(plan_hold(world.head, hold(15, 16)))
    with pytest.raises(HeldError, match="a lawsuit"):
        plan_delete(world.head, AT, DUE, "alice", holds=list(world.state.holds.values()))
    with pytest.raises(HeldError, match="1 holds"):
        plan_delete(world.head, AT, DUE, "alice")
    world.apply(plan_release(world.head, hold(15, 16), AT, "alice"))
    world.apply(plan_delete(world.head, AT, DUE, "alice"))
    world.apply(plan_hold(world.head, hold(0, None)))
    with pytest.raises(HeldError):
        world.remove(1)
