"""Fences: from now on, no object below a generation is committed.

Before an object that no entry names is deleted, a fence must make sure that none ever will: its creator may only be
stalled. A tombstone in the same change leaves the deletion to the sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coldstream.manifest.change import MAX_ITEMS, Change, EntryVersion, PutTombstone, RequireEntry
from coldstream.manifest.entry import FragmentEntry, Head, JournalEvent, JournalKind, Tombstone
from coldstream.units import TimestampMs

MAX_DISCARDED = MAX_ITEMS - 2
"""Tombstones and required entries of one change, beside the head and the event."""


def plan_fence(head: Head, generation: int, at: TimestampMs) -> Change:
    """Plan raising the least generation that may be committed; it never falls.

    Once written, it also proves that no commit planned before it will pass, even if the generation was high enough.
    """
    head = replace(head, revision=head.revision + 1, generation=max(head.generation, generation))
    return Change(head, JournalEvent(head.revision, JournalKind.FENCE_RAISED, at, None, None, detail=str(generation)))


def plan_discard(
    head: Head,
    tombstones: Sequence[Tombstone],
    generation: int,
    at: TimestampMs,
    *,
    required: Sequence[FragmentEntry] = (),
) -> Change:
    """Plan tombstones, at least one, for objects that were never committed and now never can be.

    `generation` is above that of every one of them. `required` are entries that prove, by holding the offsets, that no
    entry names these objects.
    """
    head = replace(head, revision=head.revision + 1, generation=max(head.generation, generation))
    event = JournalEvent(
        revision=head.revision,
        kind=JournalKind.FENCE_RAISED,
        at=at,
        first_offset=min(one.first_offset for one in tombstones),
        next_offset=max(one.next_offset for one in tombstones),
        key=tombstones[0].key if len(tombstones) == 1 else None,
        detail=f"{generation}, {len(tombstones)} discarded",
    )
    requires = (RequireEntry(EntryVersion.of(entry)) for entry in required)
    return Change(head, event, (*map(PutTombstone, tombstones), *requires))
