"""Removal of the oldest entries of a log, for good: by retention, truncation, or the purge of a deleted stream.

A removal of thousands of entries takes many changes. Each removes a prefix of the log, whole entries only, and raises
the floor to the end of what it removed: so the log is whole after each, only shorter, and nothing below the floor ever
comes back. Removed entries get tombstones, and the head's generation rises above theirs (`manifest.floors`).

The first entry after a removal has no prior offset. It keeps its prior timestamp, so the running timestamps of the log
stay as they were, and so does the index by time. The head keeps the greatest timestamp of what was removed for entries
that come late, or to an empty log: without it their running timestamps would depend on when they came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from coldstream.errors import LostRaceError
from coldstream.manifest.change import (
    MAX_ITEMS,
    Change,
    DeleteEntry,
    DeleteGap,
    EntryVersion,
    PutTombstone,
    Relink,
    Write,
    fitting,
)
from coldstream.manifest.entry import FragmentEntry, Gap, Head, Hold, JournalEvent, JournalKind, Tombstone
from coldstream.manifest.floors import above
from coldstream.manifest.holding import check_no_holds, check_not_held
from coldstream.units import TimestampMs

MAX_PREFIX = (MAX_ITEMS - 3) // 3
"""Entries that one change can remove, each with a tombstone and the gap after it, beside the head, the event and the
entry that follows. `change.fitting` says how many of them it takes by their size."""


def plan_prefix_removal(
    head: Head,
    removed: Sequence[FragmentEntry],
    following: FragmentEntry | None,
    gaps: Sequence[Gap],
    holds: Sequence[Hold],
    *,
    at: TimestampMs,
    due_at: TimestampMs,
    why: str,
    by: str | None,
) -> Change:
    """Plan removing the first entries of the log, at most MAX_PREFIX, and the gaps after them.

    `following` is the entry after them, None if they are all that there is. `gaps` are those after the first removed
    entry and before `following`, `holds` all of the stream. On a deleted stream this begins the purge.

    Raises HeldError if a hold protects any of the offsets, or any at all of a deleted stream, LostRaceError if a
    compaction is to be finished first, or if the reads show half of a change.
    """
    if not removed or len(removed) > MAX_PREFIX or fitting(removed, MAX_PREFIX) < len(removed):
        raise ValueError(f"a change cannot remove {len(removed)} entries")
    _check_prefix(head, removed, following)
    if head.is_deleted:
        # Of a purge, whose end is final, a hold on any offset holds up all: also on what is archived nowhere yet.
        check_no_holds(head, holds)
    first, last = removed[0], removed[-1]
    check_not_held(head, holds, first.first_offset, last.next_offset)
    holes = list(_holes(removed, following))
    known = {gap.first_offset: gap.next_offset for gap in gaps}
    if any(known.get(hole.first_offset) != hole.next_offset for hole in holes):
        raise LostRaceError(f"the gaps from offset {first.next_offset} on show half of a change")
    after = _without(head, removed, following, gaps=len(holes), at=at)
    event = JournalEvent(
        revision=after.revision,
        kind=JournalKind.FRAGMENTS_REMOVED,
        at=at,
        first_offset=first.first_offset,
        next_offset=last.next_offset,
        detail=why,
        by=by,
    )
    writes: list[Write] = [DeleteEntry(EntryVersion.of(entry)) for entry in removed]
    writes += [DeleteGap(hole) for hole in holes]
    if following is not None:
        links = None, following.prior_timestamp, following.running_timestamp
        writes.append(Relink(EntryVersion.of(following), *links))
    writes += [PutTombstone(tombstone_of(entry, due_at)) for entry in removed]
    return Change(after, event, tuple(writes))


def tombstone_of(entry: FragmentEntry, due_at: TimestampMs, *, all_versions: bool = False) -> Tombstone:
    """Return the tombstone of an entry's object, or of all versions of its key."""
    return Tombstone(entry.key, due_at, entry.first_offset, entry.next_offset, entry.object_bytes, all_versions)


def _check_prefix(head: Head, removed: Sequence[FragmentEntry], following: FragmentEntry | None) -> None:
    """Raise LostRaceError unless these are the first entries of a log without entries that overlap."""
    if head.compacting is not None:
        # Its leftovers lie within the merged entry: to remove some of them would leave a log without an order.
        raise LostRaceError(f"a compaction up to {head.compacting} is to be finished first")
    if removed[0].first_offset != head.first_offset or removed[0].prior_offset is not None:
        raise LostRaceError(f"offset {removed[0].first_offset} is not where the log begins")
    chain = [*removed, *(() if following is None else (following,))]
    for before, entry in pairwise(chain):
        if entry.prior_offset != before.next_offset or entry.first_offset < before.next_offset:
            raise LostRaceError(f"half of a change shows between {before.next_offset} and {entry.first_offset}")
    if following is None and removed[-1].next_offset != head.next_offset:
        raise LostRaceError(f"the tail is {head.next_offset}, and no entry past {removed[-1].next_offset} shows")


def _holes(removed: Sequence[FragmentEntry], following: FragmentEntry | None) -> Iterator[Gap]:
    for before, entry in pairwise([*removed, *(() if following is None else (following,))]):
        if before.next_offset < entry.first_offset:
            yield Gap(before.next_offset, entry.first_offset)


def _without(
    head: Head, removed: Sequence[FragmentEntry], following: FragmentEntry | None, *, gaps: int, at: TimestampMs
) -> Head:
    began_at = head.purge_began_at
    if head.is_deleted and began_at is None:
        began_at = at
    return replace(
        head,
        revision=head.revision + 1,
        first_offset=None if following is None else following.first_offset,
        first_timestamp=None if following is None else following.first_timestamp,
        fragments=head.fragments - len(removed),
        chunks=head.chunks - sum(entry.chunks for entry in removed),
        records=head.records - sum(entry.records for entry in removed),
        messages=head.messages - sum(entry.messages for entry in removed),
        data_bytes=head.data_bytes - sum(entry.data_bytes for entry in removed),
        object_bytes=head.object_bytes - sum(entry.object_bytes for entry in removed),
        gaps=head.gaps - gaps,
        floor=removed[-1].next_offset,
        floor_timestamp=removed[-1].running_timestamp,
        generation=above(head, removed),
        purge_began_at=began_at,
    )
