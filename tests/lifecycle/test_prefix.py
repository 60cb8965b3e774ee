"""The removal of a log's beginning."""

from __future__ import annotations

from itertools import pairwise

import pytest

from coldstream.archive.commit import commit_fragment
from coldstream.errors import BelowFloorError, LostRaceError, OutcomeUnknownError, UnavailableError
from coldstream.lifecycle.holds import put_hold
from coldstream.lifecycle.prefix import foretell_removal, remove_prefix
from coldstream.lifecycle.truncation import up_to_offset, up_to_time
from coldstream.manifest.change import Change, DeleteEntry
from coldstream.manifest.compaction import plan_replacement
from coldstream.manifest.groups import Group
from coldstream.manifest.removal import MAX_PREFIX
from coldstream.store.memory.table import MemoryTable
from coldstream.units import MAX_TIMESTAMP_MS, Offset, TimestampMs
from tests.support.archive import NOW, steady
from tests.support.compaction import Compaction
from tests.support.lifecycle import GRACE_MS, INCARNATION, Scene


def assert_whole(scene: Scene, first_fragment: int) -> None:
    """The log begins at a fragment, at the floor, and is right from there on."""
    first_offset = scene.offset(first_fragment)
    head = scene.head
    assert head is not None
    assert head.floor == first_offset
    committed = [chunk for chunk in scene.archive.chunks if chunk.header.chunk_id >= first_offset]
    if committed:
        assert scene.log[0].prior_offset is None
        assert_right_from(scene)
    else:
        assert (head.first_offset, head.next_offset, scene.log) == (None, first_offset, ())
        assert (head.fragments, head.messages, head.object_bytes, head.gaps) == (0, 0, 0, 0)


def assert_right_from(scene: Scene) -> None:
    log, head = scene.log, scene.head
    assert head is not None
    for before, entry in pairwise(log):
        assert entry.prior_offset == before.next_offset
        assert entry.prior_timestamp == before.running_timestamp
    assert (head.first_offset, head.next_offset) == (log[0].first_offset, log[-1].next_offset)
    assert head.fragments == len(log)
    assert head.messages == sum(entry.messages for entry in log)
    assert head.object_bytes == sum(entry.object_bytes for entry in log)
    assert all(entry.key in scene.archive.objects.objects for entry in log)


def tombstoned(scene: Scene) -> dict[str, TimestampMs]:
    found = scene.archive.table.tombstones(INCARNATION, TimestampMs(MAX_TIMESTAMP_MS), 10_000)
    return {one.key: one.due_at for one in found}


def test_the_first_fragments_go_and_their_objects_wait_for_the_sweep() -> None:
    scene = Scene()
    before = scene.log
    removal = remove_prefix(scene.stores, INCARNATION, up_to_offset(Offset(5)), why="because", by="me")
    assert (removal.fragments, removal.messages, removal.first_offset) == (2, 4, 4)
    assert removal.object_bytes == sum(entry.object_bytes for entry in before[:2])
    assert_whole(scene, 2)
    assert tombstoned(scene) == {entry.key: NOW + GRACE_MS for entry in before[:2]}
    assert len(scene.live) == 5
    event = list(scene.archive.table.journal(INCARNATION))[-1]
    assert (event.detail, event.by, event.first_offset, event.next_offset) == ("because", "me", 0, 4)


def test_what_was_foretold_is_what_is_removed() -> None:
    scene = Scene()
    for choice in (up_to_offset(Offset(3)), up_to_time(scene.time_of(3)), up_to_offset(Offset(1000))):
        foretold = foretell_removal(scene.archive.table, INCARNATION, choice)
        assert remove_prefix(scene.stores, INCARNATION, choice, why="", by="") == foretold


def test_nothing_to_remove_writes_nothing() -> None:
    scene = Scene()
    scene.archive.table.requests.clear()
    removal = remove_prefix(scene.stores, INCARNATION, up_to_offset(Offset(1)), why="", by="")
    assert (removal.fragments, removal.first_offset) == (0, 0)
    assert not scene.archive.table.requests["TransactWriteItems"]
    assert not [key for key in scene.archive.objects.objects if "/control/" in key]


def test_everything_may_go_and_archiving_goes_on() -> None:
    scene = Scene()
    removal = remove_prefix(scene.stores, INCARNATION, up_to_offset(Offset(1000)), why="", by="")
    assert (removal.fragments, removal.first_offset) == (5, None)
    assert_whole(scene, 5)
    entry = scene.archive.put(10, steady(1, NOW), generation=1)
    scene.archive.commit(entry)
    assert_right_from(scene)


def test_a_long_beginning_goes_in_batches() -> None:
    scene = Scene(fragments=MAX_PREFIX + 3)
    counted: list[int] = []
    remove_prefix(scene.stores, INCARNATION, up_to_offset(Offset(1000)), why="", by="", on_removed=counted.append)
    assert counted == [MAX_PREFIX, 3]
    assert_whole(scene, MAX_PREFIX + 3)


