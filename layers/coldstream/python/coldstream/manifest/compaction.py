"""Compaction: the changes that put one merged entry in the place of a group of entries.

Pure. The merged entry replaces the group's last entry, whose next offset, and so whose item, it shares. Then the others
are removed, the highest offsets first. In every state in between each offset is found in a correct entry: in one not
yet removed, which comes first in the log and lies wholly within the merged one, or else in the merged one. Removing the
lowest first would leave offsets before the remaining entries that a reader finds nowhere. If a compaction stops
half-way, the head tells what is left, and nothing else of the stream is compacted before that is finished.

Each change requires that the entries it removes or replaces still have the version that was read, and the first change
requires that of the group's first entry, too. That is enough: entries do not overlap, so any other entry between first
and last lies within the merged entry, which holds all of its chunks.

An object that no entry names any more gets a tombstone in the same transaction. It lives until the tombstone is due,
which is later than any URL given out for it expires.
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
    PutTombstone,
    Relink,
    ReplaceEntry,
    RequireEntry,
    Write,
    fitting,
)
from coldstream.manifest.entry import FragmentEntry, Head, JournalEvent, JournalKind, Tombstone
from coldstream.manifest.floors import check_generation, check_not_deleted
from coldstream.manifest.groups import Group
from coldstream.units import Offset, TimestampMs

FIRST_REMOVALS = (MAX_ITEMS - 5) // 2
"""Entries that the first change can remove, each with a tombstone, beside the head, the event, the merged entry, the
tombstone of the one that it replaces, and the group's first entry."""

MAX_REMOVALS = (MAX_ITEMS - 3) // 2
"""Entries that a later change can remove, each with a tombstone, beside the head, the event and the merged entry."""

MAX_SWEPT = MAX_ITEMS - 2
"""Tombstones that one change can delete, beside the head and the event."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A merged entry, and the entries within it, in order; the first `left` of those are still to be removed."""

    merged: FragmentEntry
    leftovers: Sequence[FragmentEntry]
    left: int

    @classmethod
    def of(cls, head: Head, log: Iterable[FragmentEntry]) -> Self | None:
        """Find the unfinished compaction of `head` in `log`, which begins at the merged entry's first offset.

        None if no compaction is unfinished. Raises LostRaceError if the log does not show it.
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
        """Return the highest leftovers, as many as fit into a transaction, the highest of all first."""
        count = fitting((self.leftovers[number] for number in range(self.left - 1, -1, -1)), limit)
        return [self.leftovers[number] for number in range(self.left - 1, self.left - 1 - count, -1)]

    def after(self, change: Change) -> Self | None:
        """Return the compaction after a change, None if it is finished. That saves reading it again."""
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
    """Plan the first change: replace the group's last entry by the merged one, and remove some of the others.

    `log` holds the entries from the group's first offset to its next offset. Raises LostRaceError if they are no longer
    the group, or another compaction is unfinished; StreamDeletedError; StaleGenerationError if the merged object may be
    collected by now; ValueError if `merged` does not follow from the group.
    """
    if head.compacting is not None:
        raise LostRaceError(f"a compaction up to {head.compacting} is to be finished first")
    check_not_deleted(head)
    check_generation(head, merged)
    if [_identity(entry) for entry in log] != [_identity(entry) for entry in group.entries]:
        raise LostRaceError(f"offsets {group.first_offset} to {group.next_offset - 1} are in other entries by now")
    # Commits may have relinked the first entry since the group was planned: the merged one must have the links of now.
    current = Group(tuple(log)).merged(
        key=merged.key,
        generation=merged.generation,
        object_bytes=merged.object_bytes,
        crc32=merged.crc32,
        frames=merged.frames,
    )
    unlinked = replace(current, prior_offset=merged.prior_offset, prior_timestamp=merged.prior_timestamp)
    if unlinked != merged or any(entry.key == merged.key for entry in log):
        raise ValueError(f"{merged.key} does not follow from the {len(log)} entries from {group.first_offset} on")
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
        event,
        (
            ReplaceEntry(EntryVersion.of(last), current),
            *_deletes(removed),
            *(() if is_finished else (RequireEntry(EntryVersion.of(log[0])),)),
            *_tombstones((last, *removed), due_at),
        ),
    )


def after_replacement(change: Change, log: Sequence[FragmentEntry]) -> Unfinished | None:
    """Return the compaction after the first change, planned on `log`; None if it is finished."""
    (replacement,) = change.of(ReplaceEntry)
    left = len(log) - 1 - len(change.of(DeleteEntry))
    return Unfinished(replacement.entry, log, left) if left else None


def plan_removal(head: Head, unfinished: Unfinished, *, at: TimestampMs, due_at: TimestampMs) -> Change:
    """Plan the next change: remove the highest leftovers.

    When the first leftover goes, the merged entry takes over its links: while both were there, commits before them kept
    only the links of the first up to date.
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
    event = JournalEvent(
        revision=head.revision,
        kind=JournalKind.COMPACTION_CONTINUED,
        at=at,
        first_offset=removed[-1].first_offset,
        next_offset=removed[0].next_offset,
        key=merged.key,
        detail=f"{len(removed)} removed, {unfinished.left - len(removed)} left",
    )
    return Change(head, event, (*merged_write, *_deletes(removed), *_tombstones(removed, due_at)))


def plan_sweep(
    head: Head, deleted: Sequence[Tombstone], *, at: TimestampMs, required: Sequence[FragmentEntry] = ()
) -> Change:
    """Plan deleting the tombstones, one to MAX_SWEPT, of objects that were deleted.

    Those whose objects are not deleted, because entries name them, are deleted with these entries `required`: that a
    read showed one proves nothing. Both together are MAX_SWEPT at most.
    """
    event = JournalEvent(
        revision=head.revision + 1,
        kind=JournalKind.OBJECTS_DELETED,
        at=at,
        first_offset=min(one.first_offset for one in deleted),
        next_offset=max(one.next_offset for one in deleted),
        detail=f"{len(deleted)} objects",
    )
    writes: list[Write] = [
        *map(DeleteTombstone, deleted),
        *(RequireEntry(EntryVersion.of(entry)) for entry in required),
    ]
    return Change(replace(head, revision=head.revision + 1), event, tuple(writes))


def _identity(entry: FragmentEntry) -> tuple[Offset, Offset, str]:
    return entry.first_offset, entry.next_offset, entry.key


def _without(head: Head, removed: Sequence[FragmentEntry]) -> Head:
    """Subtract entries from the totals of objects. The other totals count the content, which stays."""
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
