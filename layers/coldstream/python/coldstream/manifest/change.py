"""A change: what one transaction writes to a stream's manifest, and what must hold for it to happen.

A plan is made from reads, and reads may show half of what others are writing (`store.ports`). So each write carries the
version of its item that the plan was made on, and a plan that relies on an item without writing it *requires* that
version. The transaction is refused as a whole unless every item still has its version and the head its revision. As
every change raises the revision, a change that passes was planned on exactly the state that the head had.

Every change has one event, and the event's item holds the change (`manifest.recorded`): so the journal alone gives the
table back (`manifest.state`).

A store applies a change with one `match` over the kinds of `Write`. Each write is one item of the transaction, and no
two writes of a change are of the same item: DynamoDB refuses a transaction with two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, TypeVar

from coldstream.manifest.entry import (
    Erasure,
    FragmentEntry,
    Gap,
    Head,
    Hold,
    JournalEvent,
    Loss,
    Quarantine,
    Tombstone,
)
from coldstream.units import Offset, TimestampMs

MAX_ITEMS = 100
"""Items of one transaction: DynamoDB's limit."""

MAX_BYTES = 3_000_000
"""Bytes of the items of one transaction, as `entry_bytes` counts them; DynamoDB takes 4 MB."""

_ENTRY_BYTES = 3072
_POINT_BYTES = 48


@dataclass(frozen=True, slots=True)
class EntryVersion:
    """An entry's item as it was read: everything of it that can change under one `next_offset`.

    Compaction, erasure, repair and another storage class put another object there, and commits give it other links.
    """

    next_offset: Offset
    key: str
    prior_offset: Offset | None
    prior_timestamp: TimestampMs | None

    @classmethod
    def of(cls, entry: FragmentEntry) -> Self:
        """Return the version of an entry."""
        return cls(entry.next_offset, entry.key, entry.prior_offset, entry.prior_timestamp)


@dataclass(frozen=True, slots=True)
class PutEntry:
    """Add an entry, which must not exist."""

    entry: FragmentEntry


@dataclass(frozen=True, slots=True)
class ReplaceEntry:
    """Put an entry in the place of the one of the version `before`."""

    before: EntryVersion
    entry: FragmentEntry

    def __post_init__(self) -> None:
        _check_same_item(self.before.next_offset, self.entry.next_offset)


@dataclass(frozen=True, slots=True)
class Relink:
    """Give the entry of the version `before` new links, and leave the rest of it."""

    before: EntryVersion
    prior_offset: Offset | None
    prior_timestamp: TimestampMs | None
    running_timestamp: TimestampMs

    @property
    def next_offset(self) -> Offset:
        """The entry's next offset."""
        return self.before.next_offset


@dataclass(frozen=True, slots=True)
class DeleteEntry:
    """Delete the entry of the version `before`."""

    before: EntryVersion


@dataclass(frozen=True, slots=True)
class RequireEntry:
    """Require that an entry has this version."""

    version: EntryVersion


@dataclass(frozen=True, slots=True)
class PutGap:
    """Add a gap, which must not exist."""

    gap: Gap


@dataclass(frozen=True, slots=True)
class ReplaceGap:
    """Put a gap in the place of one that begins and ends as `before`.

    The reason of `before` does not count: that of `gap` follows from everything that is known to be missing.
    """

    before: Gap
    gap: Gap

    def __post_init__(self) -> None:
        _check_same_item(self.before.first_offset, self.gap.first_offset)


@dataclass(frozen=True, slots=True)
class DeleteGap:
    """Delete the gap that begins and ends as `before`, whatever its reason."""

    before: Gap


@dataclass(frozen=True, slots=True)
class RequireGap:
    """Require exactly this gap, with this reason."""

    gap: Gap


@dataclass(frozen=True, slots=True)
class PutLoss:
    """Add a loss, which must not exist."""

    loss: Loss


@dataclass(frozen=True, slots=True)
class PutQuarantine:
    """Add a quarantine, which must not exist, or if it is of a further copy, replace that of one copy fewer."""

    quarantine: Quarantine


@dataclass(frozen=True, slots=True)
class DeleteLoss:
    """Delete a loss, which must exist."""

    loss: Loss


@dataclass(frozen=True, slots=True)
class DeleteQuarantine:
    """Delete the quarantine of the key and the copies of `before`."""

    before: Quarantine


@dataclass(frozen=True, slots=True)
class PutHold:
    """Add a hold, whose id must be new."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class DeleteHold:
    """Delete a hold, which must exist."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class PutErasure:
    """Add an erasure, whose id must be new, or put it in the place of the one that is as far as `before`."""

    before: Erasure | None
    erasure: Erasure


@dataclass(frozen=True, slots=True)
class PutTombstone:
    """Write a tombstone, whether or not it exists."""

    tombstone: Tombstone


@dataclass(frozen=True, slots=True)
class DeleteTombstone:
    """Delete a tombstone, which must exist, and not take other versions of its object by now."""

    tombstone: Tombstone


Write = (
    PutEntry
    | ReplaceEntry
    | Relink
    | DeleteEntry
    | RequireEntry
    | PutGap
    | ReplaceGap
    | DeleteGap
    | RequireGap
    | PutLoss
    | DeleteLoss
    | PutQuarantine
    | DeleteQuarantine
    | PutHold
    | DeleteHold
    | PutErasure
    | PutTombstone
    | DeleteTombstone
)

_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class Change:
    """One transaction on a stream: it replaces the head of the revision `head.revision - 1`, and does all writes.

    `event` goes into the journal, with the change itself. At revision 1 there must be no head; the store then registers
    the stream as well.
    """

    head: Head
    event: JournalEvent
    writes: tuple[Write, ...] = ()

    def __post_init__(self) -> None:
        if self.event.revision != self.head.revision:
            raise ValueError(f"a change to revision {self.head.revision} with the event of {self.event.revision}")

    @property
    def items(self) -> int:
        """Items of the transaction, with head, event and, at revision 1, the registration; at most MAX_ITEMS."""
        return len(self.writes) + (3 if self.head.revision == 1 else 2)

    @property
    def new_entry(self) -> FragmentEntry | None:
        """The entry that the change adds, None if it adds none."""
        return next((write.entry for write in self.of(PutEntry)), None)

    def of(self, kind: type[_Kind]) -> tuple[_Kind, ...]:
        """Return the writes of one kind, in order."""
        return tuple(write for write in self.writes if isinstance(write, kind))


def entry_bytes(entry: FragmentEntry) -> int:
    """Return an upper bound of the size of an entry's item and the tombstone of its object."""
    return _ENTRY_BYTES + _POINT_BYTES * len(entry.sparse.points)


def fitting(entries: Iterable[FragmentEntry], limit: int) -> int:
    """Count the first entries that fit into one transaction, at most `limit`. One always fits."""
    count = size_bytes = 0
    for entry in entries:
        size_bytes += entry_bytes(entry)
        if count == limit or (count > 0 and size_bytes > MAX_BYTES):
            break
        count += 1
    return count


def _check_same_item(before: Offset, after: Offset) -> None:
    if before != after:
        raise ValueError(f"the item at {before} cannot be replaced by one at {after}")
