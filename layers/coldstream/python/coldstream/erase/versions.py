"""The versions of objects that await deletion: on a bucket that keeps versions, an erasure takes those, too.

What compaction or a change of class replaced has the bytes of the messages, and its deletion leaves a version of it for
as long as the bucket keeps them. So the tombstones of such objects are told to take all versions: those that are there
when an erasure begins, those that a sweep has dealt with just before, and those that are there when it ends. While it
runs, sweeps take all versions by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.change import DeleteTombstone
from coldstream.manifest.entry import Erasure, Head, Tombstone
from coldstream.manifest.erasing import MAX_TOMBSTONES, plan_all_versions
from coldstream.manifest.stream import Incarnation
from coldstream.store.races import retry_lost_races
from coldstream.store.recent_changes import recent_tombstones
from coldstream.store.sortkeys import TOMBSTONES


def take_all_versions(stores: LifecycleStores, incarnation: Incarnation, erasure: Erasure) -> None:
    """Have all versions go of the objects that await deletion and overlap an erasure. Safe to repeat.

    Of every change before the caller's last one, even if its tombstones do not show yet.

    Cost: nothing on a bucket without versions; else a Query a page of tombstones, that of `recent_tombstones`, and a
    GetItem and a transaction for each 98 that are not told so yet. Raises LostRaceError if others kept being first.
    """
    if stores.bucket.versioned is not False:
        rows = stores.table.rows(incarnation, TOMBSTONES)
        shown = [one for one in rows if isinstance(one, Tombstone)]
        recent = retry_lost_races(lambda: _recent(stores, incarnation))
        _take(stores, incarnation, erasure, dict.fromkeys((*shown, *recent)))


def take_found_versions(
    stores: LifecycleStores, incarnation: Incarnation, erasure: Erasure, found: Sequence[Tombstone]
) -> None:
    """Have all versions go of objects that were left alone because of these tombstones, as they were read.

    A sweep may have deleted some meanwhile, or before, in a change that showed by half: they come back. Cost: nothing
    on a bucket without versions; else a GetItem and a transaction for each 98. Raises as `take_all_versions`.
    """
    if stores.bucket.versioned is not False:
        _take(stores, incarnation, erasure, found)


def take_swept_versions(stores: LifecycleStores, before: Head, erasure: Erasure) -> None:
    """Have all versions go of what sweeps deleted after `before` was read, when they knew nothing of the erasure.

    The tombstones come back. Cost: nothing on a bucket without versions; else a Query of the journal, and a GetItem and
    a transaction for each 98 tombstones. Raises LostRaceError if others kept being first.
    """
    if stores.bucket.versioned is not False:
        incarnation = before.stream.incarnation
        changes = stores.table.recorded_changes(incarnation, before.revision)
        swept = (write.tombstone for _, change in changes for write in change.of(DeleteTombstone))
        _take(stores, incarnation, erasure, swept)


def _recent(stores: LifecycleStores, incarnation: Incarnation) -> tuple[Tombstone, ...]:
    head = stores.table.head(incarnation)
    return () if head is None else recent_tombstones(stores.table, head)


def _take(stores: LifecycleStores, incarnation: Incarnation, erasure: Erasure, tombstones: Iterable[Tombstone]) -> None:
    found = (
        one
        for one in tombstones
        if not one.all_versions and one.first_offset < erasure.next_offset and erasure.first_offset < one.next_offset
    )
    while batch := tuple(islice(found, MAX_TOMBSTONES)):
        retry_lost_races(lambda batch=batch: _tell(stores, incarnation, erasure, batch))  # type: ignore[misc]


def _tell(
    stores: LifecycleStores, incarnation: Incarnation, erasure: Erasure, tombstones: tuple[Tombstone, ...]
) -> None:
    head = stores.table.head(incarnation)
    if head is not None:
        stores.table.apply(plan_all_versions(head, erasure, tombstones, stores.now()))
