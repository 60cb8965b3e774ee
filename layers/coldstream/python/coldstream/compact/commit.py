"""Commit a merged fragment: the transactions of `manifest.compaction`, begun again while others get in between.

Uploads, other compactions and sweeps all change the stream's revision. A transaction that loses the race is planned
again on what is then there; one whose outcome is unknown is looked for. What was read and shows half of a change is
read again. A second compaction may finish what this one began, and the other way round.
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
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.store.races import retry_lost_races
from coldstream.units import Offset, TimestampMs

PAGE_ENTRIES = 1000
"""Read of the manifest at a time; DynamoDB ends a page at a megabyte."""


class Outcome(StrEnum):
    """What became of a merged fragment."""

    COMMITTED = "committed"
    SUPERSEDED = "superseded"
    """Others changed the entries of its group meanwhile."""


def commit(
    table: ManifestTable,
    objects: ObjectStore,
    incarnation: Incarnation,
    group: Group,
    merged: FragmentEntry,
    *,
    now: Callable[[], TimestampMs],
) -> Outcome:
    """Put a merged entry in the place of its group, whose objects get tombstones; finish what was interrupted first.

    Where that is not done the object is deleted, unless the answer to a transaction that named it never came. `merged`
    must be at a key that nobody else makes or names (compact.write).

    Cost: two GetItems, a Query for each thousand entries, and a transaction for the last and 47 others; where there are
    more of them, that of `finish`. Raises LostRaceError when others kept getting in between, and UnavailableError; what
    was begun by then is for `finish`.
    """
    may_be_named = False

    def replace_group() -> Outcome:
        nonlocal may_be_named
        head = table.head(incarnation)
        if head is not None and head.compacting is not None:
            finish(table, incarnation, now)
            head = table.head(incarnation)
        log = _between(table, incarnation, group.first_offset, group.next_offset)
        _check_covers(log, group)
        if any(entry.key == merged.key for entry in log):
            return Outcome.COMMITTED  # by the transaction of which no answer came
        if head is None or not _is_same(log, group):
            return Outcome.SUPERSEDED
        at = now()
        change = plan_replacement(head, log, group, merged, at=at, due_at=TimestampMs(at + GRACE_MS))
        before, may_be_named = may_be_named, True
        try:
            table.apply(change)
        except LostRaceError:
            may_be_named = before
            raise
        return Outcome.COMMITTED

    try:
        outcome = retry_lost_races(replace_group)
    except BaseException:
        if not may_be_named:
            with suppress(ColdstreamError):
                objects.delete(merged.key)
        raise
    if outcome is Outcome.COMMITTED:
        finish(table, incarnation, now)
    elif not may_be_named:
        objects.delete(merged.key)
    return outcome


def finish(table: ManifestTable, incarnation: Incarnation, now: Callable[[], TimestampMs]) -> None:
    """Remove what a compaction of the stream has still to remove, if anything.

    Cost: a GetItem; where there is something, a Query, one for each thousand entries, and a transaction for each 49.
    Raises LostRaceError when others kept getting in between, or the log does not show what the head tells of.
    """
    while retry_lost_races(lambda: _remove_some(table, incarnation, now)):
        pass


def _remove_some(table: ManifestTable, incarnation: Incarnation, now: Callable[[], TimestampMs]) -> bool:
    """Remove leftovers until all are removed, or a race is lost after some; return whether there may be more."""
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
            return True
        head = change.head
        unfinished = unfinished.after(change)
        is_first = False
    return False


def _read_unfinished(table: ManifestTable, head: Head, compacting: Offset) -> Unfinished | None:
    incarnation = head.stream.incarnation
    entries = table.log_from_offset(incarnation, Offset(compacting - 1), 1).entries
    if not entries or entries[0].next_offset != compacting:
        raise LostRaceError(f"no entry ends before {compacting} by now")
    return Unfinished.of(head, _between(table, incarnation, entries[0].first_offset, compacting))


def _between(
    table: ManifestTable, incarnation: Incarnation, first_offset: Offset, next_offset: Offset
) -> tuple[FragmentEntry, ...]:
    """Read the entries that end past the first offset, up to the one that ends at or past the next offset."""
    found: list[FragmentEntry] = []
    position = first_offset
    while position < next_offset:
        page = table.log_from_offset(incarnation, position, PAGE_ENTRIES)
        for entry in page.entries:
            found.append(entry)
            if entry.next_offset >= next_offset:
                return tuple(found)
        if page.head is not None or not page.entries:
            break
        position = page.entries[-1].next_offset
    return tuple(found)


def _check_covers(log: tuple[FragmentEntry, ...], group: Group) -> None:
    """Raise LostRaceError unless what was read holds all of the group's offsets.

    Those are archived for good, so a hole is half of a change; without one it shows who has the offsets by now.
    """
    if not log or log[0].first_offset > group.first_offset or log[-1].next_offset < group.next_offset:
        raise LostRaceError(f"half of a change shows from offset {group.first_offset} to {group.next_offset}")
    for before, entry in pairwise(log):
        check_neighbours(before, entry)


def _is_same(log: tuple[FragmentEntry, ...], group: Group) -> bool:
    return [(entry.key, entry.first_offset, entry.next_offset) for entry in log] == [
        (entry.key, entry.first_offset, entry.next_offset) for entry in group.entries
    ]
