"""In-memory doubles of the two ports, for tests and trials.

They keep the rules of the real ones: conditions, all or nothing, checksums. `requests` counts what the real ones would
have sent, by the name of the AWS call. To make something fail, subclass them. What the real table does not promise,
`visibility` takes away: transactions that show by half, an index that lags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import islice
from threading import Lock, RLock
from typing import BinaryIO, TypeVar
from urllib.parse import quote
from zlib import crc32 as crc32_of

from coldstream.errors import (
    BadCrcError,
    ColdstreamError,
    ConflictError,
    LostRaceError,
    ObjectExistsError,
    ObjectNotFoundError,
    ReplacedError,
)
from coldstream.manifest.access import Grant
from coldstream.manifest.change import MAX_ITEMS, Change, EntryVersion
from coldstream.manifest.cluster import NO_CLUSTER, Cluster
from coldstream.manifest.entry import FragmentEntry, Gap, Head, JournalEvent, Missing, Quarantine, Tombstone
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.memory.visibility import Items, ShownPartition, Visibility, changed
from coldstream.store.ports import LogPage, ObjectInfo, RangeRead, StreamPage, UploadedPart
from coldstream.store.sortkeys import (
    LAST_EVENT,
    LAST_GAP,
    LAST_MISSING,
    LOG_HEAD,
    MISSING,
    TOMBSTONES,
    check_cursor,
    due_from,
    event_key,
    gap_key,
    grant_key,
    log_key,
    missing_from,
    missing_key,
    names_key,
    quarantine_key,
    registry_key,
    time_from,
    tombstone_key,
)
from coldstream.units import MAX_OFFSET, ByteRange, Offset, TimestampMs

_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class _Partition:
    """What the table holds of one incarnation, never changed in place.

    Entries are under their next offset, what is missing and tombstones under their sort keys.
    """

    head: Head | None = None
    entries: dict[Offset, FragmentEntry] = field(default_factory=dict)
    gaps: dict[Offset, Gap] = field(default_factory=dict)
    missing: dict[str, Missing] = field(default_factory=dict)
    events: dict[int, JournalEvent] = field(default_factory=dict)
    tombstones: dict[str, Tombstone] = field(default_factory=dict)

    def items(self, kind: str = "") -> Items:
        """Return those of a kind, or all of them, by sort key."""
        found: dict[str, object] = {}
        if kind in {"", "log"}:
            found |= {log_key(end): entry for end, entry in self.entries.items()}
            found |= {} if self.head is None else {LOG_HEAD: self.head}
        if kind in {"", "gap"}:
            found |= {gap_key(first): gap for first, gap in self.gaps.items()}
        if kind in {"", "event"}:
            found |= {event_key(revision): event for revision, event in self.events.items()}
        if kind in {"", "loss", "quarantine"}:
            found |= self.missing
        if kind in {"", "tombstone"}:
            found |= self.tombstones
        return found


class MemoryTable:
    """Implement `ports.ManifestTable` in memory. A read or write looks at all of a stream's entries.

    What is written shows at once, or as the visibility says.
    """

    def __init__(self, visibility: Visibility | None = None) -> None:
        self.requests: Counter[str] = Counter()
        self._visibility = visibility
        self._partitions: dict[Incarnation, _Partition] = {}
        self._visible: dict[Incarnation, ShownPartition] = {}
        self._registry: dict[str, StreamId] = {}
        self._clusters: dict[str, Cluster] = {}
        self._grants: dict[str, Grant] = {}
        self._lock = RLock()

    def settle(self) -> None:
        """Have all that was written show."""
        with self._lock:
            for shown in self._visible.values():
                shown.settle()

    def head(self, incarnation: Incarnation) -> Head | None:
        """Return the head."""
        return self._get(incarnation, LOG_HEAD, Head)

    def log_from_offset(self, incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:
        """Return the log from the entry that holds `offset`."""
        return _log_page(self._query(incarnation, log_key(Offset(offset + 1)), LOG_HEAD, limit + 1), limit)

    def log_from_timestamp(self, incarnation: Incarnation, timestamp: TimestampMs, limit: int) -> LogPage:
        """Return the log from the first entry that can hold a chunk at or after `timestamp`."""
        self._count("Query")
        shown = self._weak(incarnation)
        if shown is not None:
            return _log_page(list(islice(shown.query_index(time_from(timestamp)), limit + 1)), limit)
        partition = self._partitions.get(incarnation, _Partition())
        late = (entry for entry in partition.entries.values() if entry.running_timestamp >= timestamp)
        found = sorted(late, key=lambda entry: (entry.running_timestamp, entry.next_offset))
        return _log_page([*found, partition.head][: limit + 1], limit)

    def log_end(self, incarnation: Incarnation, limit: int) -> LogPage:
        """Return the last entries, and the head."""
        found = self._query(incarnation, log_key(Offset(0)), LOG_HEAD, limit + 1, backwards=True)
        return _log_page(found[::-1], limit)

    def log_at_once(self, incarnation: Incarnation, next_offsets: Sequence[Offset]) -> LogPage | None:
        """Return the entries that end at these offsets, and the head, of one moment."""
        self._count("TransactGetItems")
        keys = [*map(log_key, next_offsets), LOG_HEAD]
        shown = self._weak(incarnation)
        if shown is not None and shown.conflict(keys) is not None:
            return None
        items = self._partitions.get(incarnation, _Partition()).items("log")
        return _log_page([items[key] for key in keys], len(next_offsets)) if items.keys() >= set(keys) else None

    def log_before(self, incarnation: Incarnation, offset: Offset, limit: int) -> tuple[FragmentEntry, ...]:
        """Return the log backwards from the entry that ends at or before `offset`."""
        found = self._query(incarnation, log_key(Offset(0)), log_key(offset), limit, backwards=True)
        return _all_of(FragmentEntry, found)

    def gap(self, incarnation: Incarnation, first_offset: Offset) -> Gap | None:
        """Return the gap that begins at `first_offset`."""
        return self._get(incarnation, gap_key(first_offset), Gap)

    def gaps(
        self,
        incarnation: Incarnation,
        limit: int,
        *,
        from_offset: Offset = Offset(0),  # noqa: B008  a NewType is its value
    ) -> tuple[Gap, ...]:
        """Return the first gaps from an offset on."""
        return _all_of(Gap, self._query(incarnation, gap_key(from_offset), LAST_GAP, limit))

    def gaps_before(self, incarnation: Incarnation, offset: Offset, limit: int) -> tuple[Gap, ...]:
        """Return the gaps backwards from the one that begins before `offset`."""
        between = gap_key(Offset(0)), gap_key(offset)
        found = _all_of(Gap, self._query(incarnation, *between, limit + 1, backwards=True))
        return tuple(gap for gap in found if gap.first_offset < offset)[:limit]

    def missing(self, incarnation: Incarnation) -> Iterator[Missing]:
        """Yield what is known to be missing."""
        for one in self._query(incarnation, MISSING, LAST_MISSING):
            assert isinstance(one, Missing)
            yield one

    def missing_before(
        self, incarnation: Incarnation, kind: type[Missing], offset: Offset, limit: int
    ) -> tuple[Missing, ...]:
        """Return what begins at or before `offset`, nearest first."""
        between = missing_from(kind, Offset(0)), missing_from(kind, Offset(offset + 1))
        return _all_of(kind, self._query(incarnation, *between, limit, backwards=True))

    def missing_after(
        self, incarnation: Incarnation, kind: type[Missing], offset: Offset, limit: int
    ) -> tuple[Missing, ...]:
        """Return what begins after `offset`, in order."""
        between = missing_from(kind, Offset(offset + 1)), missing_from(kind, Offset(MAX_OFFSET + 1))
        return _all_of(kind, self._query(incarnation, *between, limit))

    def quarantine(self, incarnation: Incarnation, first_offset: Offset, next_offset: Offset) -> Quarantine | None:
        """Return what is said of a segment in quarantine."""
        return self._get(incarnation, quarantine_key(first_offset, next_offset), Quarantine)

    def tombstones(self, incarnation: Incarnation, due_by: TimestampMs, limit: int) -> tuple[Tombstone, ...]:
        """Return the first tombstones that are due."""
        found = self._query(incarnation, TOMBSTONES, due_from(TimestampMs(due_by + 1)), limit)
        return _all_of(Tombstone, found)

    def journal(self, incarnation: Incarnation, after_revision: int = 0) -> Iterator[JournalEvent]:
        """Yield the events after a revision."""
        yield from _all_of(JournalEvent, self._query(incarnation, event_key(after_revision + 1), LAST_EVENT))

    def incarnation_of(self, vhost: str, name: str) -> Incarnation | None:
        """Return the newest incarnation of a stream. Raises InvalidNameError."""
        names = names_key(vhost, name)
        self._count("Query")
        newest = max((key for key in list(self._registry) if key.startswith(names)), default=None)
        return None if newest is None else self._registry[newest].incarnation

    def bound_cluster(self, vhost: str, name: str) -> Cluster:
        """Return the cluster that a stream is bound to. Raises InvalidNameError."""
        key = names_key(vhost, name)
        self._count("GetItem")
        return self._clusters.get(key, NO_CLUSTER)

    def bind_cluster(self, vhost: str, name: str, cluster: Cluster) -> Cluster:
        """Bind a stream to a cluster, unless it is bound. Raises InvalidNameError."""
        key = names_key(vhost, name)
        self._count("PutItem")
        with self._lock:
            return self._clusters.setdefault(key, cluster)

    def streams(self, cursor: str | None, limit: int) -> StreamPage:
        """Return some of the streams, in the order of their names' hashes."""
        after = "" if cursor is None else check_cursor(cursor)
        self._count("Query")
        keys = sorted(key for key in list(self._registry) if key > after)
        page = keys[:limit]
        return StreamPage(tuple(self._registry[key] for key in page), page[-1] if len(keys) > limit else None)

    def grants(self) -> tuple[Grant, ...]:
        """Return who may read what."""
        self._count("Query")
        return tuple(grant for _, grant in sorted(self._grants.items()))

    def put_grant(self, grant: Grant) -> None:
        """Let somebody read something."""
        self._count("PutItem")
        self._grants[grant_key(grant)] = grant

    def delete_grant(self, grant: Grant) -> bool:
        """Take that back."""
        self._count("DeleteItem")
        return self._grants.pop(grant_key(grant), None) is not None

    def apply(self, change: Change) -> None:
        """Write a change."""
        assert change.items <= MAX_ITEMS, f"a change of {change.items} items"
        self._count("TransactWriteItems")
        stream = change.head.stream
        with self._lock:
            before = self._partitions.get(stream.incarnation, _Partition())
            after = _changed(before, change)
            shown = self._weak(stream.incarnation)
            if shown is not None:
                conflict = shown.conflict(changed(before.items(), after.items()))
                if conflict is not None or before is not self._partitions.get(stream.incarnation, before):
                    raise LostRaceError(f"transaction conflict: {conflict} of {stream} is being written")
                shown.begin(before.items(), after.items())
            self._partitions[stream.incarnation] = after
            if before.head is None:
                self._registry[registry_key(stream.vhost, stream.name, stream.incarnation)] = stream

    def _get(self, incarnation: Incarnation, key: str, kind: type[_Kind]) -> _Kind | None:
        self._count("GetItem")
        shown = self._weak(incarnation)
        if shown is None:
            found = self._partitions.get(incarnation, _Partition()).items(_kind(key)).get(key)
        else:
            found = shown.get(key)
        return found if isinstance(found, kind) else None

    def _query(
        self, incarnation: Incarnation, first: str, last: str, limit: int | None = None, *, backwards: bool = False
    ) -> list[object]:
        """Read a range of keys, both included."""
        self._count("Query")
        shown = self._weak(incarnation)
        if shown is not None:
            return list(islice(shown.query(first, last, backwards=backwards), limit))
        items = self._partitions.get(incarnation, _Partition()).items(_kind(first))
        keys = sorted((key for key in items if first <= key <= last), reverse=backwards)
        return [items[key] for key in keys[:limit]]

    def _weak(self, incarnation: Incarnation) -> ShownPartition | None:
        if self._visibility is None:
            return None
        with self._lock:
            if incarnation not in self._visible:
                newest = partial(self._items, incarnation)
                self._visible[incarnation] = ShownPartition(self._visibility, newest)
            return self._visible[incarnation]

    def _items(self, incarnation: Incarnation) -> Items:
        return self._partitions.get(incarnation, _Partition()).items()

    def _count(self, call: str) -> None:
        with self._lock:
            self.requests[call] += 1


