"""Chains of entries: how far they cover offsets without a hole, and which entry may follow which."""

from __future__ import annotations

from collections.abc import Iterable

from coldstream.errors import LostRaceError
from coldstream.manifest.entry import FragmentEntry
from coldstream.units import Offset


def chain_end(entries: Iterable[FragmentEntry], first_offset: Offset) -> Offset:
    """Return how far entries, in the order of the log, cover the offsets from `first_offset` on without a hole.

    Entries may overlap. One that comes after a hole still counts if it also covers the hole: the merged entry of a
    compaction covers the entries that are removed already.
    """
    reached = first_offset
    for entry in entries:
        if entry.first_offset <= reached < entry.next_offset:
            reached = entry.next_offset
    return reached


def check_neighbours(before: FragmentEntry, entry: FragmentEntry) -> None:
    """Raise LostRaceError unless `entry`, as it was read, can come right after the entry `before`.

    It can if it is linked to that entry, or if it took its place in an unfinished compaction and so contains it.
    """
    is_within = entry.first_offset <= before.first_offset
    if not is_within and (entry.first_offset < before.next_offset or entry.prior_offset != before.next_offset):
        raise LostRaceError(f"half of a change shows between offsets {before.next_offset} and {entry.first_offset}")
