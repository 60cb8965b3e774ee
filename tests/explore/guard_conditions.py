"""What the conditions of transactions are for: somebody plans on half of what another writes, or on what was."""

from __future__ import annotations

from collections.abc import Callable

from coldstream.archive.missing import record_loss
from coldstream.archive.segment_lost import SegmentLost
from coldstream.lifecycle.deletion import delete_stream
from coldstream.store.control import ControlObjects
from coldstream.units import Offset
from tests.explore.actors import BASES, MORE, Further, tend_now
from tests.explore.base import DAY_MS, HOUR_MS, INCARNATION, KEYS, NOW, STREAM, Base, archived
from tests.explore.guard_bases import stores_of
from tests.explore.guard_checks import announcing
from tests.explore.site import Site


def losing(first: int, following: int) -> Callable[[Base], Further]:
    """Return an actor that announces that a span is lost."""

    def work(site: Site) -> str:
        event = SegmentLost(STREAM, Offset(first), Offset(following), "the disk was full")
        is_new = record_loss(site.table, ControlObjects(site.objects, KEYS), event, site.host_clock)
        return f"lost {first} {following}" if is_new else "removed"

    return lambda _: Further(work)


def with_losses(base: Base, *spans: tuple[int, int]) -> Base:
    """Record losses."""
    for first, following in spans:
        event = SegmentLost(STREAM, Offset(first), Offset(following), "the disk was full")
        record_loss(base.table, ControlObjects(base.objects, KEYS), event, lambda: NOW)
    return base


def deleted_with_loss() -> Base:
    """Return an archive whose stream is deleted, and has a loss."""
    base = with_losses(archived(), (12, 16))
    delete_stream(stores_of(base), INCARNATION, grace_ms=HOUR_MS, by="alice")
    return base


def finish_purge(site: Site) -> None:
    """Wait until all of a deleted stream may go, and have the sweep function end its purge."""
    for _ in range(3):
        site.wait(8 * DAY_MS)
        tend_now(site)


BASES |= {
    "headless": lambda: archived(((4, 8),), orphan=False),
    "gone-with-loss": deleted_with_loss,
}

MORE |= {
    "first": announcing(0, 2),
    "eighth": announcing(8, 10),
    "tenth": announcing(10, 12),
    "lose-hole": losing(8, 12),
    "lose-tenth": losing(10, 12),
    "end-purge": lambda _: Further(finish_purge),
}