def _kind(key: str) -> str:
    return key.partition("#")[0]


def _all_of(kind: type[_Kind], found: Iterable[object]) -> tuple[_Kind, ...]:
    return tuple(one for one in found if isinstance(one, kind))


def _log_page(found: Sequence[object], limit: int) -> LogPage:
    """Cut a page: one item more than it may have was read, so that the head is seen behind the last entry."""
    head = found[-1] if found and isinstance(found[-1], Head) else None
    return LogPage(_all_of(FragmentEntry, found)[:limit], head)


def _changed(before: _Partition, change: Change) -> _Partition:
    """Apply a change. Raises LostRaceError where one of its conditions does not hold."""
    revision = 0 if before.head is None else before.head.revision
    if revision != change.head.revision - 1:
        raise LostRaceError(f"revision {change.head.revision} of {change.head.stream}: the head is at {revision}")
    events, tombstones = dict(before.events), dict(before.tombstones)
    if change.event is not None:
        _check(change.event.revision not in events, f"event {change.event.revision} is there")
        events[change.event.revision] = change.event
    tombstones.update({tombstone_key(one): one for one in change.put_tombstones})
    for tombstone in change.delete_tombstones:
        _check(tombstone_key(tombstone) in tombstones, f"the tombstone of {tombstone.key} is gone")
        del tombstones[tombstone_key(tombstone)]
    return _Partition(
        change.head,
        _changed_log(before.entries, change),
        _changed_gaps(before.gaps, change),
        _changed_missing(before.missing, change),
        events,
        tombstones,
    )


