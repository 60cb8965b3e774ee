"""The end of an unfinished compaction: the entries that its merged one replaces are removed.

Compaction does that after each commit, and whoever finds one unfinished does it for a run that died: nothing else is
removed from a log in which two entries hold the same offsets.
"""

from __future__ import annotations

from collections.abc import Callable

from coldstream.errors import LostRaceError
from coldstream.manifest.compaction import Unfinished, plan_removal
from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.manifest.stream import Incarnation
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.store.log import iter_log
from coldstream.store.ports import ManifestTable
from coldstream.store.races import retry_lost_races
from coldstream.units import Offset, TimestampMs


def finish(
    table: ManifestTable,
    incarnation: Incarnation,
    now: Callable[[], TimestampMs],
    grace_ms: int = LONGEST_GRACE_MS,
) -> None:
    """Remove the entries that an unfinished commit has left, if the head says that there is one.

    Cost: a GetItem; if there is one, also a Query, one more for each thousand entries, and a transaction for each 49.
    Raises LostRaceError if others kept being first, or if the log never shows the merged entry that the head names.
    """
    while retry_lost_races(lambda: _remove_some(table, incarnation, now, grace_ms)):
        pass


def _remove_some(table: ManifestTable, incarnation: Incarnation, now: Callable[[], TimestampMs], grace_ms: int) -> bool:
    """Remove entries until none is left, or until a race is lost after the first; return whether there may be more."""
    head = table.head(incarnation)
    if head is None or head.compacting is None:
        return False
    unfinished = _read_unfinished(table, head, head.compacting)
    is_first = True
    while unfinished is not None:
        at = now()
        change = plan_removal(head, unfinished, at=at, due_at=TimestampMs(at + grace_ms))
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
    return Unfinished.of(head, read_span(table, incarnation, entries[0].first_offset, compacting))


def read_span(
    table: ManifestTable, incarnation: Incarnation, first_offset: Offset, next_offset: Offset
) -> tuple[FragmentEntry, ...]:
    """Read the entries that end after the first offset, up to the one that ends at the next offset or after it."""
    found: list[FragmentEntry] = []
    for entry in iter_log(table, incarnation, first_offset):
        found.append(entry)
        if entry.next_offset >= next_offset:
            break
    return tuple(found)
