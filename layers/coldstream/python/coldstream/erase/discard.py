"""The end of other copies of the bytes, before an erasure begins: each is deleted, with all of its versions.

Nothing is deleted that may be the only copy of a message: a quarantined or staged segment goes only if the archive
holds all of its offsets. An object that nothing names goes after a fence, which keeps its writer from committing it,
and after a read that shows that no entry names it. Objects of write-ahead logs stay: other streams share them, and what
is there tells where a log ends; only versions of those that were deleted go. Objects of recovery logs stay as well, as
they may be the only copy of what other streams have; versions of deleted ones go when the erasure ends. All of it is
claimed before, so that a hold that is put meanwhile is told only when it is over.
"""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.archive.coverage import read_coverage
from coldstream.erase.copies import CopyKind, FoundCopies, OtherCopy, find_spans
from coldstream.erase.scope import check_holds
from coldstream.errors import OtherCopiesError, StreamNotFoundError
from coldstream.lifecycle.deletes import MAX_KEYS, delete_for_good
from coldstream.lifecycle.holds import read_held_stream
from coldstream.lifecycle.markers import write_missing_markers
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.unfinished import finish
from coldstream.manifest.claiming import Span
from coldstream.manifest.entry import Head, Quarantine, Tombstone
from coldstream.manifest.fence import plan_fence
from coldstream.manifest.quarantining import plan_discarded
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.holding import claim_deletion, end_claim
from coldstream.store.races import retry_lost_races
from coldstream.store.recent_changes import recent_keys
from coldstream.store.sortkeys import TOMBSTONES
from coldstream.units import Offset

_COPIES_AT_ONCE = MAX_KEYS // 2
"""Each may have a note beside it."""


def discard_copies(stores: LifecycleStores, stream: StreamId, found: FoundCopies, *, by: str) -> None:
    """Delete the copies, and the records of those that were in quarantine. Safe to repeat.

    Cost: for each segment a Query, or more for a long one; for uncommitted objects a transaction, and a Query each; a
    request for each thousand deletions, more on a bucket with versions. Raises OtherCopiesError for copies that are not
    proven to be copies, or that the store did not delete, and HeldError.
    """
    incarnation = stream.incarnation
    held = read_held_stream(stores.table, incarnation)
    if held is None:
        raise StreamNotFoundError(f"no incarnation {incarnation!r}")
    segments = [one for one in found.copies if one.kind in {CopyKind.QUARANTINED, CopyKind.STAGED}]
    for one in segments:
        check_holds(held, one.first_offset, one.next_offset or Offset(one.first_offset + 1))
    # What was deleted before is nobody's only copy: whoever deleted it had another one, or meant it.
    _refuse(
        [one for one in segments if not one.is_deleted and not _is_archived(stores, incarnation, one)],
        "holds what is not archived",
    )
    logged = [one for one in found.copies if one.kind is CopyKind.LOGGED]
    _refuse(
        [one for one in logged if not one.is_deleted],
        "its writer deletes when its client is closed, and `coldstream garbage` if the writer is dead",
    )
    _refuse_spans(found.copies)
    for one in found.copies:
        if one.upload_id is not None:
            stores.objects.abort_upload(one.key, one.upload_id)
    uncommitted = [one for one in found.copies if one.kind is CopyKind.UNCOMMITTED]
    if uncommitted:
        uncommitted = _unnamed(stores, incarnation, uncommitted)
    _delete(stores, incarnation, [*segments, *uncommitted, *logged])
    # After the objects: until a record is gone, the next run finds what this one has left.
    for record in found.quarantines:
        _forget(stores, incarnation, record, by)


def discard_spans(stores: LifecycleStores, stream: StreamId, first_offset: Offset, next_offset: Offset) -> None:
    """Delete the versions of recovery logs' deleted objects, at the end of an erasure of these offsets.

    Agents may have logged a copy after those were looked for, and before they saw that its offsets are archived. Cost:
    that of `find_spans`, and that of `discard_copies` for what it deletes. Raises OtherCopiesError while an object
    holds some of the offsets: the erasure ends when it is gone.
    """
    spans = tuple(find_spans(stores, stream, first_offset, next_offset))
    _refuse_spans(spans)
    _delete(stores, stream.incarnation, spans)