def _changed_log(before: dict[Offset, FragmentEntry], change: Change) -> dict[Offset, FragmentEntry]:
    entries = dict(before)
    replaced = () if change.replaces is None else (change.replaces,)
    relinked = (relink.before for relink in change.relinks)
    for version in (*relinked, *replaced, *change.delete_entries, *change.same_entries):
        there = entries.get(version.next_offset)
        same = there is not None and EntryVersion.of(there) == version
        _check(same, f"the entry that ends before {version.next_offset} is another, or gone")
    for relink in change.relinks:
        entries[relink.next_offset] = replace(
            entries[relink.next_offset], prior_offset=relink.prior_offset, prior_timestamp=relink.prior_timestamp
        )
    if change.put_entry is not None:
        end = change.put_entry.next_offset
        _check(end not in entries, f"an entry already ends before {end}")
        entries[end] = change.put_entry
    if change.replace_entry is not None:
        entries[change.replace_entry.next_offset] = change.replace_entry
    for version in change.delete_entries:
        del entries[version.next_offset]
    return entries


def _changed_gaps(before: dict[Offset, Gap], change: Change) -> dict[Offset, Gap]:
    gaps = dict(before)
    for one in change.gaps:
        there = gaps.pop(one.first_offset, None)
        is_same = there == one.before if one.before == one.after else _end(there) == _end(one.before)
        _check(is_same, f"the gap from {one.first_offset} on is another")
        if one.after is not None:
            gaps[one.first_offset] = one.after
    return gaps


