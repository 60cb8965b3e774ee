"""The steps of a purge that remove no entry: its begin on an empty log, and the end of what is known to be missing.

The first prefix removal of a deleted stream begins its purge (`manifest.removal`), and `manifest.deletion` ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coldstream.errors import LostRaceError, NotDeletedError
from coldstream.manifest.change import MAX_ITEMS, Change, DeleteLoss, DeleteQuarantine, Write
from coldstream.manifest.entry import Head, JournalEvent, JournalKind, Loss, Missing
from coldstream.manifest.holding import check_no_holds
from coldstream.units import TimestampMs

MAX_FORGOTTEN = MAX_ITEMS - 2
"""Losses and quarantines that one change can delete, beside the head and the event."""


def plan_purge_begin(head: Head, at: TimestampMs) -> Change:
    """Plan the begin of the purge of a deleted stream that has no entries: nothing undoes the deletion from then on.

    Raises NotDeletedError, HeldError if the stream has a hold, and LostRaceError if there are entries, or the purge has
    begun.
    """
    _check_empty(head)
    check_no_holds(head)
    if head.purge_began_at is not None:
        raise LostRaceError(f"the purge of {head.stream} has begun")
    return _changed(replace(head, purge_began_at=at), at, "purge", ())


def plan_missing_forgotten(head: Head, missing: Sequence[Missing], at: TimestampMs) -> Change:
    """Plan deleting up to MAX_FORGOTTEN losses and quarantines of a stream whose purge has removed all entries.

    Raises NotDeletedError, and LostRaceError if there are entries.
    """
    _check_empty(head)
    losses = [one for one in missing if isinstance(one, Loss)]
    quarantines = [one for one in missing if not isinstance(one, Loss)]
    head = replace(
        head,
        losses=head.losses - len(losses),
        quarantined=head.quarantined - len(quarantines),
        quarantined_again=head.quarantined_again - sum(one.copies - 1 for one in quarantines),
    )
    writes: tuple[Write, ...] = (*map(DeleteLoss, losses), *map(DeleteQuarantine, quarantines))
    return _changed(head, at, f"purge: {len(losses)} losses, {len(quarantines)} quarantined segments", writes)


def _check_empty(head: Head) -> None:
    if not head.is_deleted:
        raise NotDeletedError(str(head.stream))
    if head.fragments:
        raise LostRaceError(f"{head.stream} still has {head.fragments} fragments")


def _changed(head: Head, at: TimestampMs, detail: str, writes: tuple[Write, ...]) -> Change:
    head = replace(head, revision=head.revision + 1)
    return Change(
        head, JournalEvent(head.revision, JournalKind.FRAGMENTS_REMOVED, at, None, None, detail=detail), writes
    )
