"""The purge of a deleted stream, once its deletion can no longer be undone: nothing of it is left in the bucket.

    1. all entries go, in batches; from the first on, nothing brings the stream back
    2. the sweep deletes their objects when they are due
    3. what is staged or in quarantine, and what uploads left behind, is listed and deleted, until a listing shows none
    4. while a recovery log has an object with messages of it, it is waited for: agents delete those by themselves
    5. what is known to be missing goes, too, with its notes in the bucket: reasons are text of people

The head stays, and so do the other notes in the bucket: that the stream is deleted has to be known for ever, for an
agent may announce its segments again. A hold on any of its offsets holds up all of it.

An upload that was under way when the stream was deleted may put an object later than a listing. It cannot commit it,
and discards it. If it dies before it does, a later listing finds the object: the purge ends only when one that was
begun after the longest upload shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice

from coldstream.errors import CorruptionError, HeldError, NotDeletedError, ObjectNotFoundError, StreamDeletedError
from coldstream.lifecycle.deletes import MAX_KEYS, MAX_TOLD
from coldstream.lifecycle.holds import HeldStream, read_held_stream
from coldstream.lifecycle.markers import write_missing_markers
from coldstream.lifecycle.prefix import PrefixRemoval, remove_prefix
from coldstream.lifecycle.stores import LONGEST_UPLOAD_MS, LifecycleStores
from coldstream.manifest.deletion import plan_purged
from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.manifest.purging import MAX_FORGOTTEN, plan_missing_forgotten, plan_purge_begin
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.parsed_keys import ControlKind, KeyKind
from coldstream.store.ports import DeleteFailure
from coldstream.store.races import retry_lost_races
from coldstream.store.recovery_log import read_span_header
from coldstream.store.sortkeys import TOMBSTONES
from coldstream.units import MAX_TIMESTAMP_MS, TimestampMs

BY = "purge"


class PurgeState(StrEnum):
    """How far the purge of a stream is."""

    NONE = "not deleted"
    WAITING = "can be undone"
    HELD = "held"
    RUNNING = "running"
    PURGED = "purged"


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """What a run of the purge did. `leftovers` are objects that no entry had named; `young` ones wait for a later run.

    `logged` are objects of recovery logs that hold messages of it, and that their agents, or `coldstream recover`,
    delete. `held` is the id of the hold that holds it up, `failures` are what the store did not delete.
    """

    state: PurgeState = PurgeState.NONE
    removal: PrefixRemoval = field(default_factory=PrefixRemoval)
    leftovers: int = 0
    leftover_bytes: int = 0
    young: int = 0
    logged: int = 0
    held: str | None = None
    failures: tuple[DeleteFailure, ...] = ()
    is_stopped: bool = False


@dataclass(frozen=True, slots=True)
class _Leftover:
    """An object below the stream's prefixes, or one version of it if the bucket keeps versions."""

    key: str
    version_id: str | None
    size_bytes: int
    last_modified: TimestampMs


def purge_state(stores: LifecycleStores, incarnation: Incarnation) -> PurgeReport:
    """Tell how the purge of a stream stands. Cost: a GetItem, and a Query if it is held."""
    return _state_of(stores, read_held_stream(stores.table, incarnation))


def _state_of(stores: LifecycleStores, stream: HeldStream | None) -> PurgeReport:
    if stream is None or stream.head.deleted_at is None or stream.head.purge_at is None:
        return PurgeReport()
    if stream.head.purged_at is not None:
        return PurgeReport(PurgeState.PURGED)
    if stream.head.purge_at > stores.now():
        return PurgeReport(PurgeState.WAITING)
    if stream.holds:
        return PurgeReport(PurgeState.HELD, held=stream.holds[0].id)
    return PurgeReport(PurgeState.RUNNING)


