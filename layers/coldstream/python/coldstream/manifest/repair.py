"""Repairs: what is derived from the entries put right, and ranges given up as the last resort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coldstream.errors import LostRaceError
from coldstream.manifest.change import (
    Change,
    DeleteEntry,
    DeleteGap,
    EntryVersion,
    PutGap,
    PutLoss,
    PutTombstone,
    Relink,
    ReplaceGap,
    RequireEntry,
    Write,
)
from coldstream.manifest.entry import FragmentEntry, Gap, Head, Hold, JournalEvent, JournalKind, Loss, Missing
from coldstream.manifest.floors import above
from coldstream.manifest.holding import check_not_held
from coldstream.manifest.missing import check_all_missing, is_known, with_reason
from coldstream.manifest.removal import tombstone_of
from coldstream.units import TimestampMs

DAMAGED = "the archived object is damaged"
"""Why an entry was given up, so that an agent that still has its offsets brings them again."""

_TOTALS = ("chunks", "records", "messages", "data_bytes", "object_bytes")


def plan_items_repair(head: Head, repaired: Head, writes: Sequence[Write], at: TimestampMs, detail: str) -> Change:
    """Plan putting right what is derived from the entries: totals of the head, links, gaps.

    `repaired` is the head as it should be, of any revision; `writes` are at most MAX_ITEMS - 2. A link whose running
    timestamp rises comes after those that follow it are repaired, or running timestamps fall for a while.
    """
    head = replace(repaired, revision=head.revision + 1)
    return Change(
        head, JournalEvent(head.revision, JournalKind.ENTRY_REPAIRED, at, None, None, detail=detail), tuple(writes)
    )


def plan_range_removal(
    head: Head,
    before: FragmentEntry | None,
    entry: FragmentEntry,
    following: FragmentEntry | None,
    *,
    missing: Sequence[Missing],
    holds: Sequence[Hold],
    at: TimestampMs,
    due_at: TimestampMs,
    reason: str,
    by: str | None,
) -> Change:
    """Plan giving up an entry whose object is gone or damaged: a loss says why, and a gap takes its place.

    The offsets are not below the floor, so an agent that still has them may bring them again; to keep them away, raise
    the floor. `before` and `following` are its neighbours, `missing` is all that is known to be missing. The last entry
    cannot go, for the tail never falls.

    Raises HeldError, and LostRaceError if a compaction is to be finished first, half of a change shows, or not all that
    is missing does; ValueError for the last entry.
    """
    if head.compacting is not None:
        raise LostRaceError(f"a compaction up to {head.compacting} is to be finished first")
    if following is None:
        raise ValueError(f"{entry.key} is the last entry of its log")
    if entry.prior_offset != (None if before is None else before.next_offset):
        raise LostRaceError(f"half of a change shows before offset {entry.first_offset}")
    if following.prior_offset != entry.next_offset:
        raise LostRaceError(f"half of a change shows before offset {following.first_offset}")
    check_not_held(head, holds, entry.first_offset, entry.next_offset)
    check_all_missing(head, missing)
    loss = Loss(entry.first_offset, entry.next_offset, reason, at)
    is_new = not is_known(loss, missing)
    gap_writes = _gap_writes(before, entry, following, [*missing, loss] if is_new else missing)
    head = replace(
        head,
        revision=head.revision + 1,
        first_offset=following.first_offset if before is None else head.first_offset,
        first_timestamp=following.first_timestamp if before is None else head.first_timestamp,
        fragments=head.fragments - 1,
        gaps=head.gaps + sum(isinstance(one, PutGap) - isinstance(one, DeleteGap) for one in gap_writes),
        losses=head.losses + is_new,
        generation=above(head, [entry]),
        **{name: getattr(head, name) - getattr(entry, name) for name in _TOTALS},
    )
    event = JournalEvent(
        revision=head.revision,
        kind=JournalKind.RANGE_REMOVED,
        at=at,
        first_offset=entry.first_offset,
        next_offset=entry.next_offset,
        key=entry.key,
        detail=reason,
        by=by,
    )
    writes: list[Write] = [
        DeleteEntry(EntryVersion.of(entry)),
        PutTombstone(tombstone_of(entry, due_at)),
        # Its prior timestamp stays: a running timestamp that is too great costs a lookup a page, one that falls hides
        # entries.
        Relink(EntryVersion.of(following), entry.prior_offset, following.prior_timestamp, following.running_timestamp),
        *gap_writes,
    ]
    if before is not None:
        writes.append(RequireEntry(EntryVersion.of(before)))
    if is_new:
        writes.append(PutLoss(loss))
    return Change(head, event, tuple(writes))


def _gap_writes(
    before: FragmentEntry | None, entry: FragmentEntry, following: FragmentEntry, missing: Sequence[Missing]
) -> list[PutGap | ReplaceGap | DeleteGap]:
    """Join the gaps beside an entry with its offsets to one; before the first entry of a log there is no gap."""
    after = Gap(entry.next_offset, following.first_offset)
    writes: list[PutGap | ReplaceGap | DeleteGap] = []
    if after.first_offset < after.next_offset:
        writes.append(DeleteGap(after))
    if before is not None:
        joined = with_reason(Gap(before.next_offset, following.first_offset), missing)
        old = Gap(before.next_offset, entry.first_offset)
        writes.append(ReplaceGap(old, joined) if old.first_offset < old.next_offset else PutGap(joined))
    return writes
