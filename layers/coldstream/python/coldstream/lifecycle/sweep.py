"""The sweep: delete the objects whose tombstones are due, and then the tombstones.

Of all that is archived, only this deletes an object that an entry has named. Before it does:

- the tombstone is due by AWS's clock, so that no URL for the object is valid any more;
- the bucket says what the table says: the floor, the deletion and the erasures for which objects go (markers.py);
- a read of the log, after the tombstone's, shows no entry that names the object;
- no hold overlaps the offsets that the object held, and none is put from then on without waiting: the sweep claims the
  batch in the head (store/holding.py).

Objects go before their tombstones: a sweep that is killed between the two is repeated by the next one, and no object is
forgotten. Of a batch, only the tombstones of those objects go of which the store's answer says that they are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from coldstream.errors import LostRaceError, OutcomeUnknownError
from coldstream.lifecycle.deletes import MAX_KEYS, MAX_TOLD, delete_for_good
from coldstream.lifecycle.holds import read_held_stream
from coldstream.lifecycle.markers import write_missing_markers
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.claiming import Span
from coldstream.manifest.compaction import MAX_SWEPT, plan_sweep
from coldstream.manifest.entry import Erasure, ErasureState, FragmentEntry, Head, Tombstone
from coldstream.manifest.holding import held
from coldstream.manifest.stream import Incarnation
from coldstream.store.holding import claim_deletion, end_claim
from coldstream.store.log import PAGE_ENTRIES
from coldstream.store.ports import DeleteFailure, ManifestReads
from coldstream.store.races import retry_lost_races
from coldstream.store.sortkeys import TOMBSTONES
from coldstream.units import Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class SweepReport:
    """Objects that were deleted, and those that were due and stay.

    `named` counts those that an entry still names: their tombstones were wrong, and go. `held` counts those that a hold
    protects, and `refused` those that the store did not delete, as under Object Lock: they are tried again by the next
    sweep. `kept` are the keys of the named ones, and `failures` the refused ones with the store's reasons, MAX_TOLD of
    each at most. `is_stopped` says that the sweep ran out of time, and has more to do.
    """

    objects: int = 0
    object_bytes: int = 0
    named: int = 0
    held: int = 0
    refused: int = 0
    kept: tuple[str, ...] = ()
    failures: tuple[DeleteFailure, ...] = ()
    is_stopped: bool = False

    def __add__(self, other: SweepReport) -> SweepReport:
        """Return both as one report."""
        return SweepReport(
            self.objects + other.objects,
            self.object_bytes + other.object_bytes,
            self.named + other.named,
            self.held + other.held,
            self.refused + other.refused,
            (self.kept + other.kept)[:MAX_TOLD],
            (self.failures + other.failures)[:MAX_TOLD],
            self.is_stopped or other.is_stopped,
        )


def sweep(
    stores: LifecycleStores,
    incarnation: Incarnation,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    on_deleted: Callable[[int], None] = lambda _: None,
) -> SweepReport:
    """Delete what is due now. It is safe to repeat, and to run beside other sweeps and any writer.

    `on_deleted` is told how many objects each batch had.

    Cost: one Query; for every 1,000 objects also a few GetItems, a DeleteObjects, 13 transactions, and a few Queries,
    or one for each object if they lie far apart in the log; on a bucket with versions also a Query, and a listing for
    each object that was erased. Raises UnavailableError.
    """
    report = SweepReport()
    due = iter_due(stores.table, incarnation, stores.now())
    while batch := tuple(islice(due, MAX_KEYS)):
        if should_stop():
            return replace(report, is_stopped=True)
        done = _sweep_batch(stores, incarnation, batch)
        on_deleted(done.objects)
        report += done
    return report


def foretell_sweep(stores: LifecycleStores, incarnation: Incarnation) -> SweepReport:
    """Return what a sweep would delete now. Cost: a GetItem, and a Query every 1,000 tombstones."""
    stream = read_held_stream(stores.table, incarnation)
    report = SweepReport()
    if stream is None:
        return report
    for one in iter_due(stores.table, incarnation, stores.now()):
        if held(stream.holds, one.first_offset, one.next_offset) is not None:
            report += SweepReport(held=1)
        else:
            report += SweepReport(objects=1, object_bytes=one.object_bytes)
    return report


def due_tombstones(table: ManifestReads, incarnation: Incarnation, now: TimestampMs) -> tuple[Tombstone, ...]:
    """Return the first thousand tombstones that a sweep at `now` would find. Cost: one Query."""
    return table.tombstones(incarnation, now, 1000)


def iter_due(table: ManifestReads, incarnation: Incarnation, now: TimestampMs) -> Iterator[Tombstone]:
    """Yield the tombstones that are due, in that order. Cost: a Query a page, sent when the page is needed."""
    for row in table.rows(incarnation, TOMBSTONES):
        if not isinstance(row, Tombstone) or row.due_at > now:
            return
        yield row


def next_due_at(table: ManifestReads, incarnation: Incarnation, now: TimestampMs) -> TimestampMs | None:
    """Return when the next tombstone is due that is not due yet, None if there is none. Cost: that of `iter_due`."""
    later = (
        row.due_at for row in table.rows(incarnation, TOMBSTONES) if isinstance(row, Tombstone) and row.due_at > now
    )
    return next(later, None)


def _sweep_batch(stores: LifecycleStores, incarnation: Incarnation, batch: Sequence[Tombstone]) -> SweepReport:
    claimed = claim_deletion(stores.table, incarnation, batch, _span, stores.now)
    if claimed is None:
        return SweepReport(held=len(batch))
    write_missing_markers(stores, claimed.head)
    free, at = claimed.objects, claimed.claim.at
    names = _named(stores.table, incarnation, free)
    doomed = [one for one in free if one.key not in names]
    running = _running(stores, claimed.head)
    for_good = {one.key for one in doomed if one.all_versions or any(_overlap(one, other) for other in running)}
    objects = [one.key for one in doomed if one.key not in for_good]
    answer = stores.objects.delete_many(objects, signed_at=at)
    objects = [one.key for one in doomed if one.key in for_good]
    answer += delete_for_good(stores.objects, stores.bucket, objects, signed_at=at)
    if not answer.failed:
        end_claim(stores.table, incarnation, claimed.claim, stores.now)
    deleted = set(answer.deleted)
    forgotten = set(_forget(stores, incarnation, [one for one in doomed if one.key in deleted]))
    named = {one.key for one in free if one.key in names and _forget_some(stores, incarnation, [one], names[one.key])}
    # Of two sweeps at once, the one that forgets an object counts it.
    counted = [one for one in doomed if one in forgotten]
    return SweepReport(
        objects=len(counted),
        object_bytes=sum(one.object_bytes for one in counted),
        named=len(named),
        held=len(batch) - len(free),
        refused=len(answer.failed),
        kept=tuple(sorted(named))[:MAX_TOLD],
        failures=answer.failed[:MAX_TOLD],
    )


def _running(stores: LifecycleStores, head: Head) -> Sequence[Erasure]:
    """Return the erasures that have not told all tombstones yet of which objects to take all versions.

    Cost: nothing on a bucket without versions, or if the head counts no erasure; else a Query.
    """
    if stores.bucket.versioned is False or not head.erasures:
        return ()
    found = stores.table.erasures(head.stream.incarnation)
    return [one for one in found if one.state is ErasureState.RUNNING]


def _overlap(tombstone: Tombstone, erasure: Erasure) -> bool:
    return tombstone.first_offset < erasure.next_offset and erasure.first_offset < tombstone.next_offset


def _span(one: Tombstone) -> Span:
    return one.first_offset, one.next_offset


def _named(table: ManifestReads, incarnation: Incarnation, tombstones: Sequence[Tombstone]) -> dict[str, FragmentEntry]:
    """Return the entries that name keys, by key, as a read shows that is sent after the tombstones were read.

    An entry is found by its next offset. So a page of the log from the first entry that ends at or after some offset
    proves of all tombstones up to the end of its last entry which of them the log names. Pages grow while one goes on
    where the last has ended: the tombstones of a prefix need one entry, those of a whole log that was moved or erased
    all of its entries.
    """
    found: dict[str, FragmentEntry] = {}
    began = proven = Offset(0)
    limit = 1
    for one in sorted(tombstones, key=lambda one: one.next_offset):
        if found and one.next_offset <= proven:
            continue
        is_near = one.next_offset - proven <= proven - began
        limit = min(8 * limit, PAGE_ENTRIES) if is_near else 1
        page = table.log_from_offset(incarnation, Offset(one.next_offset - 1), limit)
        if not page.entries:
            break  # none ends there or after
        found |= {entry.key: entry for entry in page.entries}
        began, proven = page.entries[0].first_offset, page.entries[-1].next_offset
    wanted = {one.key for one in tombstones}
    return {key: entry for key, entry in found.items() if key in wanted}


def _forget(stores: LifecycleStores, incarnation: Incarnation, deleted: Sequence[Tombstone]) -> Iterator[Tombstone]:
    """Delete tombstones, and yield those that this sweep deleted; another may have been first."""
    for at in range(0, len(deleted), MAX_SWEPT):
        yield from _forget_some(stores, incarnation, deleted[at : at + MAX_SWEPT])


def _forget_some(
    stores: LifecycleStores,
    incarnation: Incarnation,
    deleted: Sequence[Tombstone],
    named_by: FragmentEntry | None = None,
) -> Sequence[Tombstone]:
    """Delete tombstones, and return those that are gone by this; none if `named_by` turns out not to be there."""
    left = deleted
    is_unknown = False
    required = () if named_by is None else (named_by,)

    def attempt() -> Sequence[Tombstone]:
        nonlocal left, is_unknown
        head = stores.table.head(incarnation)
        if head is None or not left:
            return deleted if is_unknown else left
        if named_by is not None and _named(stores.table, incarnation, left).get(named_by.key) != named_by:
            # The entry was half of a change. The tombstone was right, and stays for the next sweep.
            return deleted if is_unknown else ()
        try:
            stores.table.apply(plan_sweep(head, left, at=stores.now(), required=required))
        except OutcomeUnknownError:
            is_unknown = True
            left = _still_there(stores.table, incarnation, left)
            raise
        except LostRaceError:
            # The transaction requires all of these tombstones: if one is gone, no attempt with it can pass.
            left = _still_there(stores.table, incarnation, left)
            raise
        return deleted if is_unknown else left

    return retry_lost_races(attempt)


def _still_there(
    table: ManifestReads, incarnation: Incarnation, tombstones: Sequence[Tombstone]
) -> Sequence[Tombstone]:
    latest = max(one.due_at for one in tombstones)
    wanted = set(tombstones)
    there = {one for one in iter_due(table, incarnation, latest) if one in wanted}
    return [one for one in tombstones if one in there]
