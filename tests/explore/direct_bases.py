"""What a direct stream may have been through before a world begins, and appenders that guards are for.

A base stands in a world's text beside the actors: `holed+append/0c0l0r`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from coldstream.errors import UnavailableError
from coldstream.format.chunk import iter_chunks
from coldstream.lifecycle.holds import put_hold
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.appender import Opening, WalKind, WalPlace
from coldstream.manifest.state import ManifestState
from coldstream.store.control import ControlObjects
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.wal_object import WalChunk, wal_object
from coldstream.streams.batch import Batch
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.streams.flush.fragments import flush_chunks
from coldstream.streams.opening import end_opening, take_epoch
from coldstream.streams.recovery import recover
from coldstream.streams.trimming import destroy_stream, trim_stream
from coldstream.streams.wal.options import WalOptions
from coldstream.streams.wal.s3_store import S3WalStore
from coldstream.streams.wal.writer import _reserve
from coldstream.streams.wals import Wals
from coldstream.units import Epoch, Offset
from tests.explore.base import NOW
from tests.explore.direct import KEYS, SMALL, STREAM, Appender, Doubles, appender
from tests.explore.site import Site

PAST = WalPlace(WalKind.S3, "past", 1)
INCARNATION = STREAM.incarnation


def holed(table: MemoryTable, objects: MemoryObjects) -> None:
    """Somebody who died had three batches in his log, of which the first was trimmed, and is not archived."""
    one = Appender(Doubles(table, objects), "p")  # type: ignore[arg-type]
    one.open()
    for _ in range(3):
        one.append()
    one.store.delete(one.place, [0, 1])


def straddled(table: MemoryTable, objects: MemoryObjects) -> None:
    """Somebody who died had a batch of two messages in his log, and of another history the first is archived."""
    one = Appender(Doubles(table, objects), "p")  # type: ignore[arg-type]
    one.open()
    data = Batch.of([b"<p.1.1>", b"<p.1.2>"]).chunk(Offset(0), NOW, Epoch(1), b"")
    chunk = WalChunk(INCARNATION, Epoch(1), Offset(0), Offset(2), data)
    one.store.create(one.place, 1, wal_object(b"." * 16, [chunk]))
    first = Batch.of([b"<p.1.1>"]).chunk(Offset(0), NOW, Epoch(1), b"")
    flush_chunks(one.archive, STREAM, [CachedChunk(Offset(0), Offset(1), NOW, Epoch(1), first)], SMALL)


def rebuilt(_: MemoryTable, objects: MemoryObjects) -> None:
    """The table has forgotten an opening of which the bucket knows."""
    ControlObjects(objects, KEYS).write_opening(STREAM, Opening(Epoch(1), PAST))


def brokers(table: MemoryTable, _: MemoryObjects) -> None:
    """The stream is a broker's."""
    there = table._partitions[INCARNATION]
    assert there.head is not None
    table._partitions[INCARNATION] = replace(there, head=replace(there.head, appender=None))


def unknown(table: MemoryTable, _: MemoryObjects) -> None:
    """The table does not know the stream."""
    table._partitions[INCARNATION] = ManifestState()


def held(table: MemoryTable, objects: MemoryObjects) -> None:
    """A batch is archived, and a hold is on it."""
    one = Appender(Doubles(table, objects), "p")  # type: ignore[arg-type]
    one.open()
    one.append()
    one.close()
    stores = LifecycleStores.open(table, objects, KEYS, grace_ms=LONGEST_GRACE_MS)
    span = {"first_offset": Offset(0), "next_offset": Offset(1)}
    put_hold(replace(stores, now=lambda: NOW), INCARNATION, **span, reason="a case", by="a judge", wait=lambda _: None)


def seal_stream(site: Site) -> None:
    """Append, and end the stream for good."""
    one = Appender(site, "s")
    one.open()
    one.append()
    one.flush()
    end_opening(one.archive, STREAM, one.epoch, is_sealed=True)


def destroy(site: Site) -> None:
    """Delete the stream."""
    one = Appender(site, "d")
    stores = LifecycleStores.open(site.table, site.objects, KEYS, grace_ms=LONGEST_GRACE_MS)
    destroy_stream(one.archive, replace(stores, now=site.clock), STREAM)


def open_blindly(site: Site) -> None:
    """Open the stream where the logs of others are not: in another bucket."""
    one = Appender(site, "x")
    elsewhere = S3WalStore(site.objects, Keys("elsewhere/"))  # type: ignore[arg-type]
    head = take_epoch(one.archive, STREAM, one.place, can_read=lambda place: len(elsewhere.sequences(place)) > 0)
    recover(one.archive, Wals({WalKind.S3: elsewhere}), head, SMALL)


def open_by_force(site: Site) -> None:
    """Give up what is in logs that cannot be read here, and append."""
    one = Appender(site, "f")
    head = take_epoch(one.archive, STREAM, one.place)
    site.tell("gave up", str(head.appender.epoch if head.appender else 0))
    state = recover(one.archive, Wals({}), head, SMALL, force=True)
    one.epoch, one.at = state.epoch, state.tail
    one.append()
    one.flush()


def go_on_in_another_log(site: Site) -> None:
    """Append, and go on in the next log, unless others have opened the stream."""
    one = Appender(site, "g")
    one.open()
    one.append()
    one.place = _reserve(one.store, "h", WalOptions(attempts=2))
    head = take_epoch(one.archive, STREAM, one.place, after=one.epoch)
    assert head.appender is not None
    one.epoch, one.sequence = head.appender.epoch, 1
    one.append()


@dataclass(frozen=True)
class Unopened:
    """Does something to a stream that it has not opened."""

    trims: bool = False

    def __call__(self, site: Site) -> None:
        one = Appender(site, "u")
        if self.trims:
            stores = LifecycleStores.open(site.table, site.objects, KEYS, grace_ms=LONGEST_GRACE_MS)
            trim_stream(one.archive, replace(stores, now=site.clock), STREAM, Epoch(1), Offset(1))
            return
        data = Batch.of([b"<u.1.1>"]).chunk(Offset(0), NOW, Epoch(1), b"")
        (chunk,) = iter_chunks(data, source="made")
        end = Offset(chunk.header.next_offset)
        flush_chunks(one.archive, STREAM, [CachedChunk(Offset(0), end, NOW, Epoch(1), data)], SMALL)


def append_surely(name: str, site: Site) -> None:
    """Append where each request is answered: then nothing may take so long that it is given up."""
    try:
        appender(name, batches=1, closes=False)(site)
    except UnavailableError as err:
        raise AssertionError("each request was answered") from err


def _always(work: Callable[[Site], None]) -> Callable[[str], Callable[[Site], None]]:
    return lambda _: work


BASES: dict[str, Callable[[MemoryTable, MemoryObjects], None]] = {
    "holed": holed,
    "straddled": straddled,
    "rebuilt": rebuilt,
    "brokers": brokers,
    "unknown": unknown,
    "held-direct": held,
}
ACTORS: dict[str, Callable[[str], Callable[[Site], None]]] = {
    "seal": _always(seal_stream),
    "sure": lambda name: partial(append_surely, name),
    "destroy": _always(destroy),
    "blind": _always(open_blindly),
    "force": _always(open_by_force),
    "next": _always(go_on_in_another_log),
    "unopened": _always(Unopened()),
    "untrimmed": _always(Unopened(trims=True)),
}
