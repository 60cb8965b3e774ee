"""The transactions of a compaction: how many items, in which order, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from coldstream.errors import LostRaceError, StaleGenerationError, StreamDeletedError
from coldstream.manifest.change import (
    MAX_BYTES,
    MAX_ITEMS,
    Change,
    DeleteEntry,
    DeleteTombstone,
    EntryVersion,
    PutTombstone,
    Relink,
    ReplaceEntry,
    RequireEntry,
    entry_bytes,
)
from coldstream.manifest.compaction import (
    FIRST_REMOVALS,
    MAX_REMOVALS,
    MAX_SWEPT,
    Unfinished,
    after_replacement,
    plan_removal,
    plan_replacement,
    plan_sweep,
)
from coldstream.manifest.entry import FragmentEntry, Head, JournalKind, Tombstone
from coldstream.manifest.groups import Group
from coldstream.manifest.sparse import SparseIndex, SparsePoint
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import ChunkId, Offset, TimestampMs
from tests.manifest.samples import fragment

HEAD = Head(StreamId("/", "orders", Incarnation("__orders_1763700000000000000")), revision=50, fragments=30, chunks=120)
AT, DUE = TimestampMs(1000), TimestampMs(2000)


def group_of(entries: int) -> Group:
    return Group(tuple(fragment(number, number + 1, time=number) for number in range(entries)))


def merged_of(group: Group) -> FragmentEntry:
    return group.merged(key="merged", generation=1, object_bytes=500, crc32=7)


def replacement(group: Group, head: Head = HEAD) -> Change:
    return plan_replacement(head, group.entries, group, merged_of(group), at=AT, due_at=DUE)


def deleted(change: Change) -> list[EntryVersion]:
    return [one.before for one in change.of(DeleteEntry)]


def changes(group: Group) -> list[Change]:
    """Plan a compaction to its end."""
    planned = [replacement(group)]
    unfinished = after_replacement(planned[0], group.entries)
    while unfinished is not None:
        planned.append(plan_removal(planned[-1].head, unfinished, at=AT, due_at=DUE))
        unfinished = unfinished.after(planned[-1])
    return planned


@pytest.mark.parametrize("entries", [1, 2, 3, 47, 48, 49, 50, 96, 97, 98, 145, 146, 147, 300])
def test_all_others_are_removed_the_highest_first_in_changes_of_a_transaction(entries: int) -> None:
    group = group_of(entries)
    planned = changes(group)
    assert all(change.items <= MAX_ITEMS for change in planned)
    assert len(planned) == 1 + max(0, -(-(entries - 1 - FIRST_REMOVALS) // MAX_REMOVALS))
    assert [one.next_offset for change in planned for one in deleted(change)] == list(range(entries - 1, 0, -1))
    graves = [one.tombstone.key for change in planned for one in change.of(PutTombstone)]
    assert sorted(graves) == sorted(entry.key for entry in group.entries)
    assert [change.head.revision for change in planned] == list(range(51, 51 + len(planned)))
    versions = {entry.next_offset: EntryVersion.of(entry) for entry in group.entries}
    assert all(versions[one.next_offset] == one for change in planned for one in deleted(change))
    assert [change.head.compacting for change in planned] == [entries] * (len(planned) - 1) + [None]
    assert planned[-1].head.fragments == HEAD.fragments - entries + 1
    assert planned[-1].head.object_bytes == HEAD.object_bytes + 500 - group.object_bytes
    assert planned[-1].head.chunks == HEAD.chunks


def test_the_first_change_says_what_happened_and_buries_what_it_replaces() -> None:
    change = replacement(group_of(2))
    event = change.event
    assert event.kind is JournalKind.FRAGMENTS_COMPACTED
    assert (event.revision, event.at, event.key) == (51, 1000, "merged")
    assert (event.first_offset, event.next_offset, event.detail) == (0, 2, "2 to 1, identity")
    assert tuple(one.tombstone for one in change.of(PutTombstone)) == (
        Tombstone(f"{1:020}.fragment", DUE, Offset(1), Offset(2), fragment(1, 2).object_bytes),
        Tombstone(f"{0:020}.fragment", DUE, Offset(0), Offset(1), fragment(0, 1).object_bytes),
    )


@pytest.mark.parametrize(("entries", "first"), [(48, False), (49, True)])
def test_the_first_change_relies_on_the_first_entry_where_it_does_not_remove_it(entries: int, *, first: bool) -> None:
    group = group_of(entries)
    change = replacement(group)
    assert [one.before for one in change.of(ReplaceEntry)] == [EntryVersion.of(group.entries[-1])]
    assert change.of(RequireEntry) == ((RequireEntry(EntryVersion.of(group.entries[0])),) if first else ())


def test_the_last_change_relies_on_the_merged_entry_or_gives_it_the_links_of_the_first() -> None:
    group = group_of(60)
    change = replacement(group)
    unfinished = after_replacement(change, group.entries)
    assert unfinished is not None
    merged = EntryVersion.of(unfinished.merged)
    last = plan_removal(change.head, unfinished, at=AT, due_at=DUE)
    assert (last.of(RequireEntry), last.of(Relink)) == ((RequireEntry(merged),), ())
    moved = replace(group.entries[0], prior_timestamp=TimestampMs(99))
    last = plan_removal(change.head, replace(unfinished, leftovers=(moved, *group.entries[1:])), at=AT, due_at=DUE)
    assert last.of(RequireEntry) == ()
    assert [(one.before, one.prior_timestamp) for one in last.of(Relink)] == [(merged, 99)]


def test_large_entries_are_removed_in_changes_of_as_many_bytes_as_a_transaction_takes() -> None:
    points = tuple(SparsePoint(ChunkId(0), n, 8 + n, TimestampMs(0), TimestampMs(0)) for n in range(5000))
    large = [replace(entry, sparse=SparseIndex(points)) for entry in group_of(200).entries]
    unfinished: Unfinished | None = Unfinished(merged_of(group_of(200)), large, 199)
    head, removed = replace(HEAD, compacting=Offset(200)), 0
    while unfinished is not None:
        change = plan_removal(head, unfinished, at=AT, due_at=DUE)
        assert 0 < sum(entry_bytes(large[one.next_offset - 1]) for one in deleted(change)) <= MAX_BYTES
        head, removed = change.head, removed + len(deleted(change))
        unfinished = unfinished.after(change)
    assert (removed, head.compacting) == (199, None)


class Looked(list[FragmentEntry]):
    """Counts how often an entry is looked at."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        assert isinstance(at, int), "no copy of what is left"
        self.looks += 1
        return super().__getitem__(at)

    def __iter__(self) -> Iterator[FragmentEntry]:
        raise AssertionError("all that is left is looked at again")


