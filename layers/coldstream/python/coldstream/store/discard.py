"""Discard objects that were written for entries and never committed: tombstones for them, and a fence against commits.

Whoever finds such an object at its key, with the very bytes that it would write, may be about to commit it: another
upload of the same segment, or one that was stalled. So the change that writes the tombstone also raises the generation
that entries must have above that of the key. From then on the key can never be committed, and a sweep may delete it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coldstream.errors import LostRaceError
from coldstream.manifest.entry import FragmentEntry, Head, Tombstone
from coldstream.manifest.fence import plan_discard
from coldstream.manifest.removal import tombstone_of
from coldstream.manifest.stream import Incarnation
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.store.ports import ManifestTable
from coldstream.store.races import retry_lost_races
from coldstream.units import Offset, TimestampMs

MAX_DISCARDED = 40
"""Entries of one change: each may take a tombstone and a required neighbour."""


def discard(
    table: ManifestTable,
    incarnation: Incarnation,
    entries: Sequence[FragmentEntry],
    now: Callable[[], TimestampMs],
) -> int:
    """Write tombstones for the objects of entries, unless the manifest names them; return for how many. Safe to repeat.

    They are due after the longest grace there is: an entry may have named such an object for a while, and URLs of it
    may be in use. Cost: a GetItem, a Query an entry, and a transaction, for each 40 entries. Raises LostRaceError if
    others kept being first.
    """
    discarded = 0
    for start in range(0, len(entries), MAX_DISCARDED):
        some = entries[start : start + MAX_DISCARDED]
        discarded += retry_lost_races(lambda some=some: _discard(table, incarnation, some, now()))  # type: ignore[misc]
    return discarded


def _discard(table: ManifestTable, incarnation: Incarnation, entries: Sequence[FragmentEntry], at: TimestampMs) -> int:
    head = table.head(incarnation)
    if head is None:
        return 0  # no entry of the stream was ever committed, and the event that brings the first uses these objects
    tombstones: list[Tombstone] = []
    required: dict[Offset, FragmentEntry] = {}
    for entry in entries:
        holder = _holder(table, head, entry)
        if holder is not None and holder.key == entry.key:
            continue
        if holder is not None:
            required[holder.next_offset] = holder
        due_at = TimestampMs(at + LONGEST_GRACE_MS)
        # Its bytes may be of before an erasure, which marks only what waits for the sweep by its end.
        tombstones.append(tombstone_of(entry, due_at, all_versions=head.erasures > 0))
    if tombstones:
        generation = 1 + max(entry.generation for entry in entries)
        table.apply(plan_discard(head, tombstones, generation, at, required=tuple(required.values())))
    return len(tombstones)


def _holder(table: ManifestTable, head: Head, entry: FragmentEntry) -> FragmentEntry | None:
    """Return the entry that holds the last offset of another, or the next one; None if the log ends before it.

    If the other is in the log, it is this one. The head was read before it, so half of a change may show: the caller's
    change requires the version of this one, whose link proves that nothing is before it.
    """
    last = Offset(entry.next_offset - 1)
    found = next(iter(table.log_from_offset(head.stream.incarnation, last, 1).entries), None)
    if found is None:
        # Of a log that lost all of its entries, the tail says nothing about entries.
        is_hidden = head.first_offset is not None and head.next_offset is not None and last < head.next_offset
    else:
        is_hidden = found.first_offset > last and found.prior_offset is not None and found.prior_offset > last
    if is_hidden:
        raise LostRaceError(f"half of a change shows at offset {last}")
    return found