def _refuse_spans(copies: Sequence[OtherCopy]) -> None:
    spans = [one for one in copies if one.kind is CopyKind.SPAN]
    _refuse(
        [one for one in spans if not one.is_deleted],
        "its agent deletes once all that it holds is archived, and `coldstream recover` if the agent is gone",
    )


def _refuse(copies: Sequence[OtherCopy], why: str) -> None:
    if copies:
        raise OtherCopiesError([f"{one.kind} {one.key}, which {why}" for one in copies])


def _is_archived(stores: LifecycleStores, incarnation: Incarnation, one: OtherCopy) -> bool:
    if one.next_offset is None:
        return False
    coverage = read_coverage(stores.table, incarnation, one.first_offset, one.next_offset)
    return coverage.holds(one.first_offset, one.next_offset)


def _unnamed(stores: LifecycleStores, incarnation: Incarnation, copies: Sequence[OtherCopy]) -> list[OtherCopy]:
    """Return the copies that nothing names, and that nobody can commit any more; the proof is that of garbage.

    After the fence neither the log nor a tombstone names them, nor any of the changes up to it as the journal has
    them: what a read shows by half only would be missed otherwise.
    """
    head = retry_lost_races(lambda: _fenced(stores, incarnation, copies))
    named = {row.key for row in stores.table.rows(incarnation, TOMBSTONES) if isinstance(row, Tombstone)}
    named |= retry_lost_races(lambda: recent_keys(stores.table, head))
    return [one for one in copies if one.key not in named and not _is_named(stores, incarnation, one)]


def _fenced(stores: LifecycleStores, incarnation: Incarnation, copies: Sequence[OtherCopy]) -> Head:
    """Keep the writers of these objects from committing them, and have the bucket know of it.

    Even if the fence is high enough already: the transaction proves that no other is under way.
    """
    head = stores.table.head(incarnation)
    assert head is not None, "a head that was read once stays"
    parsed = [stores.keys.parse(one.key) for one in copies]
    generation = 1 + max((one.generation or 0 for one in parsed if one is not None), default=0)
    change = plan_fence(head, max(head.generation, generation), stores.now())
    stores.table.apply(change)
    write_missing_markers(stores, change.head)
    return change.head


def _is_named(stores: LifecycleStores, incarnation: Incarnation, one: OtherCopy) -> bool:
    """Tell whether an entry names an object, by a read after the fence: what was committed before it shows."""
    finish(stores.table, incarnation, stores.now, stores.grace_ms)
    entries = stores.table.log_from_offset(incarnation, one.first_offset, 1).entries
    return any(entry.key == one.key for entry in entries)


def _delete(stores: LifecycleStores, incarnation: Incarnation, copies: Sequence[OtherCopy]) -> None:
    for start in range(0, len(copies), _COPIES_AT_ONCE):
        some = copies[start : start + _COPIES_AT_ONCE]
        claimed = claim_deletion(stores.table, incarnation, some, _span, stores.now)
        if claimed is None or len(claimed.objects) < len(some):
            # A claim that is made, and not used, ends by itself.
            _refuse(some, "a hold protects by now, or another of them")
            return
        notes = [f"{one.key}.json" for one in some if one.kind is CopyKind.QUARANTINED]
        keys = [*(one.key for one in some), *notes]
        report = delete_for_good(stores.objects, stores.bucket, keys, signed_at=claimed.claim.at)
        if report.failed:
            raise OtherCopiesError(
                [f"{key}, which the store did not delete: {reason}" for key, reason in report.failed]
            )
        end_claim(stores.table, incarnation, claimed.claim, stores.now)


def _span(one: OtherCopy) -> Span:
    return one.first_offset, one.next_offset or Offset(one.first_offset + 1)


def _forget(stores: LifecycleStores, incarnation: Incarnation, record: Quarantine, by: str) -> None:
    """Delete the record of a quarantined segment. All of its offsets are archived, so no gap has its reason."""

    def attempt() -> None:
        head = stores.table.head(incarnation)
        there = stores.table.quarantine(incarnation, record.first_offset, record.next_offset)
        if head is not None and there is not None:
            detail = "before an erasure"
            stores.table.apply(plan_discarded(head, there, [there], [], loss=None, at=stores.now(), by=by, why=detail))

    retry_lost_races(attempt)
