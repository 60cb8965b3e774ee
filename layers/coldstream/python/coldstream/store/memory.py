"""In-memory doubles of the two ports, for tests and trials.

They keep the rules of the real ones: conditions, all or nothing, checksums. `requests` counts what the real ones would
have sent, by the name of the AWS call. To make something fail, subclass them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from threading import Lock
from typing import BinaryIO
from urllib.parse import quote
from zlib import crc32 as crc32_of

from coldstream.errors import BadCrcError, ConflictError, LostRaceError, ObjectExistsError, ObjectNotFoundError
from coldstream.manifest.commit import MAX_ITEMS, Change
from coldstream.manifest.entry import FragmentEntry, Gap, Head, JournalEvent
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.ports import LogPage, ObjectInfo, RangeRead, StreamPage
from coldstream.store.sortkeys import check_cursor, names_key, registry_key
from coldstream.units import ByteRange, Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class _Partition:
    """What the table holds of one incarnation, never changed in place: entries are under their next offset."""

    head: Head | None = None
    entries: dict[Offset, FragmentEntry] = field(default_factory=dict)
    gaps: dict[Offset, Gap] = field(default_factory=dict)
    events: dict[int, JournalEvent] = field(default_factory=dict)

    def page(self, log: Iterable[FragmentEntry], limit: int) -> LogPage:
        """Cut a page off what is left of the log."""
        entries = tuple(log)
        return LogPage(entries[:limit], self.head if len(entries) <= limit else None)


class MemoryTable:
    """Implement `ports.ManifestTable` in memory. A read or write looks at all of a stream's entries."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self._partitions: dict[Incarnation, _Partition] = {}
        self._registry: dict[str, StreamId] = {}
        self._lock = Lock()

    def head(self, incarnation: Incarnation) -> Head | None:
        """Return the head."""
        return self._read("GetItem", incarnation).head

    def log_from_offset(self, incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:
        """Return the log from the entry that holds `offset`."""
        partition = self._read("Query", incarnation)
        return partition.page(
            (partition.entries[end] for end in sorted(partition.entries) if end > offset),
            limit,
        )

    def log_from_timestamp(self, incarnation: Incarnation, timestamp: TimestampMs, limit: int) -> LogPage:
        """Return the log from the first entry that can hold a chunk at or after `timestamp`."""
        partition = self._read("Query", incarnation)
        late = (entry for entry in partition.entries.values() if entry.running_timestamp >= timestamp)
        return partition.page(sorted(late, key=lambda entry: (entry.running_timestamp, entry.next_offset)), limit)

    def log_before(self, incarnation: Incarnation, offset: Offset, limit: int) -> tuple[FragmentEntry, ...]:
        """Return the log backwards from the entry that ends at or before `offset`."""
        entries = self._read("Query", incarnation).entries
        return tuple(entries[end] for end in sorted(entries, reverse=True) if end <= offset)[:limit]

    def gap(self, incarnation: Incarnation, first_offset: Offset) -> Gap | None:
        """Return the gap that begins at `first_offset`."""
        return self._read("GetItem", incarnation).gaps.get(first_offset)

    def gaps(self, incarnation: Incarnation, limit: int) -> tuple[Gap, ...]:
        """Return the first gaps."""
        gaps = self._read("Query", incarnation).gaps
        return tuple(gaps[first] for first in sorted(gaps))[:limit]

    def journal(self, incarnation: Incarnation, after_revision: int = 0) -> Iterator[JournalEvent]:
        """Yield the events after a revision."""
        events = self._read("Query", incarnation).events
        yield from (event for revision, event in sorted(events.items()) if revision > after_revision)

    def incarnation_of(self, vhost: str, name: str) -> Incarnation | None:
        """Return the newest incarnation of a stream. Raises InvalidNameError."""
        names = names_key(vhost, name)
        self._count("Query")
        newest = max((key for key in list(self._registry) if key.startswith(names)), default=None)
        return None if newest is None else self._registry[newest].incarnation

    def streams(self, cursor: str | None, limit: int) -> StreamPage:
        """Return some of the streams, in the order of their names' hashes."""
        after = "" if cursor is None else check_cursor(cursor)
        self._count("Query")
        keys = sorted(key for key in list(self._registry) if key > after)
        page = keys[:limit]
        return StreamPage(tuple(self._registry[key] for key in page), page[-1] if len(keys) > limit else None)

    def apply(self, change: Change) -> None:
        """Write a change."""
        assert change.items <= MAX_ITEMS, f"a change of {change.items} items"
        self._count("TransactWriteItems")
        stream = change.head.stream
        with self._lock:
            before = self._partitions.get(stream.incarnation, _Partition())
            self._partitions[stream.incarnation] = _changed(before, change)
            if before.head is None:
                self._registry[registry_key(stream.vhost, stream.name, stream.incarnation)] = stream

    def _read(self, call: str, incarnation: Incarnation) -> _Partition:
        self._count(call)
        return self._partitions.get(incarnation, _Partition())

    def _count(self, call: str) -> None:
        with self._lock:
            self.requests[call] += 1


def _changed(before: _Partition, change: Change) -> _Partition:
    revision = 0 if before.head is None else before.head.revision
    if revision != change.head.revision - 1:
        raise LostRaceError(f"revision {change.head.revision} of {change.head.stream}: the head is at {revision}")
    entries, gaps, events = dict(before.entries), dict(before.gaps), dict(before.events)
    for relink in change.relinks:
        if relink.next_offset not in entries:
            raise LostRaceError(f"no entry ends before {relink.next_offset}")
        entries[relink.next_offset] = replace(
            entries[relink.next_offset], prior_offset=relink.prior_offset, prior_timestamp=relink.prior_timestamp
        )
    if change.put_entry is not None:
        if change.put_entry.next_offset in entries:
            raise LostRaceError(f"an entry already ends before {change.put_entry.next_offset}")
        entries[change.put_entry.next_offset] = change.put_entry
    if change.event is not None:
        events[change.event.revision] = change.event
    for first_offset in change.delete_gaps:
        gaps.pop(first_offset, None)
    gaps.update({gap.first_offset: gap for gap in change.put_gaps})
    return _Partition(change.head, entries, gaps, events)


class MemoryObjects:
    """Implement `ports.ObjectStore` in memory."""

    def __init__(self, bucket: str = "memory") -> None:
        self.requests: Counter[str] = Counter()
        self.objects: dict[str, bytes] = {}
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
        if (found := crc32_of(data)) != crc32:
            raise BadCrcError(key, 0, "CRC-32 of the object", expected=f"{crc32:08x}", found=f"{found:08x}")
        with self._lock:
            if key in self.objects:
                raise ObjectExistsError(key)
            self.objects[key] = data

    def info(self, key: str) -> ObjectInfo | None:
        """Return what is at a key."""
        try:
            data, etag = self._read("HeadObject", key, None)
        except ObjectNotFoundError:
            return None
        return ObjectInfo(len(data), etag, crc32_of(data))

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

    def _read(self, call: str, key: str, if_match: str | None) -> tuple[bytes, str]:
        self._count(call)
        try:
            data = self.objects[key]
        except KeyError:
            raise ObjectNotFoundError(key) from None
        etag = f'"{sha256(data).hexdigest()[:32]}"'
        if if_match not in {None, etag}:
            raise ConflictError(f"{call} {key}: the object there is another")
        return data, etag

    def _count(self, call: str) -> None:
        with self._lock:
            self.requests[call] += 1
