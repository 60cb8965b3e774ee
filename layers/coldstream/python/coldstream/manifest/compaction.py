"""Compaction: the transactions that put one merged entry in the place of a group of entries.

Pure. The merged entry's item takes the place of the group's last one, whose next offset it has; the others are then
removed, the one of the highest offsets first. On the way every offset is found in an entry that is right: in one of
those not yet removed, which come first in the log and are wholly within the merged one, else in the merged one. Where
it stops half-way, the head tells what is left to do, and nothing else of the stream is compacted before that is done.

Each change is refused unless what it removes or replaces is still there in the version that was read, and, in the first
one, the group's first entry. No more has to hold: as entries do not overlap, whatever else is between those two lies
within the merged entry, which holds all of its chunks; it is removed as it is found.

Objects that no entry names any more get a tombstone in the same transaction, and live on until it is due: longer than
any URL that was given for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from coldstream.errors import LostRaceError
from coldstream.manifest.change import (
    MAX_ITEMS,
    Change,
    DeleteEntry,
    DeleteTombstone,
    EntryVersion,
    PutEvent,
    PutTombstone,
    Relink,
    ReplaceEntry,
    RequireEntry,
    Write,
    fitting,
)
from coldstream.manifest.entry import FragmentEntry, Head, JournalEvent, JournalKind, Tombstone
from coldstream.manifest.groups import Group
from coldstream.units import Offset, TimestampMs

GRACE_MS = 8 * 24 * 3600 * 1000
"""From the tombstone to the deletion of the object: a presigned URL is good for seven days at most."""

FIRST_REMOVALS = (MAX_ITEMS - 5) // 2
"""Entries that the first change can remove, a tombstone each, beside head, event, merged entry and its tombstone, and
the group's first entry."""

MAX_REMOVALS = (MAX_ITEMS - 2) // 2
"""Entries that a change after it can remove, a tombstone each, beside the head and the merged entry."""

MAX_SWEPT = MAX_ITEMS - 1
"""Tombstones that one change can take away, beside the head."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A merged entry, and those within it, in order, of which the first `left` are still to be removed."""

    merged: FragmentEntry
    leftovers: Sequence[FragmentEntry]
    left: int

    @classmethod
    def of(cls, head: Head, log: Iterable[FragmentEntry]) -> Self | None:
        """Find what `head.compacting` tells of in the log, from the first offset of that entry on; None without any.

        Raises LostRaceError where the log shows something else.
        """
        if head.compacting is None:
            return None
        leftovers: list[FragmentEntry] = []
        for entry in log:
            if entry.next_offset == head.compacting:
                if leftovers and leftovers[0].first_offset == entry.first_offset:
                    return cls(entry, leftovers, len(leftovers))
                break
            leftovers.append(entry)
        raise LostRaceError(f"no compaction up to {head.compacting} is under way by now")

    def highest(self, limit: int) -> list[FragmentEntry]:
        """Take the highest leftovers, as many as fit into a transaction, the highest of all first."""
        count = fitting((self.leftovers[number] for number in range(self.left - 1, -1, -1)), limit)
        return [self.leftovers[number] for number in range(self.left - 1, self.left - 1 - count, -1)]

    def after(self, change: Change) -> Self | None:
        """Return what a change leaves to do, None when that is nothing: it need not be read."""
        left = self.left - len(change.of(DeleteEntry))
        return replace(self, left=left) if left else None


