"""Deletion of a stream: marked at once, undone until its purge begins, final once its log is empty.

The first prefix removal of a deleted stream begins its purge (`manifest.removal`). From then on the log is not what it
was, so the deletion cannot be undone. The head stays for good: whatever is announced of that incarnation later is
known to be deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coldstream.errors import LostRaceError, NotDeletedError, PurgedError
from coldstream.manifest.change import Change
from coldstream.manifest.entry import Head, Hold, JournalEvent, JournalKind
from coldstream.manifest.floors import check_not_deleted
from coldstream.manifest.holding import check_no_holds
from coldstream.units import TimestampMs


def plan_delete(
    head: Head, at: TimestampMs, purge_at: TimestampMs, by: str | None, *, holds: Sequence[Hold] = ()
) -> Change:
    """Plan deleting a stream, to be purged from `purge_at` on. `holds` are for the error alone: the head counts them.

    Raises HeldError if the stream has a hold, StreamDeletedError if it is deleted already.
    """
    check_not_deleted(head)
    check_no_holds(head, holds)
    return _changed(replace(head, deleted_at=at, purge_at=purge_at), JournalKind.STREAM_DELETED, at, by)


def plan_undelete(head: Head, at: TimestampMs, by: str | None) -> Change:
    """Plan undoing a deletion. Raises NotDeletedError, and PurgedError if the purge has begun."""
    if not head.is_deleted:
        raise NotDeletedError(str(head.stream))
    if head.purge_began_at is not None:
        raise PurgedError(str(head.stream))
    return _changed(replace(head, deleted_at=None, purge_at=None), JournalKind.STREAM_UNDELETED, at, by)


def plan_purged(head: Head, at: TimestampMs) -> Change:
    """Plan the end of a purge, after the last entry is removed.

    Raises NotDeletedError; PurgedError if that is written already; LostRaceError while there are entries.
    """
    if not head.is_deleted:
        raise NotDeletedError(str(head.stream))
    if head.purged_at is not None:
        raise PurgedError(str(head.stream))
    if head.fragments:
        raise LostRaceError(f"{head.stream} still has {head.fragments} fragments")
    check_no_holds(head)
    began_at = at if head.purge_began_at is None else head.purge_began_at
    return _changed(replace(head, purged_at=at, purge_began_at=began_at), JournalKind.STREAM_PURGED, at, None)


def _changed(head: Head, kind: JournalKind, at: TimestampMs, by: str | None) -> Change:
    # Above the keys of uploads that are under way: what they put before is put anew, or discarded.
    head = replace(head, revision=head.revision + 1, generation=head.generation + 1)
    return Change(head, JournalEvent(head.revision, kind, at, head.first_offset, head.next_offset, by=by))
