"""The sums over a log that others change meanwhile.

Pages of a walk are read at different moments, so their sum is that of no moment. But old entries rarely change. So the
walk adds up only entries below a *boundary*: nothing below it was touched by the newest hundred changes when the walk
began. If nothing below it has been touched when the walk ends, its sum is still right, and the few entries past the
boundary are read as of one moment, with the head. Otherwise the totals are left for the next pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace

from coldstream.manifest.entry import FragmentEntry, Head, JournalEvent, JournalKind
from coldstream.units import MAX_OFFSET, Offset

RECENT_CHANGES = 100
"""Changes that may still show by half: far more than are ever under way at a time."""

_OF_ENTRIES = {
    JournalKind.FRAGMENT_COMMITTED,
    JournalKind.LINKS_RAISED,
    JournalKind.FRAGMENTS_COMPACTED,
    JournalKind.COMPACTION_CONTINUED,
    JournalKind.FRAGMENTS_REMOVED,
    JournalKind.RANGE_REMOVED,
    JournalKind.MESSAGES_ERASED,
    JournalKind.STORAGE_CLASS_CHANGED,
    JournalKind.ENTRY_REPAIRED,
    JournalKind.FRAGMENTS_REBUILT,
}
"""Kinds of changes that write entries, of the offsets that their events name, or links after those."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over entries, and the holes between them. Their names are those of the head's totals."""

    fragments: int = 0
    chunks: int = 0
    records: int = 0
    messages: int = 0
    data_bytes: int = 0
    object_bytes: int = 0
    gaps: int = 0

    def plus(self, entry: FragmentEntry, before: FragmentEntry | None) -> Sums:
        """Return the sums with an entry more, whose nearest entry before it is `before`."""
        is_hole = before is not None and before.next_offset < entry.first_offset
        return Sums(
            self.fragments + 1,
            self.chunks + entry.chunks,
            self.records + entry.records,
            self.messages + entry.messages,
            self.data_bytes + entry.data_bytes,
            self.object_bytes + entry.object_bytes,
            self.gaps + is_hole,
        )

    def __add__(self, other: Sums) -> Sums:
        """Return the sums over both, if these are two parts of one log."""
        return Sums(*(one + another for one, another in zip(astuple(self), astuple(other), strict=True)))

    @classmethod
    def of_head(cls, head: Head) -> Sums:
        """Return the totals of a head."""
        return cls(
            head.fragments, head.chunks, head.records, head.messages, head.data_bytes, head.object_bytes, head.gaps
        )

    def written_to(self, head: Head) -> Head:
        """Return the head with these totals."""
        return replace(
            head,
            fragments=self.fragments,
            chunks=self.chunks,
            records=self.records,
            messages=self.messages,
            data_bytes=self.data_bytes,
            object_bytes=self.object_bytes,
            gaps=self.gaps,
        )


@dataclass(frozen=True, slots=True)
class Account:
    """The sums over all entries that end at or before `boundary`, as of `revision`."""

    revision: int
    boundary: Offset
    sums: Sums = Sums()


def boundary_of(head: Head, recent: Iterable[JournalEvent]) -> Offset:
    """Return the offset below which none of these changes touched an entry that still exists."""
    touched = (event.first_offset for event in recent if _touches(head, event))
    return min((Offset(first) for first in touched if first is not None), default=Offset(MAX_OFFSET))


def shows_all(events: Sequence[JournalEvent], after: int, head: Head) -> bool:
    """Tell whether these are all events after a revision up to the head's: an event may show after its head.

    What an earlier release began has no event for some changes; those are long over.
    """
    if not head.journal_from:
        return True
    revisions = [event.revision for event in events if event.revision <= head.revision]
    return revisions == list(range(after + 1, head.revision + 1))


def _touches(head: Head, event: JournalEvent) -> bool:
    """Tell whether a change may have written an entry of the log. What removed a prefix wrote only what is gone."""
    if event.kind not in _OF_ENTRIES or event.first_offset is None or event.next_offset is None:
        return False
    return head.first_offset is None or event.next_offset > head.first_offset
