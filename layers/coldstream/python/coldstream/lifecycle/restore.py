"""Restoring: objects of cold storage classes become readable for some days, by S3's own copy of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.stream import Incarnation
from coldstream.store.log import iter_log
from coldstream.store.ports import ManifestReads, RestoreTier
from coldstream.store.prices import restores_usd
from coldstream.units import Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """How many objects of some offsets can be read, and how many are on their way.

    `objects` of `object_bytes` hold the offsets, `cold` of them in a class that must be restored. `readable` can be
    read, `cold_readable` of those because they were restored. `running` are being restored, `requested` of them since
    this call. `usd` is what restoring the others costs, or what it cost. `expires_at` is when the first copy goes.
    """

    objects: int = 0
    object_bytes: int = 0
    cold: int = 0
    readable: int = 0
    cold_readable: int = 0
    running: int = 0
    requested: int = 0
    usd: float = 0.0
    expires_at: TimestampMs | None = None

    @property
    def is_readable(self) -> bool:
        """Whether all of it can be read."""
        return self.readable == self.objects

    def to_json(self) -> dict[str, object]:
        """Return the report for JSON."""
        return {
            "objects": self.objects,
            "object_bytes": self.object_bytes,
            "cold_objects": self.cold,
            "readable_objects": self.readable,
            "restoring_objects": self.running,
            "requested_objects": self.requested,
            "cost_usd": round(self.usd, 6),
            "expires_at": self.expires_at,
        }


def request_restore(
    stores: LifecycleStores,
    incarnation: Incarnation,
    first_offset: Offset,
    next_offset: Offset | None,
    *,
    days: int,
    tier: RestoreTier,
    on_object: Callable[[int], None] = lambda _: None,
) -> RestoreReport:
    """Ask S3 to restore what of these offsets is cold, and tell how far all of it is. What is restored stays longer.

    Safe to repeat. Cost: a Query every 1,000 fragments, and a HEAD and a POST for each object of a cold class.
    """
    report = RestoreReport()
    for entry in _entries(stores.table, incarnation, first_offset, next_offset):
        before = report
        report = _with(stores, report, entry, days, tier)
        on_object(1)
        if report.cold == before.cold or report.running > before.running:
            continue
        stores.objects.restore(entry.key, days, tier)
        if report.cold_readable == before.cold_readable:
            report = replace(report, running=report.running + 1, requested=report.requested + 1)
    return report


def restore_status(
    stores: LifecycleStores,
    incarnation: Incarnation,
    first_offset: Offset,
    next_offset: Offset | None,
    *,
    days: int,
    tier: RestoreTier,
    on_object: Callable[[int], None] = lambda _: None,
) -> RestoreReport:
    """Tell how much of these offsets can be read, and what restoring the rest costs.

    Cost: a Query every 1,000 fragments, and a HEAD for each object of a cold class.
    """
    report = RestoreReport()
    for entry in _entries(stores.table, incarnation, first_offset, next_offset):
        report = _with(stores, report, entry, days, tier)
        on_object(1)
    return report


def _with(
    stores: LifecycleStores, report: RestoreReport, entry: FragmentEntry, days: int, tier: RestoreTier
) -> RestoreReport:
    """Count an object, and look at it if it is cold."""
    report = replace(report, objects=report.objects + 1, object_bytes=report.object_bytes + entry.object_bytes)
    if entry.storage_class is None or not entry.storage_class.must_be_restored:
        return replace(report, readable=report.readable + 1)
    report = replace(report, cold=report.cold + 1)
    state = stores.objects.restore_state(entry.key)
    if state.is_readable:
        times = [time for time in (report.expires_at, state.expires_at) if time is not None]
        return replace(
            report,
            readable=report.readable + 1,
            cold_readable=report.cold_readable + 1,
            expires_at=min(times, default=None),
        )
    if state.is_running:
        return replace(report, running=report.running + 1)
    return replace(report, usd=report.usd + restores_usd(1, entry.object_bytes, entry.storage_class, tier, days))


def _entries(
    table: ManifestReads, incarnation: Incarnation, first_offset: Offset, next_offset: Offset | None
) -> Iterator[FragmentEntry]:
    for entry in iter_log(table, incarnation, first_offset):
        if next_offset is not None and entry.first_offset >= next_offset:
            return
        yield entry
