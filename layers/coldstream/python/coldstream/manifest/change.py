"""Changes: what one transaction writes to a stream's manifest, and what must be there for it to happen.

A plan is made of reads, and reads may show half of what others are writing (`store.ports`). So a change carries what it
was planned on, and is refused as a whole where that is not so: the head's revision, and of each other item the version
that was read, also of those that it leaves as they are. As every change raises the revision, whatever passes those
conditions was planned on the state that the head had.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from coldstream.manifest.entry import FragmentEntry, Gap, Head, JournalEvent, Missing, Tombstone
from coldstream.units import Offset, TimestampMs

MAX_ITEMS = 100
"""Of one transaction: DynamoDB's limit."""

MAX_BYTES = 3_000_000
"""Of the items of one transaction, as `entry_bytes` counts them; DynamoDB takes 4 MB."""

_ENTRY_BYTES = 3072
_POINT_BYTES = 48


@dataclass(frozen=True, slots=True)
class EntryVersion:
    """An entry's item as it was read: of all that can change under `next_offset`, what it was.

    Compaction puts another object there, and commits give it other links; nothing else of it ever changes.
    """

    next_offset: Offset
    key: str
    prior_offset: Offset | None
    prior_timestamp: TimestampMs | None

    @classmethod
    def of(cls, entry: FragmentEntry) -> Self:
        """Take the version of an entry."""
        return cls(entry.next_offset, entry.key, entry.prior_offset, entry.prior_timestamp)


@dataclass(frozen=True, slots=True)
class Relink:
    """New links for the entry of the version `before`; what else it holds stays."""

    before: EntryVersion
    prior_offset: Offset | None
    prior_timestamp: TimestampMs | None
    running_timestamp: TimestampMs

    @property
    def next_offset(self) -> Offset:
        """The entry's."""
        return self.before.next_offset


@dataclass(frozen=True, slots=True)
class GapChange:
    """A gap item that is put where there is none, replaced, or deleted, as `before` or `after` is None or neither is.

    Where both are the same the item stays, and has to be exactly that. Else its next offset has to be that of `before`:
    the reason is made anew of all that is missing.
    """

    before: Gap | None
    after: Gap | None

    def __post_init__(self) -> None:
        offsets = {gap.first_offset for gap in (self.before, self.after) if gap is not None}
        if len(offsets) != 1:
            raise ValueError("a change of a gap is of one item")

    @property
    def first_offset(self) -> Offset:
        """Of the gap."""
        gap = self.before or self.after
        assert gap is not None
        return gap.first_offset


@dataclass(frozen=True, slots=True)
class Change:
    """One transaction on a stream: all of it happens, and only if the head's revision is `head.revision - 1`.

    `put_entry` adds an entry where there is none, `replace_entry` takes the place of that of the version `replaces`,
    `delete_entries` are those that go, `same_entries` those that the plan relied on. Each has to be there in its
    version. `put_missing` is new, but for a quarantine that takes the place of that of one copy fewer.
    """

    head: Head
    event: JournalEvent | None = None
    put_entry: FragmentEntry | None = None
    relinks: tuple[Relink, ...] = ()
    gaps: tuple[GapChange, ...] = ()
    put_missing: Missing | None = None
    replace_entry: FragmentEntry | None = None
    replaces: EntryVersion | None = None
    delete_entries: tuple[EntryVersion, ...] = ()
    same_entries: tuple[EntryVersion, ...] = ()
    put_tombstones: tuple[Tombstone, ...] = ()
    delete_tombstones: tuple[Tombstone, ...] = ()

    def __post_init__(self) -> None:
        if (self.replace_entry is None) != (self.replaces is None):
            raise ValueError("an entry is replaced in the version that was read")

    @property
    def items(self) -> int:
        """Items of the transaction, with the one that registers a new stream; at most MAX_ITEMS."""
        always = 2 if self.head.revision == 1 else 1
        single = sum(one is not None for one in (self.event, self.put_entry, self.put_missing, self.replace_entry))
        entries = len(self.relinks) + len(self.delete_entries) + len(self.same_entries)
        return always + single + len(self.gaps) + entries + len(self.put_tombstones) + len(self.delete_tombstones)


def entry_bytes(entry: FragmentEntry) -> int:
    """Return what an entry's item takes, at most, with the tombstone of its object."""
    return _ENTRY_BYTES + _POINT_BYTES * len(entry.sparse.points)


def fitting(entries: Iterable[FragmentEntry], limit: int) -> int:
    """Count the first entries that fit into one transaction, `limit` at most; one always does."""
    count = size_bytes = 0
    for entry in entries:
        size_bytes += entry_bytes(entry)
        if count == limit or (count > 0 and size_bytes > MAX_BYTES):
            break
        count += 1
    return count
