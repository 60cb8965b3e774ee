"""Which entry may come after which in a log."""

from __future__ import annotations

from coldstream.errors import LostRaceError
from coldstream.manifest.entry import FragmentEntry


def check_neighbours(before: FragmentEntry, entry: FragmentEntry) -> None:
    """Raise LostRaceError unless `entry`, as it was read, can come right after the entry `before`.

    It can if it is linked to that entry, or if it took its place in an unfinished compaction and so contains it.
    """
    is_within = entry.first_offset <= before.first_offset
    if not is_within and (entry.first_offset < before.next_offset or entry.prior_offset != before.next_offset):
        raise LostRaceError(f"half of a change shows between offsets {before.next_offset} and {entry.first_offset}")
