"""Storage classes: a copy of the object in another class takes its place, and the entry says which class that is.

So a reader knows before it asks whether an object must be restored. Offsets, chunks and bytes stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

from coldstream.errors import LostRaceError
from coldstream.manifest.change import Change, EntryVersion, PutTombstone, ReplaceEntry
from coldstream.manifest.entry import FragmentEntry, Head, Hold, JournalEvent, JournalKind, StorageClass
from coldstream.manifest.floors import check_generation, check_not_deleted
from coldstream.manifest.holding import check_not_held
from coldstream.manifest.removal import tombstone_of
from coldstream.units import TimestampMs


def in_class(entry: FragmentEntry, key: str, generation: int, storage_class: StorageClass | None) -> FragmentEntry:
    """Return the entry of a copy of the object, at a key of its own, in a storage class; None is STANDARD."""
    return replace(entry, key=key, generation=generation, storage_class=storage_class)


def plan_storage_class(
    head: Head,
    before: FragmentEntry,
    after: FragmentEntry,
    holds: tuple[Hold, ...],
    *,
    at: TimestampMs,
    due_at: TimestampMs,
) -> Change:
    """Plan putting the entry of a copy, made by `in_class` of `before` as it was read, in its place.

    The old object gets a tombstone. Nobody can commit it again: its offsets stay covered (`manifest.floors`).

    Raises StreamDeletedError, HeldError, StaleGenerationError if the copy may be collected; LostRaceError if a
    compaction is to be finished first, or not all holds show; ValueError if `after` is not such a copy.
    """
    check_not_deleted(head)
    if head.compacting is not None:
        raise LostRaceError(f"a compaction up to {head.compacting} is to be finished first")
    check_not_held(head, holds, before.first_offset, before.next_offset)
    check_generation(head, after)
    if after.key == before.key or after != in_class(before, after.key, after.generation, after.storage_class):
        raise ValueError(f"{after.key} is no copy of {before.key}")
    head = replace(head, revision=head.revision + 1)
    event = JournalEvent(
        revision=head.revision,
        kind=JournalKind.STORAGE_CLASS_CHANGED,
        at=at,
        first_offset=after.first_offset,
        next_offset=after.next_offset,
        key=after.key,
        detail=after.storage_class or "STANDARD",
    )
    writes = ReplaceEntry(EntryVersion.of(before), after), PutTombstone(tombstone_of(before, due_at))
    return Change(head, event, writes)
