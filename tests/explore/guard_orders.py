"""Actors of the worlds of guards that are orders: who is answered may count on what the bucket knows by then."""

from __future__ import annotations

from functools import partial

from coldstream.lifecycle.truncation import truncate, up_to_offset
from coldstream.manifest.entry import Quarantine
from coldstream.rebuild.run import Rebuilder
from coldstream.store.memory.bucket import etag_of
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset
from tests.explore.actors import (
    BASES,
    MORE,
    Further,
    cut,
    delete,
    erase,
    garbage,
    stores,
    sweep,
    tend_now,
    then,
    upload,
)
from tests.explore.base import DAY_MS, GRACE_MS, INCARNATION, KEYS, Base, archived, segment
from tests.explore.guard_bases import stores_of
from tests.explore.site import Site


def aside() -> Base:
    """Return an archive with a copy in quarantine of which no record tells: whoever put it there died."""
    base = archived()
    data = segment(4, 8)[:-1] + b"?"
    base.objects.put(KEYS.quarantined(INCARNATION, Offset(4), etag_of(data)), data)
    return base


def trimmed() -> Base:
    """Return an archive of which the first fragment was truncated."""
    base = archived()
    truncate(stores_of(base), INCARNATION, up_to_offset(Offset(4)), why="ticket 1", by="alice")
    return base


def cut_and_look(site: Site) -> None:
    """Truncate the stream: from the answer on, a rebuild brings nothing of that back."""
    cut(site)
    head, note = site.table.head(INCARNATION), stores(site).control.latest_floor(INCARNATION)
    if head is not None and head.floor and not head.is_deleted:
        assert note is not None, "truncated, and the bucket knows of no floor"
        assert note.floor >= 8, f"truncated up to 8, and the bucket knows of the floor {note.floor}"


def erase_and_look(site: Site) -> None:
    """Erase; from the answer on, the bucket tells of the erasure what the table does."""
    erase(site)
    noted = set(stores(site).control.erasures(INCARNATION))
    for one in site.table.erasures(INCARNATION):
        if one not in noted:
            raise AssertionError("erased, and the bucket tells another tale of it")


def collect_late(site: Site) -> None:
    """Wait until what is in quarantine is old, too, and collect."""
    site.wait(60 * DAY_MS)
    garbage(site)


def purge_to_the_end(site: Site) -> None:
    """Delete the stream, and let its purge come and end: then the table says so."""
    delete(site)
    site.wait(60 * DAY_MS)
    tend_now(site)
    head = site.table.head(INCARNATION)
    assert head is None or head.purged_at is not None, "purged, and the purge has not ended"


def rebuild_and_look(site: Site) -> None:
    """Rebuild: what the table says is in quarantine is there."""
    table = MemoryTable()
    Rebuilder(table, site.objects, KEYS, site.clock, GRACE_MS, reads_at_once=1).stream(INCARNATION)
    for one in table.missing(INCARNATION):
        if isinstance(one, Quarantine):
            assert site.objects.info(one.key) is not None, f"rebuilt with {one.key} in quarantine, which is not there"


def damaged(base: Base) -> Further:
    """Return an actor that has a damaged copy of the second segment dealt with, from the key of all copies of it."""
    event = base.stage(8, 16, data=segment(8, 16)[:-1] + b"?")
    return Further(partial(upload, event, has_rival=True), range(8, 16))


BASES |= {"aside": aside, "trimmed": trimmed}
MORE |= {
    "cut-noted": lambda _: Further(cut_and_look),
    "erase-noted": lambda _: Further(erase_and_look),
    "garbage-late": lambda _: Further(collect_late),
    "bad-whole": damaged,
    "purge-ends": lambda _: Further(purge_to_the_end),
    "rebuild-aside": lambda _: Further(rebuild_and_look),
    "wipe": lambda _: Further(then(erase, sweep)),
}
