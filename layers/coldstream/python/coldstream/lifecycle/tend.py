"""Tending: all that the sweep function does for a stream, one stream after the other.

Tombstones that are due, legal holds that S3 Object Lock does not know of, and deleted streams whose grace is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from coldstream.errors import ColdstreamError
from coldstream.lifecycle.object_locks import LockReport, mirror_holds
from coldstream.lifecycle.purge import PurgeReport, PurgeState, begin_purge, end_purge, purge_state
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.sweep import SweepReport, foretell_sweep, sweep
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import DeleteFailure
from coldstream.store.prices import storage_usd


@dataclass(frozen=True, slots=True)
class TendReport:
    """What was done for a stream, or would be. `error` says why the stream was given up for this run."""

    stream: StreamId
    swept: SweepReport = field(default_factory=SweepReport)
    locks: LockReport = field(default_factory=LockReport)
    purge: PurgeReport = field(default_factory=PurgeReport)
    error: ColdstreamError | None = None

    @property
    def objects(self) -> int:
        """Objects that were deleted."""
        return self.swept.objects + self.purge.leftovers

    @property
    def object_bytes(self) -> int:
        """Their size."""
        return self.swept.object_bytes + self.purge.leftover_bytes

    @property
    def saved_usd_a_month(self) -> float:
        """What they cost each month, in STANDARD."""
        return storage_usd(self.object_bytes, objects=self.objects)

    @property
    def purge_text(self) -> str | None:
        """How the purge stands, None for a stream that is not deleted."""
        if self.purge.held is not None:
            return f"held by {self.purge.held}"
        if self.purge.logged:
            return f"waits for {self.purge.logged} objects of recovery logs"
        return None if self.purge.state is PurgeState.NONE else self.purge.state.value

    @property
    def failures(self) -> tuple[DeleteFailure, ...]:
        """What the store refused."""
        return self.swept.failures + self.purge.failures + self.locks.failures

    @property
    def is_stopped(self) -> bool:
        """Whether there was no time for all of it."""
        return self.swept.is_stopped or self.locks.is_stopped or self.purge.is_stopped

    @property
    def has_news(self) -> bool:
        """Whether there is anything to tell of this stream."""
        return self != TendReport(self.stream)


def tend(
    stores: LifecycleStores,
    streams: Iterable[StreamId],
    *,
    should_stop: Callable[[], bool] = lambda: False,
    on_deleted: Callable[[int], None] = lambda _: None,
) -> Iterator[TendReport]:
    """Tend streams, and yield a report of each. Safe to repeat, and to run beside any writer.

    What fails in one stream is in its report, and ends only that one. Nothing is begun once `should_stop`.

    Cost: two GetItems and a Query for a stream where nothing is to be done; else see `sweep`, `mirror_holds` and the
    purge.
    """
    for stream in streams:
        if should_stop():
            return
        yield _tend(stores, stream, should_stop, on_deleted)


def _tend(
    stores: LifecycleStores, stream: StreamId, should_stop: Callable[[], bool], on_deleted: Callable[[int], None]
) -> TendReport:
    report = TendReport(stream)
    incarnation = stream.incarnation
    try:
        # Locks first: what a release has freed can be swept at once, and what a hold protects cannot.
        report = replace(report, locks=mirror_holds(stores, incarnation, should_stop=should_stop))
        report = replace(report, purge=begin_purge(stores, incarnation, should_stop=should_stop))
        report = replace(report, swept=sweep(stores, incarnation, should_stop=should_stop, on_deleted=on_deleted))
        report = replace(report, purge=end_purge(stores, incarnation, report.purge, should_stop=should_stop))
        on_deleted(report.purge.leftovers)
    except ColdstreamError as err:
        return replace(report, error=err)
    return report


def foretell_tending(
    stores: LifecycleStores,
    streams: Iterable[StreamId],
    *,
    should_stop: Callable[[], bool] = lambda: False,
    on_stream: Callable[[int], None] = lambda _: None,
) -> Iterator[TendReport]:
    """Yield what `tend` would find of each stream by now; not what uploads left behind in a deleted one.

    Cost: two GetItems and a Query for each stream, and a Query every 1,000 tombstones.
    """
    for stream in streams:
        if should_stop():
            return
        swept = foretell_sweep(stores, stream.incarnation)
        yield TendReport(stream, swept=swept, purge=purge_state(stores, stream.incarnation))
        on_stream(1)


def summary_of(reports: Sequence[TendReport]) -> dict[str, Any]:
    """Return reports for JSON: the totals, and each stream of which there is anything to tell."""
    return {
        "objects": sum(report.objects for report in reports),
        "object_bytes": sum(report.object_bytes for report in reports),
        "saved_usd_a_month": round(sum(report.saved_usd_a_month for report in reports), 6),
        "streams": [_to_json(report) for report in reports if report.has_news],
    }


def _to_json(report: TendReport) -> dict[str, Any]:
    return {
        "vhost": report.stream.vhost,
        "name": report.stream.name,
        "incarnation": report.stream.incarnation,
        "objects": report.objects,
        "object_bytes": report.object_bytes,
        "named": report.swept.named,
        "held": report.swept.held,
        "refused": report.swept.refused,
        "locked": report.locks.locked,
        "released": report.locks.released,
        "purge": report.purge.state,
        "removed_entries": report.purge.removal.fragments,
        "held_by": report.purge.held,
        "logged": report.purge.logged,
        "not_deleted": [{"key": one.key, "reason": one.reason} for one in report.failures],
        "is_stopped": report.is_stopped,
        "error": None if report.error is None else f"{type(report.error).__name__}: {report.error}",
    }