@pytest.mark.parametrize("entries", [1000, 20_000])
def test_what_is_planned_grows_with_the_group_and_no_faster(entries: int) -> None:
    group = group_of(entries)
    change = replacement(group)
    leftovers = Looked(group.entries)
    unfinished: Unfinished | None = Unfinished(merged_of(group), leftovers, entries - 1 - len(deleted(change)))
    changes = 1
    while unfinished is not None:
        change = plan_removal(change.head, unfinished, at=AT, due_at=DUE)
        unfinished = unfinished.after(change)
        changes += 1
    assert leftovers.looks <= 4 * entries
    assert changes == 1 + -(-(entries - 1 - FIRST_REMOVALS) // MAX_REMOVALS)


def test_links_are_those_of_the_log_and_not_of_when_the_group_was_planned() -> None:
    group = group_of(3)
    log = [replace(group.entries[0], prior_offset=Offset(0), prior_timestamp=TimestampMs(77)), *group.entries[1:]]
    change = plan_replacement(HEAD, log, group, merged_of(group), at=AT, due_at=DUE)
    (replacement,) = change.of(ReplaceEntry)
    assert (replacement.entry.prior_offset, replacement.entry.prior_timestamp) == (0, 77)


def test_other_entries_than_those_planned_on_lose_the_race() -> None:
    group = group_of(3)
    others = [
        group.entries[1:],
        group.entries[:-1],
        (*group.entries[:2], replace(group.entries[2], key="another")),
        (fragment(0, 2), group.entries[2]),
        (),
    ]
    for log in others:
        with pytest.raises(LostRaceError):
            plan_replacement(HEAD, log, group, merged_of(group), at=AT, due_at=DUE)


def test_nothing_is_begun_while_another_compaction_is_not_finished() -> None:
    with pytest.raises(LostRaceError, match="to be finished first"):
        replacement(group_of(2), replace(HEAD, compacting=Offset(90)))


def test_a_merged_object_that_may_be_collected_is_put_anew() -> None:
    with pytest.raises(StaleGenerationError):
        replacement(group_of(2), replace(HEAD, generation=2))
    assert replacement(group_of(2), replace(HEAD, generation=1)).head.generation == 1


def test_a_deleted_stream_is_not_compacted_but_what_was_begun_is_finished() -> None:
    with pytest.raises(StreamDeletedError):
        replacement(group_of(2), replace(HEAD, deleted_at=AT))
    group = group_of(60)
    change = replacement(group)
    unfinished = after_replacement(change, group.entries)
    assert unfinished is not None
    finished = plan_removal(replace(change.head, deleted_at=AT), unfinished, at=AT, due_at=DUE)
    assert finished.head.compacting is None
    assert finished.event.kind is JournalKind.COMPACTION_CONTINUED
    assert (finished.event.first_offset, finished.event.next_offset) == (0, 12)


@pytest.mark.parametrize(
    "change",
    [{"chunks": 11}, {"messages": 4}, {"data_bytes": 1}, {"first_timestamp": 5}, {"next_offset": 4}, {"records": 2}],
)
def test_a_merged_entry_that_does_not_add_up_is_a_mistake(change: dict[str, int]) -> None:
    group = group_of(3)
    wrong = replace(merged_of(group), **change)
    with pytest.raises(ValueError, match="does not follow from"):
        plan_replacement(HEAD, group.entries, group, wrong, at=AT, due_at=DUE)


def test_a_merged_fragment_never_takes_the_key_of_one_that_it_replaces() -> None:
    group = group_of(2)
    same = replace(merged_of(group), key=group.entries[0].key)
    with pytest.raises(ValueError, match="does not follow from"):
        plan_replacement(HEAD, group.entries, group, same, at=AT, due_at=DUE)


def test_what_is_unfinished_is_told_by_the_head_and_read_from_the_log() -> None:
    leftovers = group_of(3).entries
    merged = merged_of(group_of(9))
    head = replace(HEAD, compacting=Offset(9))
    assert Unfinished.of(HEAD, [*leftovers, merged]) is None
    assert Unfinished.of(head, [*leftovers, merged, fragment(9, 12)]) == Unfinished(merged, list(leftovers), 3)
    for log in ([merged], [*leftovers], [], [*leftovers[1:], merged], [fragment(9, 12)]):
        with pytest.raises(LostRaceError):
            Unfinished.of(head, log)


def test_a_sweep_takes_tombstones_away() -> None:
    graves = [Tombstone(str(number), DUE, Offset(0), Offset(1), 1) for number in range(MAX_SWEPT)]
    change = plan_sweep(HEAD, graves, at=AT)
    assert change.items == MAX_ITEMS
    assert (change.head.revision, change.writes) == (51, tuple(map(DeleteTombstone, graves)))
