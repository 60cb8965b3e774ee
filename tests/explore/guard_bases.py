"""What else an archive may hold at first: what guards are for needs a hole, a hold, a deletion, or an empty log."""

from __future__ import annotations

from dataclasses import replace

from coldstream.archive.missing import record_loss
from coldstream.archive.segment_lost import SegmentLost
from coldstream.lifecycle.deletion import delete_stream
from coldstream.lifecycle.holds import put_hold
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.sweep import sweep
from coldstream.lifecycle.truncation import truncate, up_to_offset
from coldstream.store.control import ControlObjects
from coldstream.store.object_values import BucketCapabilities
from coldstream.units import Offset, TimestampMs
from tests.explore.actors import BASES
from tests.explore.base import GRACE_MS, HOUR_MS, INCARNATION, KEYS, NOW, STREAM, Base, archived


def stores_of(base: Base) -> LifecycleStores:
    """Return the stores of whoever acted before."""
    return LifecycleStores(
        table=base.table,
        objects=base.objects,
        keys=KEYS,
        control=ControlObjects(base.objects, KEYS),
        bucket=BucketCapabilities(versioned=False, object_lock=False),
        now=lambda: NOW,
        grace_ms=GRACE_MS,
    )


def held(first: int, following: int) -> Base:
    """Return an archive with a hold on some offsets."""
    base = archived()
    span = {"first_offset": Offset(first), "next_offset": Offset(following)}
    put_hold(stores_of(base), INCARNATION, **span, reason="a lawsuit", by="legal", wait=lambda _: None)
    return base


def copied() -> Base:
    """Return an archive whose staged copy is still there, with a hold on what is far from the erasure."""
    base = archived(((0, 8), (8, 16)), orphan=False)
    base.stage(0, 16)
    put_hold(
        stores_of(base),
        INCARNATION,
        first_offset=Offset(12),
        next_offset=Offset(16),
        reason="a lawsuit",
        by="legal",
        wait=lambda _: None,
    )
    return base


def deleted() -> Base:
    """Return an archive whose stream is deleted, and may be undeleted for an hour."""
    base = archived()
    delete_stream(stores_of(base), INCARNATION, grace_ms=HOUR_MS, by="alice")
    return base


def emptied() -> Base:
    """Return an archive of which everything was truncated."""
    base = archived()
    truncate(stores_of(base), INCARNATION, up_to_offset(Offset(8)), why="ticket 1", by="alice")
    return base


def lacking() -> Base:
    """Return an archive of which nothing is left but the note of a loss: a purge of it ends at once."""
    base = archived(orphan=False)
    long_ago = replace(stores_of(base), now=lambda: TimestampMs(NOW - 2 * GRACE_MS))
    truncate(long_ago, INCARNATION, up_to_offset(Offset(8)), why="ticket 1", by="alice")
    sweep(stores_of(base), INCARNATION)
    event = SegmentLost(STREAM, Offset(12), Offset(16), "the disk was full")
    record_loss(base.table, ControlObjects(base.objects, KEYS), event, lambda: NOW)
    return base


BASES |= {
    "hole": lambda: archived(((0, 8), (12, 16)), orphan=False),
    "slices": lambda: archived(((0, 4), (4, 6), (6, 8)), orphan=False),
    "slices-hole": lambda: archived(((0, 4), (4, 6), (8, 12)), orphan=False),
    "sparse": lambda: archived(((0, 2), (4, 6), (8, 10)), orphan=False),
    "held": lambda: held(4, 8),
    "held-beyond": lambda: held(6, 8),
    "copied": copied,
    "deleted": deleted,
    "emptied": emptied,
    "lacking": lacking,
}
