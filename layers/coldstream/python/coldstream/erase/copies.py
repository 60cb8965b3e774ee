"""Other copies of the bytes that an erasure is about: where else in the bucket they may be.

    quarantined segments      whole copies of segments, kept until somebody looks at them
    staged segments           on their way in; what they hold that is archived is dropped on arrival
    unfinished uploads        parts of a segment or of a merged fragment; no listing of objects shows them
    uncommitted fragments     objects that no entry and no tombstone names, of writers that were killed or are at work
    write-ahead logs          of a direct stream's openings: the newest objects stay for a while once they are flushed
    recovery logs             of agents with spans for quiet streams: their objects go soon after they are archived,
                              and what versions are left of them when an erasure ends
    replaced fragments        of compactions and earlier erasures; their tombstones say when they go

Of a bucket that keeps versions, those of deleted objects count, too: a staged segment leaves one whenever it is
archived. All but the last kind are told and must go before an erasure begins. The last kind goes by itself. What is
outside of the bucket is not known here: the broker's own segments, consumers, exported tables, backups, replicas, and
write-ahead logs on a disk or in another bucket.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from operator import attrgetter

from coldstream.errors import CorruptionError, ObjectNotFoundError
from coldstream.format.fragment import FRAGMENT_TRAILER_BYTES, FragmentTrailer
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.appender import WalKind
from coldstream.manifest.entry import Quarantine, Tombstone
from coldstream.manifest.stream import StreamId
from coldstream.store.log import iter_log
from coldstream.store.parsed_keys import KeyKind, ParsedKey
from coldstream.store.quarantine_note import quarantine_note
from coldstream.store.recovery_log import read_span_header
from coldstream.store.wal_object import WalEntry, header_bytes_of, parse_header
from coldstream.units import KIB, ByteRange, Offset

_WAL_READ_BYTES = 64 * KIB
"""What is read of an object of a write-ahead log for its directory; 700 chunks have room in it."""


class CopyKind(StrEnum):
    """What a copy is."""

    QUARANTINED = "quarantined segment"
    STAGED = "staged segment"
    UPLOAD = "unfinished upload"
    UNCOMMITTED = "uncommitted fragment"
    LOGGED = "object of a write-ahead log"
    SPAN = "object of a recovery log"


@dataclass(frozen=True, slots=True)
class OtherCopy:
    """A copy of some offsets; `next_offset` None if that is not known. `upload_id` is that of an unfinished upload.

    `is_deleted` says that the object was deleted before, and that a bucket with versions still has its bytes.
    """

    kind: CopyKind
    key: str
    first_offset: Offset
    next_offset: Offset | None
    upload_id: str | None = None
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class FoundCopies:
    """The copies that overlap a span of offsets: those that must go first, and those that go when they are due.

    `quarantines` are the records of the quarantined ones.
    """

    copies: tuple[OtherCopy, ...] = ()
    quarantines: tuple[Quarantine, ...] = ()
    awaiting: tuple[Tombstone, ...] = ()


def find_copies(stores: LifecycleStores, stream: StreamId, first_offset: Offset, next_offset: Offset) -> FoundCopies:
    """Look for copies of offsets, half-open.

    Memory: the tombstones of the stream. Cost: a listing of the stream's objects, or of their versions, of its
    quarantined segments, of all staged ones and of unfinished uploads, a thousand at a time; the log up to the span's
    end, and all tombstones and missing offsets, a Query a page; a GET for each uncommitted fragment, and for each
    quarantined segment that no record names. For a direct stream besides, a GET and a listing for each opening that it
    ever had, and one or two GETs for each object that is left of their write-ahead logs. For the recovery logs a
    listing a thousand, and a GET for each object.

    Raises CorruptionError for an object of a write-ahead log, or of a recovery log, that does not say what it holds.
    """
    span = range(first_offset, next_offset)
    incarnation = stream.incarnation
    tombstones = [row for row in stores.table.rows(incarnation, "tombstone") if isinstance(row, Tombstone)]
    quarantines = [one for one in stores.table.missing(incarnation) if isinstance(one, Quarantine)]
    copies = [
        *_quarantined(stores, stream, quarantines),
        *_staged(stores, stream),
        *_uploads(stores, stream),
        *_uncommitted(stores, stream, {one.key for one in tombstones}, next_offset),
        *_logged(stores, stream, span),
        # Of deleted ones the versions go at the end of the erasure: they would be in the way of every one.
        *(one for one in find_spans(stores, stream, first_offset, next_offset) if not one.is_deleted),
    ]
    return FoundCopies(
        tuple(one for one in copies if _overlaps(span, one.first_offset, one.next_offset)),
        tuple(one for one in quarantines if _overlaps(span, one.first_offset, one.next_offset)),
        tuple(one for one in tombstones if _overlaps(span, one.first_offset, one.next_offset)),
    )


def find_spans(
    stores: LifecycleStores, stream: StreamId, first_offset: Offset, next_offset: Offset
) -> Iterator[OtherCopy]:
    """Look in the recovery logs of all nodes for copies of offsets.

    Of a deleted object, only its versions are left, which say nothing here: any of them may hold the offsets. Cost: a
    listing a thousand, and a GET for each object. Raises CorruptionError.
    """
    span = range(first_offset, next_offset)
    for found in _stored(stores, stores.keys.all_spans):
        parsed = stores.keys.parse(found.key)
        if parsed is None or parsed.kind is not KeyKind.SPAN:
            continue
        if found.is_deleted:
            yield OtherCopy(CopyKind.SPAN, found.key, first_offset, next_offset, is_deleted=True)
            continue
        try:
            entries = read_span_header(stores.objects, found.key).entries
        except ObjectNotFoundError:  # deleted by its agent since it was listed
            continue
        mine = [one for one in entries if one.stream.incarnation == stream.incarnation]
        if any(_overlaps(span, one.first_offset, one.next_offset) for one in mine):
            first, following = min(one.first_offset for one in mine), max(one.next_offset for one in mine)
            yield OtherCopy(CopyKind.SPAN, found.key, first, following)


def _overlaps(span: range, first_offset: Offset, next_offset: Offset | None) -> bool:
    return first_offset < span.stop and (next_offset is None or next_offset > span.start)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A key that has bytes: of its object, or of versions from before the object was deleted."""

    key: str
    size_bytes: int
    is_deleted: bool


