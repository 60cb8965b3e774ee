"""Commit a merged fragment by the transactions of `manifest.compaction`, repeated while other writers are first.

Uploads, other compactions and sweeps all raise the stream's revision. A transaction that loses the race is planned
again on the new state. If the outcome of one is unknown, the next attempt looks for its effect. A view that shows half
of a change is read again. A commit takes several transactions; any compaction may finish what another has begun.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from itertools import pairwise

from coldstream.errors import ColdstreamError, LostRaceError
from coldstream.manifest.chain import check_neighbours
from coldstream.manifest.compaction import GRACE_MS, Unfinished, plan_removal, plan_replacement
from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.manifest.groups import Group
from coldstream.manifest.stream import Incarnation
from coldstream.store.log import iter_log
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.store.races import retry_lost_races
from coldstream.units import Offset, TimestampMs


class CommitOutcome(StrEnum):
    """What became of a merged fragment."""

    COMMITTED = "committed"
    SUPERSEDED = "superseded"
    """Others changed the entries of its group first."""


def commit(
    table: ManifestTable,
    objects: ObjectStore,
    incarnation: Incarnation,
    group: Group,
    merged: FragmentEntry,
    *,
    now: Callable[[], TimestampMs],
) -> CommitOutcome:
    """Put a merged entry in the place of its group, whose objects get tombstones; first finish an interrupted commit.

    If that fails, the object is deleted, unless the answer to a transaction that names it never came. `merged` must be
    at a key that nobody else writes or names (compact.write).

    Cost: two GetItems, a Query for each thousand entries, and a transaction for the last entry and 47 others; for more
    entries also the cost of `finish`. Raises LostRaceError if others kept being first, and UnavailableError; `finish`
    does the rest of what was begun by then.
    """
    # Once true it stays true until a later transaction fails for certain: an entry may name the object by then, and to
    # delete it would lose messages. An object that nothing names only costs its storage.
    may_be_named = False

    def replace_group() -> CommitOutcome:
        nonlocal may_be_named
        head = table.head(incarnation)
        if head is not None and head.compacting is not None:
            finish(table, incarnation, now)
            head = table.head(incarnation)
        log = _between(table, incarnation, group.first_offset, group.next_offset)
        _check_covers(log, group)
        if any(entry.key == merged.key for entry in log):
            return CommitOutcome.COMMITTED  # by an earlier attempt, whose answer never came
        if head is None or not _is_same(log, group):
            return CommitOutcome.SUPERSEDED
        at = now()
        change = plan_replacement(head, log, group, merged, at=at, due_at=TimestampMs(at + GRACE_MS))
        before, may_be_named = may_be_named, True
        try:
            table.apply(change)
        except LostRaceError:
            may_be_named = before  # this transaction failed for certain; an earlier one may still have passed
            raise
        return CommitOutcome.COMMITTED

    try:
        outcome = retry_lost_races(replace_group)
    except BaseException:
        if not may_be_named:
            with suppress(ColdstreamError):
                objects.delete(merged.key)
        raise
    if outcome is CommitOutcome.COMMITTED:
        finish(table, incarnation, now)
    elif not may_be_named:
        objects.delete(merged.key)
    return outcome


def finish(table: ManifestTable, incarnation: Incarnation, now: Callable[[], TimestampMs]) -> None:
    """Remove the entries that an unfinished commit has left, if the head says that there is one.

    Cost: a GetItem; if there is one, also a Query, one more for each thousand entries, and a transaction for each 49.
    Raises LostRaceError if others kept being first, or if the log never shows the merged entry that the head names.
    """
    while retry_lost_races(lambda: _remove_some(table, incarnation, now)):
        pass


def _remove_some(table: ManifestTable, incarnation: Incarnation, now: Callable[[], TimestampMs]) -> bool:
    """Remove entries until none is left, or until a race is lost after the first; return whether there may be more."""
    head = table.head(incarnation)
    if head is None or head.compacting is None:
        return False
    unfinished = _read_unfinished(table, head, head.compacting)
    is_first = True
    while unfinished is not None:
        change = plan_removal(head, unfinished, due_at=TimestampMs(now() + GRACE_MS))
        try:
            table.apply(change)
        except LostRaceError:
            if is_first:
                raise
            return True  # there was progress: begin anew, with all attempts
        head = change.head
        unfinished = unfinished.after(change)
        is_first = False
    return False


def _read_unfinished(table: ManifestTable, head: Head, compacting: Offset) -> Unfinished | None:
    incarnation = head.stream.incarnation
    entries = table.log_from_offset(incarnation, Offset(compacting - 1), 1).entries
    if not entries or entries[0].next_offset != compacting:
        raise LostRaceError(f"{incarnation}: the head says that an entry ends at offset {compacting}, and none does")
    return Unfinished.of(head, _between(table, incarnation, entries[0].first_offset, compacting))


def _between(
    table: ManifestTable, incarnation: Incarnation, first_offset: Offset, next_offset: Offset
) -> tuple[FragmentEntry, ...]:
    """Read the entries that end after the first offset, up to the one that ends at the next offset or after it."""
    found: list[FragmentEntry] = []
    for entry in iter_log(table, incarnation, first_offset):
        found.append(entry)
        if entry.next_offset >= next_offset:
            break
    return tuple(found)


def _check_covers(log: tuple[FragmentEntry, ...], group: Group) -> None:
    """Raise LostRaceError unless the entries that were read hold all of the group's offsets.

    What is archived stays archived, so a hole is half of somebody's change, and to judge by it would be wrong.
    """
    if not log or log[0].first_offset > group.first_offset or log[-1].next_offset < group.next_offset:
        raise LostRaceError(f"offsets {group.first_offset} to {group.next_offset} show half of a change")
    for before, entry in pairwise(log):
        check_neighbours(before, entry)


def _is_same(log: tuple[FragmentEntry, ...], group: Group) -> bool:
    return [(entry.key, entry.first_offset, entry.next_offset) for entry in log] == [
        (entry.key, entry.first_offset, entry.next_offset) for entry in group.entries
    ]