def begin_purge(
    stores: LifecycleStores, incarnation: Incarnation, *, should_stop: Callable[[], bool] = lambda: False
) -> PurgeReport:
    """Remove all entries of a deleted stream whose grace is over; for any other, tell how it stands.

    Cost: that of `purge_state`, then that of `remove_prefix`.
    """
    stream = read_held_stream(stores.table, incarnation)
    report = _state_of(stores, stream)
    head = stream.head if stream is not None and report.state is PurgeState.RUNNING else None
    if head is None or head.deleted_at is None:
        return report
    if head.first_offset is None:
        # Nothing to remove begins the purge: it is said, so that nobody undeletes what is deleted from the bucket.
        with suppress(HeldError, NotDeletedError):
            retry_lost_races(lambda: _mark_begun(stores, head))
        return purge_state(stores, incarnation)
    # No URL was signed after the deletion, which resolvers see at once.
    last_url = stores.due_at(head.deleted_at)
    try:
        removal = remove_prefix(
            stores,
            incarnation,
            _everything,
            why="purge",
            by=BY,
            deleted_at=head.deleted_at,
            due_at=lambda at: max(at, last_url),
            should_stop=should_stop,
        )
    except (HeldError, NotDeletedError, StreamDeletedError):
        return purge_state(stores, incarnation)  # held or undeleted since, before anything was removed
    if removal.held is not None:
        return PurgeReport(PurgeState.HELD, removal, held=removal.held.id)
    return PurgeReport(PurgeState.RUNNING, removal, is_stopped=removal.is_stopped)


def end_purge(
    stores: LifecycleStores,
    incarnation: Incarnation,
    report: PurgeReport,
    *,
    should_stop: Callable[[], bool] = lambda: False,
) -> PurgeReport:
    """Delete what no entry had named, once the sweep has deleted all that entries had; then mark it as purged.

    `report` is that of `begin_purge`. Cost: a LIST and a DeleteObjects every 1,000 objects, of three or four prefixes,
    a listing of unfinished uploads for each of them, and that of `_count_logged`.
    """
    if report.state is not PurgeState.RUNNING or report.is_stopped:
        return report
    head = stores.table.head(incarnation)
    if head is None or head.purge_at is None or head.purge_began_at is None or head.first_offset is not None:
        return report
    if next(stores.table.rows(incarnation, TOMBSTONES, page_items=1), None) is not None:
        return report
    begun = stores.now()
    # The sweep has written them, if it had anything to delete.
    write_missing_markers(stores, head)
    report = _delete_leftovers(stores, head.stream, begun, report, should_stop)
    if not report.is_stopped:
        report = replace(report, logged=_count_logged(stores, head))
    is_empty = not (report.young or report.leftovers or report.failures or report.is_stopped or report.logged)
    if not is_empty or begun < head.purge_at + LONGEST_UPLOAD_MS:
        return report
    _forget_missing(stores, incarnation)
    # After the records, or a rebuild would know less than the table. A note that was written before a change that never
    # came, because the stream was deleted meanwhile, goes with them.
    report = _delete_loss_notes(stores, head.stream, report, should_stop)
    if report.failures or report.is_stopped:
        return report
    retry_lost_races(lambda: _mark_purged(stores, incarnation))
    return replace(report, state=PurgeState.PURGED)


def _everything(_: Head, log: Iterator[FragmentEntry]) -> Iterator[FragmentEntry]:
    return log


def _delete_leftovers(
    stores: LifecycleStores,
    stream: StreamId,
    now: TimestampMs,
    report: PurgeReport,
    should_stop: Callable[[], bool],
) -> PurgeReport:
    for prefix in _prefixes(stores, stream):
        for key, upload_id in stores.objects.uploads_under(prefix):
            if _is_of(stores, stream, key):
                stores.objects.abort_upload(key, upload_id)
        ours = (one for one in _listed(stores, prefix) if _is_of(stores, stream, one.key))
        while batch := tuple(islice(ours, MAX_KEYS)):
            if should_stop():
                return replace(report, is_stopped=True)
            report = _delete_batch(stores, batch, now, report)
    return report


def _delete_loss_notes(
    stores: LifecycleStores, stream: StreamId, report: PurgeReport, should_stop: Callable[[], bool]
) -> PurgeReport:
    """Delete the notes of losses, however young: nobody writes one of a deleted stream that counts."""
    notes = (one for one in _listed(stores, stores.keys.losses(stream.incarnation)) if _is_of(stores, stream, one.key))
    while batch := tuple(islice(notes, MAX_KEYS)):
        if should_stop():
            return replace(report, is_stopped=True)
        report = _delete_batch(stores, batch, TimestampMs(MAX_TIMESTAMP_MS), report)
    return report