def _stored(stores: LifecycleStores, prefix: str) -> Iterator[_Stored]:
    """Yield the keys under a prefix, in order."""
    if stores.bucket.versioned is False:
        yield from (_Stored(one.key, one.size_bytes, is_deleted=False) for one in stores.objects.listed(prefix))
        return
    for key, versions in groupby(stores.objects.versions(prefix), key=attrgetter("key")):
        newest, *earlier = versions
        with_bytes = [version for version in (newest, *earlier) if not version.is_delete_marker]
        if with_bytes:
            yield _Stored(key, with_bytes[0].size_bytes, is_deleted=newest.is_delete_marker)


def _parsed(stores: LifecycleStores, prefix: str) -> Iterator[tuple[_Stored, ParsedKey]]:
    for found in _stored(stores, prefix):
        parsed = stores.keys.parse(found.key)
        if parsed is not None and parsed.first_offset is not None:
            yield found, parsed


def _quarantined(stores: LifecycleStores, stream: StreamId, records: list[Quarantine]) -> Iterator[OtherCopy]:
    # A key does not tell the end, and segments of several ends may begin at one offset.
    ends = {record.key: record.next_offset for record in records}
    for found, parsed in _parsed(stores, stores.keys.quarantine(stream.incarnation)):
        if parsed.kind is KeyKind.QUARANTINED and parsed.first_offset is not None:
            next_offset = ends.get(found.key) or _noted_end(stores, found.key)
            yield OtherCopy(
                CopyKind.QUARANTINED, found.key, parsed.first_offset, next_offset, is_deleted=found.is_deleted
            )


def _noted_end(stores: LifecycleStores, key: str) -> Offset | None:
    """Read the next offset from the note beside a quarantined segment, None if there is none that says it."""
    try:
        return Offset(int(quarantine_note(stores.objects, key)["next_offset"]))
    except (ValueError, KeyError, TypeError):
        return None


