"""The items of one incarnation in the in-memory table, and how a change applies to them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar, assert_never

from coldstream.errors import LostRaceError
from coldstream.manifest.change import (
    Change,
    DeleteEntry,
    DeleteGap,
    DeleteTombstone,
    EntryVersion,
    PutEntry,
    PutEvent,
    PutGap,
    PutLoss,
    PutQuarantine,
    PutTombstone,
    Relink,
    ReplaceEntry,
    ReplaceGap,
    RequireEntry,
    RequireGap,
    Write,
)
from coldstream.manifest.entry import FragmentEntry, Gap, Head, JournalEvent, Missing, Quarantine, Tombstone
from coldstream.store.memory.visibility import Items
from coldstream.store.sortkeys import LOG_HEAD, event_key, gap_key, log_key, missing_key, tombstone_key
from coldstream.units import Offset

_Key = TypeVar("_Key")
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Partition:
    """The items of one incarnation, never changed in place: a reader that holds one keeps what it read.

    Entries are keyed by next offset, gaps by first offset, events by revision, and the rest by sort key.
    """

    head: Head | None = None
    entries: dict[Offset, FragmentEntry] = field(default_factory=dict)
    gaps: dict[Offset, Gap] = field(default_factory=dict)
    missing: dict[str, Missing] = field(default_factory=dict)
    events: dict[int, JournalEvent] = field(default_factory=dict)
    tombstones: dict[str, Tombstone] = field(default_factory=dict)

    def items(self, kind: str = "") -> Items:
        """Return those of a kind, or all of them, by sort key."""
        found: dict[str, object] = {}
        if kind in {"", "log"}:
            found |= {log_key(end): entry for end, entry in self.entries.items()}
            found |= {} if self.head is None else {LOG_HEAD: self.head}
        if kind in {"", "gap"}:
            found |= {gap_key(first): gap for first, gap in self.gaps.items()}
        if kind in {"", "event"}:
            found |= {event_key(revision): event for revision, event in self.events.items()}
        if kind in {"", "loss", "quarantine"}:
            found |= self.missing
        if kind in {"", "tombstone"}:
            found |= self.tombstones
        return found

    def after(self, change: Change) -> Partition:
        """Return the partition with a change applied. Raises LostRaceError if one of its conditions does not hold."""
        revision = 0 if self.head is None else self.head.revision
        if revision != change.head.revision - 1:
            raise LostRaceError(f"revision {change.head.revision} of {change.head.stream}: the head is at {revision}")
        changed = Partition(
            change.head,
            dict(self.entries),
            dict(self.gaps),
            dict(self.missing),
            dict(self.events),
            dict(self.tombstones),
        )
        # No two writes are of one item, so it makes no difference that each sees what those before it have done.
        for write in change.writes:
            changed._apply(write)
        return changed

    def _apply(self, write: Write) -> None:  # noqa: C901, PLR0912  one case a kind of write
        match write:
            case PutEntry(entry):
                _put_new(self.entries, entry.next_offset, entry)
            case ReplaceEntry(before, entry):
                self._check_version(before)
                self.entries[entry.next_offset] = entry
            case Relink(before):
                self._check_version(before)
                self.entries[before.next_offset] = replace(
                    self.entries[before.next_offset],
                    prior_offset=write.prior_offset,
                    prior_timestamp=write.prior_timestamp,
                )
            case DeleteEntry(before):
                self._check_version(before)
                del self.entries[before.next_offset]
            case RequireEntry(version):
                self._check_version(version)
            case PutGap(gap):
                _put_new(self.gaps, gap.first_offset, gap)
            case ReplaceGap(before, gap):
                self._check_end(before)
                self.gaps[gap.first_offset] = gap
            case DeleteGap(before):
                self._check_end(before)
                del self.gaps[before.first_offset]
            case RequireGap(gap):
                _check(self.gaps.get(gap.first_offset) == gap, f"the gap from {gap.first_offset} on has changed")
            case PutLoss(loss):
                _put_new(self.missing, missing_key(loss), loss)
            case PutQuarantine(quarantine):
                key = missing_key(quarantine)
                there = self.missing.get(key)
                copies = there.copies if isinstance(there, Quarantine) else 0
                _check(copies == quarantine.copies - 1, f"{key} counts {copies} copies")
                self.missing[key] = quarantine
            case PutTombstone(tombstone):
                self.tombstones[tombstone_key(tombstone)] = tombstone
            case DeleteTombstone(tombstone):
                key = tombstone_key(tombstone)
                _check(key in self.tombstones, f"{key} is gone")
                del self.tombstones[key]
            case PutEvent(event):
                _put_new(self.events, event.revision, event)
            case _:
                assert_never(write)

    def _check_version(self, version: EntryVersion) -> None:
        there = self.entries.get(version.next_offset)
        is_same = there is not None and EntryVersion.of(there) == version
        _check(is_same, f"the entry that ends before {version.next_offset} has changed, or is gone")

    def _check_end(self, gap: Gap) -> None:
        there = self.gaps.get(gap.first_offset)
        is_same = there is not None and there.next_offset == gap.next_offset
        _check(is_same, f"the gap from {gap.first_offset} on has changed, or is gone")


def _put_new(items: dict[_Key, _Item], key: _Key, item: _Item) -> None:
    _check(key not in items, f"there is already a {type(item).__name__} at {key}")
    items[key] = item


def _check(holds: bool, message: str) -> None:  # noqa: FBT001  a condition
    if not holds:
        raise LostRaceError(message)