def plan_replacement(
    head: Head,
    log: Sequence[FragmentEntry],
    group: Group,
    merged: FragmentEntry,
    *,
    at: TimestampMs,
    due_at: TimestampMs,
) -> Change:
    """Plan the first change: the merged entry in the place of the group's last one, and some of the others removed.

    `log` is what the log holds from the group's first offset to its next offset. Raises LostRaceError where that is not
    the group any more, or another compaction is not finished; ValueError where `merged` is not what becomes of the
    group.
    """
    if head.compacting is not None:
        raise LostRaceError(f"a compaction up to {head.compacting} is to be finished first")
    if [_identity(entry) for entry in log] != [_identity(entry) for entry in group.entries]:
        raise LostRaceError(f"offsets {group.first_offset} to {group.next_offset - 1} are in other entries by now")
    # Commits may have given the first one other links since the group was planned.
    current = Group(tuple(log)).merged(
        key=merged.key,
        generation=merged.generation,
        object_bytes=merged.object_bytes,
        crc32=merged.crc32,
        frames=merged.frames,
    )
    unlinked = replace(current, prior_offset=merged.prior_offset, prior_timestamp=merged.prior_timestamp)
    if unlinked != merged or any(entry.key == merged.key for entry in log):
        raise ValueError(f"{merged.key} is not what becomes of {len(log)} entries from {group.first_offset} on")
    last = log[-1]
    unfinished = Unfinished(current, log, len(log) - 1)
    removed = unfinished.highest(FIRST_REMOVALS)
    is_finished = len(removed) == unfinished.left
    head = _without(head, [*removed, last])
    event = JournalEvent(
        revision=head.revision,
        kind=JournalKind.FRAGMENTS_COMPACTED,
        at=at,
        first_offset=merged.first_offset,
        next_offset=merged.next_offset,
        key=merged.key,
        detail=f"{len(log)} to 1, {merged.encoding}",
    )
    return Change(
        replace(
            head,
            fragments=head.fragments + 1,
            object_bytes=head.object_bytes + merged.object_bytes,
            compacting=None if is_finished else merged.next_offset,
        ),
        (
            PutEvent(event),
            ReplaceEntry(EntryVersion.of(last), current),
            *_deletes(removed),
            *(() if is_finished else (RequireEntry(EntryVersion.of(log[0])),)),
            *_tombstones((last, *removed), due_at),
        ),
    )


def after_replacement(change: Change, log: Sequence[FragmentEntry]) -> Unfinished | None:
    """Return what the first change leaves to do in the `log` that it was planned on, None when that is nothing."""
    (replacement,) = change.of(ReplaceEntry)
    left = len(log) - 1 - len(change.of(DeleteEntry))
    return Unfinished(replacement.entry, log, left) if left else None


def plan_removal(head: Head, unfinished: Unfinished, *, due_at: TimestampMs) -> Change:
    """Plan the next change: the highest of the leftovers removed.

    With the first of the leftovers its links go over to the merged entry: commits before both have kept only those up
    to date.
    """
    merged, first = unfinished.merged, unfinished.leftovers[0]
    removed = unfinished.highest(MAX_REMOVALS)
    head = _without(head, removed)
    merged_write: tuple[Write, ...] = ()
    if len(removed) == unfinished.left:
        head = replace(head, compacting=None)
        linked = replace(merged, prior_offset=first.prior_offset, prior_timestamp=first.prior_timestamp)
        version = EntryVersion.of(merged)
        if linked == merged:
            merged_write = (RequireEntry(version),)
        else:
            links = linked.prior_offset, linked.prior_timestamp, linked.running_timestamp
            merged_write = (Relink(version, *links),)
    return Change(head, (*merged_write, *_deletes(removed), *_tombstones(removed, due_at)))


def plan_sweep(head: Head, deleted: Sequence[Tombstone]) -> Change:
    """Plan taking away the tombstones, MAX_SWEPT at most, of objects that are deleted."""
    return Change(replace(head, revision=head.revision + 1), tuple(map(DeleteTombstone, deleted)))


def _identity(entry: FragmentEntry) -> tuple[Offset, Offset, str]:
    return entry.first_offset, entry.next_offset, entry.key


def _without(head: Head, removed: Sequence[FragmentEntry]) -> Head:
    """Count entries out of the totals that are of objects; the others are of the content, which stays."""
    return replace(
        head,
        revision=head.revision + 1,
        fragments=head.fragments - len(removed),
        object_bytes=head.object_bytes - sum(entry.object_bytes for entry in removed),
    )


def _deletes(entries: Iterable[FragmentEntry]) -> Iterator[DeleteEntry]:
    return (DeleteEntry(EntryVersion.of(entry)) for entry in entries)


def _tombstones(entries: Iterable[FragmentEntry], due_at: TimestampMs) -> Iterator[PutTombstone]:
    for entry in entries:
        yield PutTombstone(Tombstone(entry.key, due_at, entry.first_offset, entry.next_offset, entry.object_bytes))