def _changed_missing(before: dict[str, Missing], change: Change) -> dict[str, Missing]:
    new = change.put_missing
    if new is None:
        return before
    there = before.get(missing_key(new))
    copies = there.copies if isinstance(there, Quarantine) else 0
    expected = new.copies - 1 if isinstance(new, Quarantine) else 0
    _check(copies == expected and (there is None or copies > 0), f"{missing_key(new)} is another")
    return {**before, missing_key(new): new}


def _end(gap: Gap | None) -> Offset | None:
    return None if gap is None else gap.next_offset


def _check(holds: bool, what: str) -> None:  # noqa: FBT001  a condition
    if not holds:
        raise LostRaceError(what)


@dataclass(frozen=True, slots=True)
class _Upload:
    """An unfinished multipart upload; parts and their bytes are under their numbers."""

    key: str
    parts: dict[int, tuple[UploadedPart, bytes]] = field(default_factory=dict)


class MemoryObjects:
    """Implement `ports.ObjectStore` in memory."""

    def __init__(self, bucket: str = "memory") -> None:
        self.requests: Counter[str] = Counter()
        self.objects: dict[str, bytes] = {}
        self._uploads: dict[str, _Upload] = {}
        self._bucket = bucket
        self._lock = Lock()

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        return self._bucket

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        """Read a range."""
        data, etag = self._read("GetObject", key, if_match)
        return RangeRead(data[byte_range.start : byte_range.end], len(data), etag)

    def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int) -> None:
        """Write an object from the whole of a seekable file."""
        body.seek(0)
        data = body.read()
        if len(data) != size_bytes:
            raise ValueError(f"PUT {key}: the body has {len(data)} bytes, not {size_bytes}")
        self._count("PutObject")
        _check_crc32(key, data, crc32)
        with self._lock:
            self._put_new(key, data)

    def uploads(self, key: str) -> tuple[str, ...]:
        """Return the ids of the unfinished multipart uploads to a key."""
        return tuple(upload_id for found, upload_id in self.uploads_under(key) if found == key)

    def uploads_under(self, prefix: str) -> tuple[tuple[str, str], ...]:
        """Return key and id of the unfinished multipart uploads under a prefix."""
        self._count("ListMultipartUploads")
        uploads = tuple(self._uploads.items())
        return tuple((upload.key, upload_id) for upload_id, upload in uploads if upload.key.startswith(prefix))

    def create_upload(self, key: str) -> str:
        """Begin a multipart upload."""
        self._count("CreateMultipartUpload")
        with self._lock:
            upload_id = f"upload-{self.requests['CreateMultipartUpload']}"
            self._uploads[upload_id] = _Upload(key)
        return upload_id

    def parts(self, key: str, upload_id: str) -> tuple[UploadedPart, ...]:
        """Return the parts that an upload has."""
        self._count("ListParts")
        with self._lock:
            return tuple(part for _, (part, _) in sorted(self._upload(key, upload_id).parts.items()))

    def put_part(self, key: str, upload_id: str, number: int, data: bytes, *, crc32: int) -> UploadedPart:
        """Write a part."""
        self._count("UploadPart")
        _check_crc32(key, data, crc32)
        part = UploadedPart(number, len(data), crc32, _etag(data))
        with self._lock:
            self._upload(key, upload_id).parts[number] = part, data
        return part

    def copy_part(
        self, source_key: str, byte_range: ByteRange, key: str, upload_id: str, number: int, *, if_match: str
    ) -> UploadedPart:
        """Write a part that is a range of another object."""
        source, _ = self._read("UploadPartCopy", source_key, if_match)
        if byte_range.end > len(source):
            raise ColdstreamError(f"COPY {source_key}: {byte_range.http} of {len(source)} bytes")
        data = source[byte_range.start : byte_range.end]
        part = UploadedPart(number, len(data), crc32_of(data), _etag(data))
        with self._lock:
            self._upload(key, upload_id).parts[number] = part, data
        return part

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[UploadedPart], *, crc32: int) -> None:
        """Make the object of these parts."""
        self._count("CompleteMultipartUpload")
        with self._lock:
            there = self._upload(key, upload_id).parts
            if any(part.number not in there or there[part.number][0].etag != part.etag for part in parts):
                raise ConflictError(f"completion of {key}: a part is another")
            data = b"".join(there[part.number][1] for part in parts)
            _check_crc32(key, data, crc32)
            self._put_new(key, data)
            del self._uploads[upload_id]

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Drop an upload."""
        self._count("AbortMultipartUpload")
        with self._lock, suppress(ConflictError):
            self._upload(key, upload_id)
            del self._uploads[upload_id]

    def info(self, key: str) -> ObjectInfo | None:
        """Return what is at a key."""
        try:
            data, etag = self._read("HeadObject", key, None)
        except ObjectNotFoundError:
            return None
        return ObjectInfo(len(data), etag, crc32_of(data))

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys that begin with a prefix, in order."""
        self._count("ListObjectsV2")
        yield from sorted(key for key in tuple(self.objects) if key.startswith(prefix))

    def copy(self, source_key: str, target_key: str, *, if_match: str) -> None:
        """Copy an object."""
        data, _ = self._read("CopyObject", source_key, if_match)
        self.objects[target_key] = data

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Delete what is at a key."""
        with suppress(ObjectNotFoundError):
            self._read("DeleteObject", key, if_match)
        self.objects.pop(key, None)

    def presign_get(self, key: str, byte_range: ByteRange, *, expires_s: int) -> str:
        """Return a URL that says what it would grant; nothing serves it."""
        return f"memory://{self._bucket}/{quote(key)}?range={byte_range.http}&expires={expires_s}"

    def _put_new(self, key: str, data: bytes) -> None:
        if key in self.objects:
            raise ObjectExistsError(key)
        self.objects[key] = data

    def _upload(self, key: str, upload_id: str) -> _Upload:
        upload = self._uploads.get(upload_id)
        if upload is None or upload.key != key:
            raise ConflictError(f"{key}: the upload is gone")
        return upload

    def _read(self, call: str, key: str, if_match: str | None) -> tuple[bytes, str]:
        self._count(call)
        try:
            data = self.objects[key]
        except KeyError:
            raise ObjectNotFoundError(key) from None
        etag = _etag(data)
        if if_match not in {None, etag}:
            raise ReplacedError(call, key)
        return data, etag

    def _count(self, call: str) -> None:
        with self._lock:
            self.requests[call] += 1


def _etag(data: bytes) -> str:
    return f'"{sha256(data).hexdigest()[:32]}"'


def _check_crc32(key: str, data: bytes, crc32: int) -> None:
    if (found := crc32_of(data)) != crc32:
        raise BadCrcError(key, 0, "CRC-32 of what was sent", expected=f"{crc32:08x}", found=f"{found:08x}")