def _staged(stores: LifecycleStores, stream: StreamId) -> Iterator[OtherCopy]:
    # Of all clusters: what one staged to which the stream is not bound is refused by the upload function, and stays.
    for found, parsed in _parsed(stores, stores.keys.all_staging):
        if parsed.incarnation == stream.incarnation and parsed.first_offset is not None:
            yield OtherCopy(
                CopyKind.STAGED, found.key, parsed.first_offset, parsed.next_offset, is_deleted=found.is_deleted
            )


def _uploads(stores: LifecycleStores, stream: StreamId) -> Iterator[OtherCopy]:
    for prefix in (stores.keys.all_staging, stores.keys.fragments(stream.incarnation)):
        for key, upload_id in stores.objects.uploads_under(prefix):
            parsed = stores.keys.parse(key)
            if parsed is not None and parsed.incarnation == stream.incarnation and parsed.first_offset is not None:
                yield OtherCopy(CopyKind.UPLOAD, key, parsed.first_offset, parsed.next_offset, upload_id)


def _uncommitted(
    stores: LifecycleStores, stream: StreamId, tombstoned: set[str], next_offset: Offset
) -> Iterator[OtherCopy]:
    """Yield the objects that nothing names, by the listing and the log, which have the same order.

    What others commit meanwhile may be among them: `discard.discard` proves of each that nothing names it.
    """
    entries = iter_log(stores.table, stream.incarnation, Offset(0))
    entry = next(entries, None)
    at: Offset | None = None
    named: set[str] = set()
    for found, parsed in _parsed(stores, stores.keys.fragments(stream.incarnation)):
        first_offset = parsed.first_offset
        if first_offset is None or first_offset >= next_offset:
            return
        if first_offset != at:
            at, named = first_offset, set()
        while entry is not None and entry.first_offset <= first_offset:
            named.add(entry.key)
            entry = next(entries, None)
        if found.key not in named and found.key not in tombstoned:
            end = None if found.is_deleted else _trailer_end(stores, found)
            yield OtherCopy(CopyKind.UNCOMMITTED, found.key, first_offset, end, is_deleted=found.is_deleted)


def _logged(stores: LifecycleStores, stream: StreamId, span: range) -> Iterator[OtherCopy]:
    """Yield what the write-ahead logs hold of the span, also those that the head has forgotten: notes name them all.

    Of a deleted object, only its versions are left, which say nothing here: any of them may hold the span.
    """
    places = {one.wal for one in stores.control.openings(stream.incarnation) if one.wal.kind is WalKind.S3}
    for place in sorted(places, key=str):
        prefix = stores.keys.wal_object(place.writer, place.epoch, 0).rpartition("/")[0] + "/"
        for found in _stored(stores, prefix):
            parsed = stores.keys.parse(found.key)
            if parsed is None or parsed.kind is not KeyKind.WAL:
                continue
            if found.is_deleted:
                whole = Offset(span.start), Offset(span.stop)
                yield OtherCopy(CopyKind.LOGGED, found.key, *whole, is_deleted=True)
                continue
            mine = [one for one in _wal_entries(stores, found) if one.incarnation == stream.incarnation]
            if mine:
                yield OtherCopy(CopyKind.LOGGED, found.key, mine[0].first_offset, mine[-1].next_offset)


def _wal_entries(stores: LifecycleStores, found: _Stored) -> tuple[WalEntry, ...]:
    """Read what an object of a write-ahead log holds; nothing if its writer has just deleted it."""
    try:
        view = stores.objects.get_range(found.key, ByteRange(0, min(found.size_bytes, _WAL_READ_BYTES))).data
        size_bytes = header_bytes_of(view, source=found.key)
        if size_bytes > len(view):
            view = stores.objects.get_range(found.key, ByteRange(0, size_bytes)).data
    except ObjectNotFoundError:
        return ()
    return parse_header(view, source=found.key).entries


def _trailer_end(stores: LifecycleStores, found: _Stored) -> Offset | None:
    """Read where an identity fragment ends; None for any other object."""
    start = max(0, found.size_bytes - FRAGMENT_TRAILER_BYTES)
    try:
        end = stores.objects.get_range(found.key, ByteRange(start, found.size_bytes)).data
        return FragmentTrailer.from_bytes(end, source=found.key, object_bytes=found.size_bytes).next_offset
    except (ObjectNotFoundError, CorruptionError):
        return None
