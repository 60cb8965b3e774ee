"""Commit a merged fragment by the transactions of `manifest.compaction`, repeated while other writers are first.

Uploads, other compactions and sweeps all raise the stream's revision. A transaction that loses the race is planned
again on the new state. If the outcome of one is unknown, the next attempt looks for its effect. A view that shows half
of a change is read again. A commit takes several transactions; any compaction may finish what another has begun.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from itertools import pairwise

from coldstream.errors import ColdstreamError, LostRaceError, StaleGenerationError, StreamDeletedError
from coldstream.lifecycle.unfinished import finish, read_span
from coldstream.manifest.chain import check_neighbours
from coldstream.manifest.compaction import plan_replacement
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.groups import Group
from coldstream.manifest.holding import held
from coldstream.manifest.stream import Incarnation
from coldstream.store.discard import discard
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.store.holding import read_holds
from coldstream.store.ports import ManifestTable
from coldstream.store.races import retry_lost_races
from coldstream.units import TimestampMs


class CommitOutcome(Enum):
    """What became of a merged fragment."""

    COMMITTED = auto()
    SUPERSEDED = auto()
    """Others changed, removed or held the entries of its group first."""


def commit(
    table: ManifestTable,
    incarnation: Incarnation,
    group: Group,
    merged: FragmentEntry,
    *,
    now: Callable[[], TimestampMs],
    grace_ms: int = LONGEST_GRACE_MS,
) -> CommitOutcome:
    """Put a merged entry in the place of its group, whose objects get tombstones; first finish an interrupted commit.

    The tombstones are due `grace_ms` after `now`, which is AWS's time. If the entry is not committed, its object, which
    nobody else names, is discarded. SUPERSEDED is also the outcome if the stream was deleted, some of the group removed
    or held, or the object's key fenced off meanwhile.

    Cost: two GetItems, a Query for each thousand entries, and a transaction for the last entry and 47 others; for more
    entries also the cost of `finish`; a Query if the stream has holds. Raises LostRaceError if others kept being first,
    and UnavailableError; `finish` does the rest of what was begun by then.
    """

    def replace_group() -> CommitOutcome:
        head = table.head(incarnation)
        if head is not None and head.compacting is not None:
            finish(table, incarnation, now, grace_ms)
            head = table.head(incarnation)
        if head is None or head.floor > group.first_offset:
            return CommitOutcome.SUPERSEDED
        log = read_span(table, incarnation, group.first_offset, group.next_offset)
        _check_covers(log, group)
        if any(entry.key == merged.key for entry in log):
            return CommitOutcome.COMMITTED  # by an earlier attempt, whose answer never came
        is_held = held(read_holds(table, head), group.first_offset, group.next_offset) is not None
        if is_held or not _is_same(log, group):
            return CommitOutcome.SUPERSEDED
        at = now()
        try:
            change = plan_replacement(head, log, group, merged, at=at, due_at=TimestampMs(at + grace_ms))
        except (StreamDeletedError, StaleGenerationError):
            return CommitOutcome.SUPERSEDED
        table.apply(change)
        return CommitOutcome.COMMITTED

    try:
        outcome = retry_lost_races(replace_group)
    except BaseException:
        # Nobody knows by now whether an entry names the object. `discard` looks, and its change refuses a transaction
        # that is still on its way.
        with suppress(ColdstreamError):
            discard(table, incarnation, (merged,), now)
        raise
    if outcome is CommitOutcome.COMMITTED:
        finish(table, incarnation, now, grace_ms)
    else:
        # Not deleted at once: a DELETE that S3 carries out late could meet another object at this key, which was free
        # by then. The fence keeps the key from ever being used again.
        discard(table, incarnation, (merged,), now)
    return outcome


def _check_covers(log: tuple[FragmentEntry, ...], group: Group) -> None:
    """Raise LostRaceError unless the entries that were read hold all of the group's offsets.

    What is above the floor stays archived, so a hole is half of somebody's change: to judge by it would be wrong.
    """
    if not log or log[0].first_offset > group.first_offset or log[-1].next_offset < group.next_offset:
        raise LostRaceError(f"offsets {group.first_offset} to {group.next_offset} show half of a change")
    for before, entry in pairwise(log):
        check_neighbours(before, entry)


def _is_same(log: tuple[FragmentEntry, ...], group: Group) -> bool:
    return [(entry.key, entry.first_offset, entry.next_offset) for entry in log] == [
        (entry.key, entry.first_offset, entry.next_offset) for entry in group.entries
    ]
