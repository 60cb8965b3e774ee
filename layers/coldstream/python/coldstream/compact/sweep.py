"""Delete the objects whose tombstones are due, and then the tombstones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from coldstream.manifest.compaction import MAX_SWEPT, plan_sweep
from coldstream.manifest.entry import Tombstone
from coldstream.manifest.stream import Incarnation
from coldstream.store.ports import ManifestReads, ManifestTable, ObjectStore
from coldstream.store.races import retry_lost_races
from coldstream.units import Offset, TimestampMs

DELETES_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Objects that were deleted; `kept` are the keys of those that an entry still names."""

    objects: int = 0
    object_bytes: int = 0
    kept: tuple[str, ...] = ()


def sweep(
    table: ManifestTable,
    objects: ObjectStore,
    incarnation: Incarnation,
    now: TimestampMs,
) -> SweepResult:
    """Delete what is due at `now`. It is safe to repeat, and to run beside other sweeps.

    An object that an entry names is never deleted, whatever its tombstone says. Its tombstone goes all the same:
    whoever removes that entry makes a new one.

    Objects go before their tombstones: a sweep that is killed between the two is repeated by the next one, and no
    object is forgotten.

    Cost: one Query, and for every 99 objects a Query, a GetItem and a transaction, and a Query and a DELETE for each.
    """
    swept = SweepResult()
    with ThreadPoolExecutor(DELETES_AT_ONCE, thread_name_prefix="sweep") as pool:
        while found := table.tombstones(incarnation, now, MAX_SWEPT):
            named = list(pool.map(lambda tombstone: _delete(table, objects, incarnation, tombstone), found))
            if not retry_lost_races(lambda: _forget(table, incarnation, now, found)):
                continue  # another sweep took these tombstones away, and counts the objects
            deleted = [tombstone for tombstone, is_named in zip(found, named, strict=True) if not is_named]
            swept = SweepResult(
                swept.objects + len(deleted),
                swept.object_bytes + sum(tombstone.object_bytes for tombstone in deleted),
                swept.kept + tuple(tombstone.key for tombstone in found if tombstone not in deleted),
            )
    return swept


def due_tombstones(table: ManifestReads, incarnation: Incarnation, now: TimestampMs) -> tuple[Tombstone, ...]:
    """Return the first thousand tombstones that a sweep at `now` would find. Cost: one Query."""
    return table.tombstones(incarnation, now, 1000)


def _delete(table: ManifestReads, objects: ObjectStore, incarnation: Incarnation, tombstone: Tombstone) -> bool:
    """Delete an object unless an entry names it; return whether one does."""
    entries = table.log_from_offset(incarnation, Offset(tombstone.next_offset - 1), 1).entries
    if any(entry.key == tombstone.key for entry in entries):
        return True
    objects.delete(tombstone.key)
    return False


def _forget(table: ManifestTable, incarnation: Incarnation, now: TimestampMs, deleted: tuple[Tombstone, ...]) -> bool:
    """Remove tombstones; return False if another sweep has already removed some of them."""
    head = table.head(incarnation)
    left = table.tombstones(incarnation, now, MAX_SWEPT)
    # The transaction requires all of these tombstones: if one is gone, no attempt can pass.
    if head is None or not set(deleted) <= set(left):
        return False
    table.apply(plan_sweep(head, deleted))
    return True