def _delete_batch(
    stores: LifecycleStores, batch: tuple[_Leftover, ...], now: TimestampMs, report: PurgeReport
) -> PurgeReport:
    old = [one for one in batch if one.last_modified + LONGEST_UPLOAD_MS < now]
    versions = [(one.key, one.version_id) for one in old if one.version_id is not None]
    answer = stores.objects.delete_many([one.key for one in old if one.version_id is None])
    answer += stores.objects.delete_versions(versions)
    failed = {failure.key for failure in answer.failed}
    deleted = [one for one in old if one.key not in failed]
    return replace(
        report,
        leftovers=report.leftovers + len(deleted),
        leftover_bytes=report.leftover_bytes + sum(one.size_bytes for one in deleted),
        young=report.young + len(batch) - len(old),
        failures=(report.failures + answer.failed)[:MAX_TOLD],
    )


def _count_logged(stores: LifecycleStores, head: Head) -> int:
    """Count the objects of recovery logs that hold anything of a stream, and versions of those that were deleted.

    A version does not say whose it is, so all count that were put before, and up to a day after, the stream was
    deleted: agents log nothing of a deleted stream, and the template's lifecycle rule ends these versions in a day or
    two. Cost: a listing a thousand, and a GET for each object. What is damaged counts, too.
    """
    logged_to = (head.deleted_at or 0) + LONGEST_UPLOAD_MS
    logged = 0
    for found in _listed(stores, stores.keys.all_spans):
        parsed = stores.keys.parse(found.key)
        if parsed is None or parsed.kind is not KeyKind.SPAN:
            continue
        try:
            entries = read_span_header(stores.objects, found.key).entries
        except ObjectNotFoundError:
            logged += found.version_id is not None and found.size_bytes > 0 and found.last_modified < logged_to
        except CorruptionError:
            logged += 1
        else:
            logged += any(entry.stream.incarnation == head.stream.incarnation for entry in entries)
    return logged


def _prefixes(stores: LifecycleStores, stream: StreamId) -> list[str]:
    keys = stores.keys
    # Of all clusters: what one staged to which the stream is not bound is refused by the upload function, and stays.
    return [keys.all_staging, keys.quarantine(stream.incarnation), keys.fragments(stream.incarnation)]


def _listed(stores: LifecycleStores, prefix: str) -> Iterator[_Leftover]:
    """List objects; if the bucket may keep versions, all versions and delete markers: those hold messages, too."""
    if stores.bucket.versioned is False:
        for found in stores.objects.listed(prefix):
            yield _Leftover(found.key, None, found.size_bytes, found.last_modified)
        return
    for version in stores.objects.versions(prefix):
        yield _Leftover(version.key, version.version_id, version.size_bytes, version.last_modified)


def _is_of(stores: LifecycleStores, stream: StreamId, key: str) -> bool:
    """Tell whether a key is one that coldstream makes for this stream: nothing else is deleted."""
    parsed = stores.keys.parse(key)
    if parsed is None or parsed.incarnation != stream.incarnation:
        return False
    kinds = {KeyKind.FRAGMENT, KeyKind.STAGED, KeyKind.QUARANTINED, KeyKind.QUARANTINE_NOTE}
    return parsed.kind in kinds or parsed.control is ControlKind.LOSS


def _mark_begun(stores: LifecycleStores, deleted: Head) -> None:
    head = stores.table.head(deleted.stream.incarnation)
    is_same = head is not None and (head.deleted_at, head.purge_at) == (deleted.deleted_at, deleted.purge_at)
    if head is not None and is_same and head.purge_began_at is None:
        stores.table.apply(plan_purge_begin(head, stores.now()))


def _forget_missing(stores: LifecycleStores, incarnation: Incarnation) -> None:
    """Delete all losses and quarantines, which an agent may still have announced meanwhile."""
    while retry_lost_races(lambda: _forget_some(stores, incarnation)):
        pass


def _forget_some(stores: LifecycleStores, incarnation: Incarnation) -> bool:
    head = stores.table.head(incarnation)
    missing = tuple(islice(stores.table.missing(incarnation), MAX_FORGOTTEN))
    if head is None or not missing:
        return False
    stores.table.apply(plan_missing_forgotten(head, missing, stores.now()))
    return True


def _mark_purged(stores: LifecycleStores, incarnation: Incarnation) -> None:
    head = stores.table.head(incarnation)
    if head is None or head.purged_at is not None:
        return
    change = plan_purged(head, stores.now())
    # Before the transaction: nothing is left to be removed, and nobody looks at a purged stream again to write it.
    stores.control.write_floor(change.head)
    stores.table.apply(change)
