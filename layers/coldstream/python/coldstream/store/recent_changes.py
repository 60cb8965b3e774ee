"""The keys that the last changes of a stream named or buried, whether or not the items of these changes show yet.

A read may show half of a transaction (`store.ports`): an entry that is gone, say, without the tombstone that came in
its place. But every change is recorded whole in its event, and revisions leave no hole. So whoever has the events up to
a revision has every write up to it, even if some of its items do not show yet.
"""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.errors import LostRaceError, NotRecordedError
from coldstream.manifest.change import Change, DeleteTombstone, PutEntry, PutTombstone, ReplaceEntry
from coldstream.manifest.entry import Head, Tombstone
from coldstream.store.ports import ManifestTable

RECENT_CHANGES = 64
"""DynamoDB shows a transaction within milliseconds, and changes of one stream come one after the other: one that 64
others have followed shows wholly."""


def recent_keys(table: ManifestTable, head: Head) -> frozenset[str]:
    """Return the keys of `recorded_keys`. Changes that an earlier release wrote count only by the key in their event.

    Cost: that of `recorded_keys`, and for such changes another Query. Raises LostRaceError as that does.
    """
    try:
        return recorded_keys(table, head)
    except NotRecordedError:
        events = table.journal(head.stream.incarnation, _first(head) - 1)
        return frozenset(event.key for event in events if event.key is not None)


def recorded_keys(table: ManifestTable, head: Head) -> frozenset[str]:
    """Return the keys of objects that the last changes, up to the head's revision, made an entry or a tombstone name.

    A key whose tombstone a later change deleted is left out: its object was deleted, and what is there was put again.

    Cost: a GetItem and a Query. Raises LostRaceError if an event does not show yet, and NotRecordedError if an earlier
    release wrote one of them.
    """
    keys: set[str] = set()
    for change in _changes(table, head, _first(head)):
        keys.update(_keys_of(change))
        keys.difference_update(write.tombstone.key for write in change.of(DeleteTombstone))
    return frozenset(keys)


def recent_tombstones(table: ManifestTable, head: Head) -> tuple[Tombstone, ...]:
    """Return the tombstones that the last changes, up to the head's revision, put and did not delete again.

    Changes that an earlier release wrote are left out: they have shown wholly since that release was replaced.

    Cost: a GetItem and a Query, twice if there are such changes. Raises LostRaceError if an event does not show yet.
    """
    try:
        changes = list(_changes(table, head, _first(head)))
    except NotRecordedError as err:
        if err.since is None or err.since > head.revision:
            return ()
        changes = list(_changes(table, head, err.since))
    found: dict[tuple[int, str], Tombstone] = {}
    for change in changes:
        for one in change.of(DeleteTombstone):
            found.pop((one.tombstone.due_at, one.tombstone.key), None)
        found |= {(one.tombstone.due_at, one.tombstone.key): one.tombstone for one in change.of(PutTombstone)}
    return tuple(found.values())


def _changes(table: ManifestTable, head: Head, first: int) -> Iterator[Change]:
    """Yield the changes from a revision up to the head's. Raises as `recorded_keys`."""
    seen = first - 1
    for event, change in table.recorded_changes(head.stream.incarnation, seen):
        if event.revision > head.revision:
            break
        _check_next(event.revision, seen)
        seen = event.revision
        yield change
    _check_next(head.revision + 1, seen)


def _first(head: Head) -> int:
    return max(1, head.revision - RECENT_CHANGES + 1)


def _check_next(revision: int, seen: int) -> None:
    if revision != seen + 1:
        raise LostRaceError(f"the journal does not show revision {seen + 1} yet")


def _keys_of(change: Change) -> Iterator[str]:
    yield from (write.entry.key for write in change.of(PutEntry))
    for replaced in change.of(ReplaceEntry):
        yield replaced.entry.key
        yield replaced.before.key
    yield from (write.tombstone.key for write in change.of(PutTombstone))
