"""What may still be committed: nothing below the floor, nothing to a deleted stream, no object that may be collected.

The head holds all three, and every change is conditional on the head, so what was removed never comes back: not by an
event that comes late or again, and not by a creator that was stalled while its object's key got a tombstone or was
found to be garbage. Whoever removes raises the head's generation above the keys concerned, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterable

from coldstream.errors import BelowFloorError, StaleGenerationError, StreamDeletedError
from coldstream.manifest.entry import FragmentEntry, Head


def check_floors(head: Head, entry: FragmentEntry) -> None:
    """Check that a new entry may be committed.

    Raises StreamDeletedError; BelowFloorError if the entry begins below the floor, even if it ends above;
    StaleGenerationError if its object must be put anew, at the head's generation.
    """
    check_not_deleted(head)
    if entry.first_offset < head.floor:
        raise BelowFloorError(entry.key, entry.first_offset, entry.next_offset, head.floor)
    check_generation(head, entry)


def check_not_deleted(head: Head) -> None:
    """Raise StreamDeletedError if the stream is deleted."""
    if head.deleted_at is not None:
        raise StreamDeletedError(str(head.stream), head.deleted_at)


def check_generation(head: Head, entry: FragmentEntry) -> None:
    """Raise StaleGenerationError if the entry's object is of a generation that may be collected."""
    if entry.generation < head.generation:
        raise StaleGenerationError(entry.key, entry.generation, head.generation)


def above(head: Head, removed: Iterable[FragmentEntry]) -> int:
    """Return the generation that a head must have once these entries are removed."""
    return max(head.generation, *(entry.generation + 1 for entry in removed))