def test_it_stops_between_two_batches_and_goes_on_where_it_was() -> None:
    scene = Scene(fragments=MAX_PREFIX + 3)
    counted: list[int] = []
    choice = up_to_offset(Offset(1000))
    removal = remove_prefix(
        scene.stores, INCARNATION, choice, why="", by="", on_removed=counted.append, should_stop=lambda: bool(counted)
    )
    assert (removal.fragments, removal.is_stopped) == (MAX_PREFIX, True)
    assert_whole(scene, MAX_PREFIX)
    assert remove_prefix(scene.stores, INCARNATION, choice, why="", by="").fragments == 3


@pytest.mark.parametrize(("first", "end", "left"), [(0, 1, 0), (3, 4, 1), (4, None, 2), (9, 10, 4), (10, None, 5)])
def test_it_stops_at_the_first_fragment_that_is_held(first: int, end: int | None, left: int) -> None:
    scene = Scene()
    hold = put_hold(
        scene.stores,
        INCARNATION,
        first_offset=Offset(first),
        next_offset=None if end is None else Offset(end),
        reason="case 17",
        by="counsel",
    )
    choice = up_to_offset(Offset(1000))
    foretold = foretell_removal(scene.archive.table, INCARNATION, choice)
    removal = remove_prefix(scene.stores, INCARNATION, choice, why="", by="")
    assert removal == foretold
    assert removal.fragments == left
    assert removal.held == (hold if left < 5 else None)
    assert [entry.first_offset for entry in scene.log] == [2 * number for number in range(left, 5)]


def test_gaps_go_with_the_fragments_beside_them() -> None:
    scene = Scene(fragments=2)
    scene.archive.add(6, steady(1, NOW, NOW))
    scene.archive.add(10, steady(1, NOW, NOW))
    remove_prefix(scene.stores, INCARNATION, up_to_offset(Offset(2)), why="", by="")
    head = scene.head
    assert head is not None
    assert head.gaps == 2
    remove_prefix(scene.stores, INCARNATION, up_to_offset(Offset(4)), why="", by="")
    head = scene.head
    assert head is not None
    assert (head.gaps, head.floor, head.first_offset) == (1, 4, 6)
    remove_prefix(scene.stores, INCARNATION, up_to_offset(Offset(12)), why="", by="")
    assert not scene.archive.table.gaps(INCARNATION, 10)


def test_an_unfinished_compaction_is_finished_first() -> None:
    scene = Scene(fragments=120)
    head, log = scene.head, scene.log
    assert head is not None
    group = Group(log)
    merged = Compaction(scene.archive).store(group, log[0].encoding)
    scene.archive.table.apply(plan_replacement(head, log, group, merged, at=NOW, due_at=NOW))
    head = scene.head
    assert head is not None
    assert head.compacting is not None
    scene.add()
    removal = remove_prefix(scene.stores, INCARNATION, up_to_offset(Offset(240)), why="", by="")
    assert (removal.fragments, removal.first_offset) == (1, 240)
    assert_right_from(scene)


def test_what_was_removed_cannot_be_committed_again() -> None:
    scene = Scene()
    old = scene.log[0]
    remove_prefix(scene.stores, INCARNATION, up_to_offset(Offset(4)), why="", by="")
    with pytest.raises(BelowFloorError):
        commit_fragment(scene.archive.table, scene.archive.stream, old, lambda: NOW)


class Troubled(MemoryTable):
    """A table that loses the first race of a removal, and after that does not answer one that it has written."""

    trouble = 0

    def apply(self, change: Change) -> None:
        if change.of(DeleteEntry):
            self.trouble += 1
            if self.trouble == 1:
                raise LostRaceError("an upload was first")
        super().apply(change)
        if change.of(DeleteEntry) and self.trouble == 2:
            raise OutcomeUnknownError("no answer came")


def test_lost_races_and_answers_that_never_come_remove_each_fragment_once() -> None:
    scene = Scene(fragments=0)
    scene.archive.table = Troubled()
    for _ in range(5):
        scene.add()
    removal = remove_prefix(scene.stores, INCARNATION, up_to_offset(Offset(6)), why="", by="")
    assert removal.fragments == 3
    assert_whole(scene, 3)


def test_a_table_that_does_not_answer_ends_it() -> None:
    class Silent(MemoryTable):
        def apply(self, change: Change) -> None:
            if change.of(DeleteEntry):
                raise UnavailableError("no answer")
            super().apply(change)

    scene = Scene(fragments=0)
    scene.archive.table = Silent()
    scene.add()
    with pytest.raises(UnavailableError):
        remove_prefix(scene.stores, INCARNATION, up_to_offset(Offset(6)), why="", by="")
