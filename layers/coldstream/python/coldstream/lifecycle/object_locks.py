"""The mirror of holds in S3 Object Lock: each object of a fragment that a hold overlaps is under a legal hold there.

So nobody who has the bucket's keys, and not only coldstream, can delete what a hold protects. The table decides, and
this follows it: when a hold is put or released, and by the sweep, because fragments are archived and merged later, too.
A cursor keeps the revision up to which the bucket follows; from there on the journal says which offsets to look at.
Without a cursor all holds are gone through.

Legal holds on objects of fragments are coldstream's: one that somebody put there by hand is released with the next hold
of ours that overlaps it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from coldstream.errors import BadVersionError, ColdstreamError, CorruptionError, ObjectNotFoundError
from coldstream.lifecycle.deletes import MAX_TOLD
from coldstream.lifecycle.holds import read_held_stream
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.sweep import iter_due
from coldstream.manifest.entry import Hold, JournalEvent, JournalKind
from coldstream.manifest.holding import held
from coldstream.manifest.stream import Incarnation
from coldstream.plain_json import read_json
from coldstream.store.log import iter_log
from coldstream.store.ports import DeleteFailure, ManifestReads
from coldstream.units import MAX_OFFSET, MAX_TIMESTAMP_MS, Offset, TimestampMs

_NEW_OBJECTS = {
    JournalKind.FRAGMENT_COMMITTED,
    JournalKind.FRAGMENTS_COMPACTED,
    JournalKind.MESSAGES_ERASED,
    JournalKind.STORAGE_CLASS_CHANGED,
    JournalKind.ENTRY_REPAIRED,
    JournalKind.FRAGMENTS_REBUILT,
    JournalKind.HOLD_PUT,
}
"""Changes after which there are objects, or holds, that the bucket does not know."""


@dataclass(frozen=True, slots=True)
class LockReport:
    """Objects put under a legal hold and released from one; `failures` are those that S3 refused, with the reason."""

    locked: int = 0
    released: int = 0
    failures: tuple[DeleteFailure, ...] = ()
    is_stopped: bool = False


@dataclass(frozen=True, slots=True)
class _LockSpan:
    """Offsets whose objects may differ from what the holds say."""

    first_offset: Offset
    next_offset: Offset


def mirror_holds(
    stores: LifecycleStores,
    incarnation: Incarnation,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    on_object: Callable[[int], None] = lambda _: None,
) -> LockReport:
    """Make the bucket's legal holds follow the holds of a stream; nothing on a bucket without Object Lock.

    Safe to repeat. If it is stopped or killed, the next call begins again where the last whole one ended. `on_object`
    is called with 1 for each object.

    Cost: two GetItems for a stream that never had holds, else a Query of the journal, and for each object that is
    looked at a share of a Query and a PUT.
    """
    if not stores.bucket.object_lock:
        return LockReport()
    stream = read_held_stream(stores.table, incarnation)
    since = _reached(stores, incarnation)
    if stream is None or since == stream.head.revision or (since is None and not stream.holds):
        return LockReport()
    holds = stream.holds
    spans: Iterator[_LockSpan]
    if since is None:
        spans = (_LockSpan(hold.first_offset, _end(hold.next_offset)) for hold in holds)
    else:
        spans = _changed(stores.table.journal(incarnation, since), holds)
    report = LockReport()
    for span in spans:
        for key, is_held in _objects_in(stores.table, incarnation, span, holds):
            if should_stop():
                return replace(report, is_stopped=True)
            report = _follow(stores, key, is_held=is_held, report=report)
            on_object(1)
    if not report.failures:
        # The revision that was read before the journal: what came after it is looked at by the next call.
        stores.table.put_cursor(
            _cursor(incarnation), json.dumps({"version": 1, "revision": stream.head.revision}).encode()
        )
    return report


def _follow(stores: LifecycleStores, key: str, *, is_held: bool, report: LockReport) -> LockReport:
    try:
        if stores.objects.legal_hold(key) == is_held:
            return report
        stores.objects.put_legal_hold(key, is_held)
    except ObjectNotFoundError:
        return report  # swept, or merged, since the log was read
    except ColdstreamError as err:
        if err.retryable:
            raise
        return replace(report, failures=(*report.failures, DeleteFailure(key, str(err)))[:MAX_TOLD])
    if is_held:
        return replace(report, locked=report.locked + 1)
    return replace(report, released=report.released + 1)


def _changed(journal: Iterator[JournalEvent], holds: tuple[Hold, ...]) -> Iterator[_LockSpan]:
    """Yield what the journal says may differ: new objects under a hold, and all that a released hold overlapped."""
    for event in journal:
        first, end = event.first_offset or Offset(0), _end(event.next_offset)
        is_released = event.kind is JournalKind.HOLD_RELEASED
        if is_released or (event.kind in _NEW_OBJECTS and held(holds, first, end) is not None):
            yield _LockSpan(first, end)


def _objects_in(
    table: ManifestReads, incarnation: Incarnation, span: _LockSpan, holds: tuple[Hold, ...]
) -> Iterator[tuple[str, bool]]:
    """Yield the objects of a span, those that wait for the sweep included, and whether a hold overlaps each."""
    for entry in iter_log(table, incarnation, span.first_offset):
        if entry.first_offset >= span.next_offset:
            break
        yield entry.key, held(holds, entry.first_offset, entry.next_offset) is not None
    for one in iter_due(table, incarnation, TimestampMs(MAX_TIMESTAMP_MS)):
        if one.first_offset < span.next_offset and span.first_offset < one.next_offset:
            yield one.key, held(holds, one.first_offset, one.next_offset) is not None


def _reached(stores: LifecycleStores, incarnation: Incarnation) -> int | None:
    name = _cursor(incarnation)
    data = stores.table.cursor(name)
    if data is None:
        return None
    try:
        found = read_json(data)
        if found["version"] != 1:
            raise BadVersionError(f"cursor {name}", 0, "version", expected=1, found=found["version"])
        return int(found["revision"])
    except (ValueError, TypeError, KeyError) as err:
        raise CorruptionError(f"cursor {name}", 0, f"malformed: {err}") from err


def _cursor(incarnation: Incarnation) -> str:
    return f"locks/{incarnation}"


def _end(next_offset: Offset | None) -> Offset:
    return Offset(MAX_OFFSET + 1) if next_offset is None else next_offset
