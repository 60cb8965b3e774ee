"""Actors whom only the worlds of guards have that are checks, and what they have to be told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from coldstream.erase.run import Eraser
from coldstream.erase.selection import Selection
from coldstream.errors import HeldError, NotDeletedError, StreamDeletedError
from coldstream.lifecycle.classes import move_to_class
from coldstream.manifest.entry import StorageClass
from coldstream.store.memory.bucket import etag_of
from coldstream.units import Offset, TimestampMs
from tests.explore import guard_bases
from tests.explore.actors import MORE, Further, cut, stores, upload
from tests.explore.base import DAY_MS, ERASED, START, STREAM, Base, segment
from tests.explore.site import Site

__all__ = ["guard_bases"]


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


MORE |= {
    "second": announcing(2, 4),
    "fourth": announcing(6, 8),
    "middle": announcing(8, 12),
    "tail": announcing(12, 16),
    "rival-middle": announcing(8, 12, epoch=2),
    "move": lambda _: Further(move),
    "cut-told": lambda _: Further(cut_and_be_told),
    "erase-refused": lambda _: Further(begin_erasure),
}
