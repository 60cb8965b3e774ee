"""Actors whom only the worlds of guards have that are checks, and what they have to be told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from coldstream.archive.missing import record_loss
from coldstream.archive.segment_lost import SegmentLost
from coldstream.erase.run import Eraser
from coldstream.erase.selection import Selection
from coldstream.errors import HeldError, NotDeletedError, StreamDeletedError
from coldstream.lifecycle.classes import move_to_class
from coldstream.manifest.change import PutLoss
from coldstream.manifest.entry import StorageClass
from coldstream.manifest.repair import DAMAGED, plan_range_removal
from coldstream.store.control import ControlObjects
from coldstream.store.memory.bucket import etag_of
from coldstream.store.races import retry_lost_races
from coldstream.units import Offset, TimestampMs
from tests.explore.actors import MORE, Further, cut, stores, upload
from tests.explore.base import DAY_MS, ERASED, GRACE_MS, INCARNATION, KEYS, START, STREAM, Base, segment
from tests.explore.site import Site

GIVEN_UP = 4
"""Where the fragment begins that is given up."""


def announcing(first: int, following: int, *, epoch: int = 1) -> Callable[[Base], Further]:
    """Return an actor that archives a slice, perhaps of another history: then it may end in quarantine."""

    def staged(base: Base) -> Further:
        data = segment(first, following, epoch=epoch)
        event = replace(base.stage(first, following, data=data), etag=etag_of(data))
        return Further(partial(upload, event, has_rival=True), range(first, following))

    return staged


def move(site: Site) -> None:
    """Move what is archived to a colder class."""
    move_to_class(stores(site), STREAM.incarnation, StorageClass.STANDARD_IA, TimestampMs(START + 90 * DAY_MS))


def cut_and_be_told(site: Site) -> None:
    """Truncate the stream; of a deleted one nobody is told that it is not deleted."""
    try:
        cut(site)
    except NotDeletedError as err:
        raise AssertionError(f"told of a deleted stream: {err}") from err


def begin_erasure(site: Site) -> None:
    """Begin an erasure of what may not be erased: that is refused."""
    selection = Selection(Offset(min(ERASED)), Offset(max(ERASED) + 1))
    try:
        Eraser(stores(site)).begin(STREAM, selection, reason="ticket 2", by="alice", with_copies=True)
    except (HeldError, StreamDeletedError):
        return
    raise AssertionError("begun, and part of it is held, or the stream is deleted")


def give_up(site: Site) -> str:
    """Give up the second fragment, as a scrub does of which the object is damaged; say that."""
    control = ControlObjects(site.objects, KEYS)

    def attempt() -> str:
        head = site.table.head(INCARNATION)
        log = site.table.log_from_offset(INCARNATION, Offset(0), 1000).entries
        number = next((at for at, one in enumerate(log) if one.first_offset == GIVEN_UP), None)
        if head is None or head.is_deleted or number is None or number + 1 == len(log):
            return "nothing is given up"
        change = plan_range_removal(
            head,
            log[number - 1] if number else None,
            log[number],
            log[number + 1],
            missing=tuple(site.table.missing(INCARNATION)),
            holds=site.table.holds(INCARNATION),
            at=site.clock(),
            due_at=TimestampMs(site.clock() + GRACE_MS),
            reason=DAMAGED,
            by="coldstream scrub",
        )
        for one in change.of(PutLoss):
            control.write_loss(INCARNATION, one.loss)
        site.table.apply(change)
        return f"given up {change.event.first_offset} {change.event.next_offset}"

    try:
        return retry_lost_races(attempt)
    except HeldError:
        return "held"


def losing(first: int, following: int) -> Callable[[Base], Further]:
    """Return an actor that announces that offsets are lost."""

    def work(site: Site) -> str:
        event = SegmentLost(STREAM, Offset(first), Offset(following), "the disk was full")
        is_new = record_loss(site.table, ControlObjects(site.objects, KEYS), event, site.host_clock)
        return f"lost {first} {following}" if is_new else "removed"

    return lambda _: Further(work)


MORE |= {
    "give-up": lambda _: Further(give_up),
    "lose-8-12": losing(8, 12),
    "lose-4-12": losing(4, 12),
    "lose-4-8": losing(4, 8),
    "second": announcing(2, 4),
    "fourth": announcing(6, 8),
    "middle": announcing(8, 12),
    "tail": announcing(12, 16),
    "rival-middle": announcing(8, 12, epoch=2),
    "move": lambda _: Further(move),
    "cut-told": lambda _: Further(cut_and_be_told),
    "erase-refused": lambda _: Further(begin_erasure),
}
