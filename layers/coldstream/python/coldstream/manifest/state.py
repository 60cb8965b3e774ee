"""The state of one stream's manifest: all of its items as values, and what a change makes of them.

The journal holds every change, so the state at any revision, or at any time, is the changes up to there applied one
after the other to nothing. The in-memory table keeps its partitions as such states.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar, assert_never

from coldstream.errors import LostRaceError, NotRecordedError
from coldstream.manifest.change import (
    Change,
    DeleteEntry,
    DeleteGap,
    DeleteHold,
    DeleteLoss,
    DeleteQuarantine,
    DeleteTombstone,
    EntryVersion,
    PutEntry,
    PutErasure,
    PutGap,
    PutHold,
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
from coldstream.manifest.entry import (
    Erasure,
    FragmentEntry,
    Gap,
    Head,
    Hold,
    JournalEvent,
    Missing,
    Quarantine,
    Tombstone,
)
from coldstream.units import Offset, TimestampMs

_Key = TypeVar("_Key")
_Item = TypeVar("_Item")

MissingKey = tuple[type[Missing], Offset, Offset]
TombstoneKey = tuple[TimestampMs, str]


@dataclass(frozen=True, slots=True)
class ManifestState:
    """The items of one incarnation, never changed in place: a reader that holds a state keeps what it read.

    Entries are keyed by next offset, gaps by first offset, events by revision, losses and quarantines by kind and
    offsets, tombstones by due time and key, holds and erasures by id.
    """

    head: Head | None = None
    entries: dict[Offset, FragmentEntry] = field(default_factory=dict)
    gaps: dict[Offset, Gap] = field(default_factory=dict)
    missing: dict[MissingKey, Missing] = field(default_factory=dict)
    events: dict[int, JournalEvent] = field(default_factory=dict)
    tombstones: dict[TombstoneKey, Tombstone] = field(default_factory=dict)
    holds: dict[str, Hold] = field(default_factory=dict)
    erasures: dict[str, Erasure] = field(default_factory=dict)

    def after(self, change: Change) -> ManifestState:
        """Return the state with a change applied. Raises LostRaceError if one of its conditions does not hold."""
        copied = ManifestState(
            self.head,
            dict(self.entries),
            dict(self.gaps),
            dict(self.missing),
            dict(self.events),
            dict(self.tombstones),
            dict(self.holds),
            dict(self.erasures),
        )
        return copied._changed(change)

    def _changed(self, change: Change) -> ManifestState:
        """Apply a change in place; return the state with the new head."""
        revision = 0 if self.head is None else self.head.revision
        if revision != change.head.revision - 1:
            raise LostRaceError(f"revision {change.head.revision} of {change.head.stream}: the head is at {revision}")
        # No two writes are of one item, so it makes no difference that each sees what those before it have done.
        for write in change.writes:
            self._apply(write)
        _put_new(self.events, change.event.revision, change.event)
        return replace(self, head=change.head)

    def _apply(self, write: Write) -> None:  # noqa: C901, PLR0912, PLR0915  one case a kind of write
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
                _put_new(self.missing, _missing_key(loss), loss)
            case DeleteLoss(loss):
                _delete(self.missing, _missing_key(loss))
            case PutQuarantine(quarantine):
                there = self.missing.get(_missing_key(quarantine))
                copies = there.copies if isinstance(there, Quarantine) else 0
                _check(copies == quarantine.copies - 1, f"the quarantine counts {copies} copies")
                self.missing[_missing_key(quarantine)] = quarantine
            case DeleteQuarantine(before):
                self._check_copy(before)
                del self.missing[_missing_key(before)]
            case PutHold(hold):
                _put_new(self.holds, hold.id, hold)
            case DeleteHold(hold):
                _delete(self.holds, hold.id)
            case PutErasure(before, erasure):
                reached = self.erasures.get(erasure.id)
                is_same = before is reached or (
                    before is not None
                    and reached is not None
                    and (before.state, before.reached) == (reached.state, reached.reached)
                )
                _check(is_same, f"the erasure {erasure.id} went on")
                self.erasures[erasure.id] = erasure
            case PutTombstone(tombstone):
                self.tombstones[tombstone.due_at, tombstone.key] = tombstone
            case DeleteTombstone(tombstone):
                self._check_tombstone(tombstone)
                del self.tombstones[tombstone.due_at, tombstone.key]
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

    def _check_tombstone(self, tombstone: Tombstone) -> None:
        there = self.tombstones.get((tombstone.due_at, tombstone.key))
        is_same = there is not None and there.all_versions == tombstone.all_versions
        _check(is_same, f"the tombstone of {tombstone.key} is gone, or takes all versions by now")

    def _check_copy(self, quarantine: Quarantine) -> None:
        there = self.missing.get(_missing_key(quarantine))
        is_same = isinstance(there, Quarantine) and (there.key, there.copies) == (quarantine.key, quarantine.copies)
        _check(is_same, f"the quarantine from {quarantine.first_offset} on has changed, or is gone")


def replay(recorded: Iterable[tuple[JournalEvent, Change]], *, until_ms: TimestampMs | None = None) -> ManifestState:
    """Apply the recorded changes of a stream, from revision 1 on, and return the state after the last one.

    With `until_ms`, stop before the first change that is later. Memory: that of the state. Raises NotRecordedError if
    a revision is left out: then the journal alone cannot tell the state.
    """
    state = ManifestState()
    revision = 0
    for event, change in recorded:
        if event.revision != revision + 1:
            raise NotRecordedError(change.head.stream.incarnation, revision + 1, event.revision)
        if until_ms is not None and event.at > until_ms:
            break
        # In place: a copy for each change would make a long journal quadratic.
        state = state._changed(change)  # noqa: SLF001  of the same module
        revision = event.revision
    return state


def _missing_key(one: Missing) -> MissingKey:
    return type(one), one.first_offset, one.next_offset


def _put_new(items: dict[_Key, _Item], key: _Key, item: _Item) -> None:
    _check(key not in items, f"there is already a {type(item).__name__} at {key}")
    items[key] = item


def _delete(items: dict[_Key, _Item], key: _Key) -> None:
    _check(key in items, f"{key} is gone")
    del items[key]


def _check(holds: bool, message: str) -> None:  # noqa: FBT001  a condition
    if not holds:
        raise LostRaceError(message)
