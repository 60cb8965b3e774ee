"""Erasure of messages: objects without their bytes take the place of those with them, fragment by fragment.

Offsets, chunks and timestamps stay, so the log does. The erased object is another one at another key. The tombstone of
the old one is due after a short grace, and the head's generation rises above it: nobody commits those bytes again.
The erasure's item goes on with each fragment, in the same transaction, so an erasure that stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coldstream.errors import LostRaceError
from coldstream.manifest.change import MAX_ITEMS, Change, EntryVersion, PutErasure, PutTombstone, ReplaceEntry
from coldstream.manifest.entry import (
    Erasure,
    ErasureState,
    FragmentEntry,
    Head,
    Hold,
    JournalEvent,
    JournalKind,
    Tombstone,
)
from coldstream.manifest.floors import above, check_generation
from coldstream.manifest.holding import check_not_held
from coldstream.manifest.removal import tombstone_of
from coldstream.units import TimestampMs

MAX_TOMBSTONES = MAX_ITEMS - 2
"""Tombstones of one change, beside the head and the event."""


def plan_erasure_begin(head: Head, erasure: Erasure, holds: Sequence[Hold]) -> Change:
    """Plan the record of a new erasure, which runs. Raises HeldError, and LostRaceError if not all holds show."""
    # What lies before the log is removed already: nothing of it is rewritten.
    first_offset = max(erasure.first_offset, head.first_offset or erasure.first_offset)
    check_not_held(head, holds, first_offset, erasure.next_offset)
    head = replace(head, revision=head.revision + 1, erasures=head.erasures + 1)
    return Change(
        head, _event(head, erasure, erasure.at, f"{erasure.id} begun: {erasure.reason}"), _writes(None, erasure)
    )


def plan_erased_fragment(  # noqa: PLR0917  two pairs of before and after
    head: Head,
    before: FragmentEntry,
    after: FragmentEntry,
    erasure_before: Erasure,
    erasure_after: Erasure,
    holds: Sequence[Hold],
    *,
    at: TimestampMs,
    due_at: TimestampMs,
) -> Change:
    """Plan putting an erased entry in the place of `before`, and how far the erasure is by then.

    `after` gets the links of `before`, as it was read. Raises HeldError if a hold protects any of the fragment, for its
    object goes; StaleGenerationError; LostRaceError if a compaction is to be finished first, or not all holds show;
    ValueError if `after` is not the same fragment.
    """
    if head.compacting is not None:
        raise LostRaceError(f"a compaction up to {head.compacting} is to be finished first")
    check_not_held(head, holds, before.first_offset, before.next_offset)
    check_generation(head, after)
    linked = replace(after, prior_offset=before.prior_offset, prior_timestamp=before.prior_timestamp)
    if not after.erased or after.key == before.key or _content(after) != _content(before):
        raise ValueError(f"{after.key} is not {before.key} without some of its messages")
    head = replace(
        head,
        revision=head.revision + 1,
        data_bytes=head.data_bytes + after.data_bytes - before.data_bytes,
        object_bytes=head.object_bytes + after.object_bytes - before.object_bytes,
        generation=above(head, [before]),
    )
    event = JournalEvent(
        revision=head.revision,
        kind=JournalKind.MESSAGES_ERASED,
        at=at,
        first_offset=before.first_offset,
        next_offset=before.next_offset,
        key=after.key,
        detail=f"{erasure_after.id}: {erasure_after.messages - erasure_before.messages} messages",
        by=erasure_after.by,
    )
    writes = (
        ReplaceEntry(EntryVersion.of(before), linked),
        PutTombstone(tombstone_of(before, due_at, all_versions=True)),
        PutErasure(erasure_before, erasure_after),
    )
    return Change(head, event, writes)


def plan_erasure_done(head: Head, before: Erasure, after: Erasure, at: TimestampMs) -> Change:
    """Plan the end of an erasure."""
    if after.state is not ErasureState.DONE:
        raise ValueError(f"the erasure {after.id} is {after.state}")
    head = replace(head, revision=head.revision + 1)
    return Change(head, _event(head, after, at, f"{after.id} done: {after.messages} messages"), _writes(before, after))


def plan_erasure_progress(head: Head, before: Erasure, after: Erasure, at: TimestampMs) -> Change:
    """Plan how far an erasure is, past fragments in which there was nothing to erase."""
    head = replace(head, revision=head.revision + 1)
    return Change(head, _event(head, after, at, f"{after.id} reached {after.reached}"), _writes(before, after))


def plan_all_versions(head: Head, erasure: Erasure, tombstones: Sequence[Tombstone], at: TimestampMs) -> Change:
    """Plan that all versions go of objects that await deletion, one to MAX_TOMBSTONES of them.

    They were replaced before the erasure, or beside it, and have its messages still.
    """
    head = replace(head, revision=head.revision + 1)
    detail = f"{erasure.id}: all versions of {len(tombstones)} objects"
    writes = tuple(PutTombstone(replace(one, all_versions=True)) for one in tombstones)
    return Change(head, _event(head, erasure, at, detail), writes)


def _event(head: Head, erasure: Erasure, at: TimestampMs, detail: str) -> JournalEvent:
    kind = JournalKind.MESSAGES_ERASED
    return JournalEvent(
        head.revision, kind, at, erasure.first_offset, erasure.next_offset, detail=detail, by=erasure.by
    )


def _writes(before: Erasure | None, after: Erasure) -> tuple[PutErasure]:
    return (PutErasure(before, after),)


def _content(entry: FragmentEntry) -> tuple[object, ...]:
    """What erasure leaves as it is."""
    return (
        entry.first_offset,
        entry.next_offset,
        entry.first_timestamp,
        entry.last_timestamp,
        entry.greatest_timestamp,
        entry.epoch,
        entry.first_epoch,
        entry.chunks,
        entry.records,
        entry.messages,
        entry.segment_offset,
    )
