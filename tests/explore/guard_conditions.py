"""What the conditions of transactions are for: somebody plans on half of what another writes, or on what was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from coldstream.archive.missing import record_missing
from coldstream.errors import LostRaceError
from coldstream.lifecycle.deletion import delete_stream
from coldstream.lifecycle.holds import put_hold
from coldstream.lifecycle.tend import tend
from coldstream.lifecycle.truncation import truncate, up_to_offset
from coldstream.manifest.entry import Loss, Missing, Quarantine
from coldstream.units import Offset, TimestampMs
from tests.explore.actors import BASES, MORE, Further, stores
from tests.explore.base import (
    DAY_MS,
    GRACE_MS,
    HOUR_MS,
    INCARNATION,
    NOW,
    STREAM,
    Base,
    archived,
)
from tests.explore.guard_bases import stores_of
from tests.explore.guard_checks import announcing, losing
from tests.explore.runs import RUNNING
from tests.explore.site import Site


def holding_alike(first: int, following: int) -> Callable[[Base], Further]:
    """Return an actor that puts a hold for which chance makes up the same id each time."""

    def work(site: Site) -> None:
        running = RUNNING.set(Alike())  # type: ignore[arg-type]
        span = {"first_offset": Offset(first), "next_offset": Offset(following)}
        try:
            one = put_hold(stores(site), INCARNATION, **span, reason="a lawsuit", by="legal", wait=lambda _: None)
        except LostRaceError:
            return  # another one has its id: whoever puts it is told
        finally:
            RUNNING.reset(running)
        assert one in site.table.holds(INCARNATION), "told of a hold that is not there"

    return lambda _: Further(work)


class Alike:
    """Makes up the same name each time."""

    def name(self) -> str:
        """Make up a name."""
        return "alike"


def purging(one: Missing) -> Base:
    """Return an archive of a deleted stream of which nothing is left to purge but what is known to be missing."""
    base = archived(orphan=False)
    record_missing(base.table, STREAM, one)
    at = TimestampMs(NOW - 8 * DAY_MS)
    base.objects.clock = lambda: at
    there = replace(stores_of(base), now=lambda: at)
    truncate(there, INCARNATION, up_to_offset(Offset(8)), why="ticket 1", by="alice")
    at = TimestampMs(at + GRACE_MS + 1)
    for report in tend(there, [STREAM]):
        assert report.error is None
    at = TimestampMs(at + 1)
    delete_stream(there, INCARNATION, grace_ms=HOUR_MS, by="alice")
    base.objects.clock = lambda: NOW
    return base


BASES |= {
    "headless": lambda: archived(((4, 8),), orphan=False),
    "purging-loss": lambda: purging(Loss(Offset(12), Offset(16), "the disk was full", NOW)),
    "purging-quarantine": lambda: purging(Quarantine(Offset(8), Offset(16), "damaged", NOW, "a copy", "its etag")),
}

MORE |= {
    "hold-first": holding_alike(0, 4),
    "hold-second": holding_alike(4, 8),
    "first": announcing(0, 2),
    "eighth": announcing(8, 10),
    "tenth": announcing(10, 12),
    "lose-hole": losing(8, 12),
    "lose-tenth": losing(10, 12),
}
