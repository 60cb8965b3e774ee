"""The scrub's reads of table and bucket: each is charged to the budget first, by what the ports say that it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from coldstream.errors import TruncatedError
from coldstream.manifest.change import Change
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.entry import FragmentEntry, Gap, Head, Hold, JournalEvent, Missing, Row
from coldstream.manifest.state_item import StateItem
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.scrub.budget import MIN_REQUESTS, Meter
from coldstream.scrub.deep import BLOCK_BYTES
from coldstream.scrub.snapshot import Snapshot
from coldstream.store.control import MAX_NOTE_BYTES, FloorNote
from coldstream.store.direct_names import DirectName, add_name, find_name
from coldstream.store.notes import parse_note
from coldstream.store.ports import LogPage, ManifestTable, ObjectInfo, ObjectStore, StreamPage
from coldstream.store.sortkeys import LOG_HEAD
from coldstream.units import ByteRange, Offset, TimestampMs

PAGE_ROWS = 200
"""Items of one Query: far less than a megabyte of them, so that each page is one request."""

MAX_KEYS = 99
"""Items that can be read at one moment, beside the head."""

STATES = 2
"""State items of one Query: three of the largest fit its megabyte, with their keys."""

LISTED = 1000
"""Keys of one listing."""

READINGS = 4
"""How often an object is read at most: each of two looks, and twice to rebuild its entry."""

SNAPSHOT_ATTEMPTS = 16
"""Reads of a moment before the scrub leaves a busy item for the next pass; a transaction takes milliseconds."""


class ScrubReads:
    """One archive, read on a budget. Every method raises BudgetSpentError before the request that does not fit."""

    def __init__(
        self, table: ManifestTable, objects: ObjectStore, meter: Meter, *, pause: Callable[[int], None] = lambda _: None
    ) -> None:
        self._table = table
        self._objects = objects
        self._meter = meter
        self._pause = pause

    def at_once(self, incarnation: Incarnation, keys: Sequence[str]) -> Snapshot | None:
        """Return items, at most MAX_KEYS, and the head, as of one moment; None if they were busy all the time.

        None as well if there is no head.
        """
        for attempt in range(SNAPSHOT_ATTEMPTS):
            self._meter.charge()
            found = self._table.items_at_once(incarnation, [LOG_HEAD, *dict.fromkeys(keys)])
            if found is not None:
                head = found.get(LOG_HEAD)
                return Snapshot(head, found) if isinstance(head, Head) else None
            self._pause(attempt)
        return None

    def is_headless(self, incarnation: Incarnation) -> bool:
        """Tell whether there is certainly no head: none shows, and nobody is writing one."""
        self._meter.charge()
        return self._table.items_at_once(incarnation, [LOG_HEAD]) == {}

    def head(self, incarnation: Incarnation) -> Head | None:
        """Return the head."""
        self._meter.charge()
        return self._table.head(incarnation)

    def log(self, incarnation: Incarnation, offset: Offset, limit: int = PAGE_ROWS) -> LogPage:
        """Return a page of the log from the entry that holds an offset."""
        self._meter.charge()
        return self._table.log_from_offset(incarnation, offset, limit)

    def log_by_time(self, incarnation: Incarnation, timestamp: TimestampMs) -> LogPage:
        """Return a page of the index by time."""
        self._meter.charge()
        return self._table.log_from_timestamp(incarnation, timestamp, PAGE_ROWS)

    def entry_before(self, incarnation: Incarnation, offset: Offset) -> FragmentEntry | None:
        """Return the last entry that ends at or before an offset."""
        self._meter.charge()
        return next(iter(self._table.log_before(incarnation, offset, 1)), None)

    def gaps(self, incarnation: Incarnation, from_offset: Offset) -> tuple[Gap, ...]:
        """Return a page of the gaps from an offset on."""
        self._meter.charge()
        return self._table.gaps(incarnation, PAGE_ROWS, from_offset=from_offset)

    def rows(self, incarnation: Incarnation, kind: str, after: str) -> tuple[Row, ...]:
        """Return a page of the items whose sort keys begin with `kind`, from after a key on."""
        self._meter.charge()
        return tuple(islice(self._table.rows(incarnation, kind, after=after, page_items=PAGE_ROWS), PAGE_ROWS))

    def all_rows(self, incarnation: Incarnation, kind: str, key_of: Callable[[Row], str]) -> Iterator[Row]:
        """Yield all items of a kind, page by page."""
        after = ""
        while page := self.rows(incarnation, kind, after):
            yield from page
            after = key_of(page[-1])

    def journal(
        self, incarnation: Incarnation, after_revision: int, limit: int = PAGE_ROWS
    ) -> tuple[JournalEvent, ...]:
        """Return a page of the events after a revision."""
        self._meter.charge()
        return tuple(islice(self._table.journal(incarnation, after_revision, page_items=limit), limit))

    def changes(self, incarnation: Incarnation, after_revision: int) -> tuple[tuple[JournalEvent, Change], ...]:
        """Return the events after a revision with their changes, a page at most."""
        self._meter.charge(2)
        changes = self._table.recorded_changes(incarnation, after_revision, page_items=PAGE_ROWS)
        return tuple(islice(changes, PAGE_ROWS))

    def missing_and_holds(self, incarnation: Incarnation) -> tuple[tuple[Missing, ...], tuple[Hold, ...]]:
        """Return all losses and quarantines, and all holds."""
        self._meter.charge(2)
        return tuple(self._table.missing(incarnation)), self._table.holds(incarnation)

    def all_changes(self, incarnation: Incarnation, revision: int) -> Iterator[tuple[JournalEvent, Change]]:
        """Yield the events up to a revision with their changes, page by page."""
        after = 0
        while after < revision and (page := self.changes(incarnation, after)):
            yield from (one for one in page if one[0].revision <= revision)
            after = page[-1][0].revision

    def streams(self, cursor: str | None, limit: int) -> StreamPage:
        """Return a page of the registry."""
        self._meter.charge()
        return self._table.streams(cursor, limit)

    def newest(self, stream: StreamId) -> Incarnation | None:
        """Return the newest incarnation that the registry has of a stream's names."""
        self._meter.charge()
        return self._table.incarnation_of(stream.vhost, stream.name)

    def cluster(self, stream: StreamId) -> Cluster:
        """Return the cluster that a stream is bound to."""
        self._meter.charge()
        return self._table.bound_cluster(stream.vhost, stream.name)

    def state_item(self, partition: str, key: str) -> StateItem | None:
        """Return a state item."""
        self._meter.charge()
        return self._table.state_item(partition, key)

    def state_keys(self, partition: str) -> Iterator[str]:
        """Yield the keys of a partition's state items. Cost: a Query every two, as each may fill a third of a page."""
        for number, item in enumerate(self._table.state_items(partition, page_items=STATES)):
            if number % STATES == 0:
                self._meter.charge()
            yield item.key

    def last_floor(self, prefix: str) -> FloorNote | None:
        """Return the newest of the floors under a prefix. Cost: a listing every thousand, and a GET."""
        found = self.last_note(prefix)
        return None if found is None else parse_note(FloorNote, found[1], source=found[0])

    def last_note(self, prefix: str) -> tuple[str, bytes] | None:
        """Return the last key under a prefix, with its bytes. Cost: a listing every thousand, and a GET."""
        self._meter.charge(2)
        newest = None
        for number, listed in enumerate(self._objects.listed(prefix), start=1):
            newest = listed
            if number % LISTED == 0:
                self._meter.charge()
        if newest is None:
            return None
        return newest.key, self._objects.get_whole(newest.key, MAX_NOTE_BYTES)

    def notes_after(self, prefix: str, after: str) -> list[tuple[str, bytes]]:
        """Return the keys under a prefix that come after one, with their bytes. Cost: a listing, and a GET for each."""
        self._meter.charge()
        found = []
        for listed in self._objects.listed(prefix, after=after):
            self._meter.charge()
            data = self._objects.get_whole(listed.key, MAX_NOTE_BYTES)
            found.append((listed.key, data))
        return found

    def direct_name(self, stream: StreamId) -> DirectName | None:
        """Return the direct stream that has the names of a stream."""
        self._meter.charge()
        return find_name(self._table, stream.vhost, stream.name)

    def add_direct_name(self, name: DirectName) -> None:
        """Give a direct stream its name. Raises StreamExistsError if another has it."""
        self._meter.charge(2)
        add_name(self._table, name)

    def keys_under(self, prefix: str) -> set[str]:
        """Return the keys under a prefix. Cost: a listing every thousand."""
        self._meter.charge()
        found: set[str] = set()
        for number, listed in enumerate(self._objects.listed(prefix), start=1):
            found.add(listed.key)
            if number % LISTED == 0:
                self._meter.charge()
        return found

    def write(self, write: Callable[[], None]) -> None:
        """Write a control object."""
        self._meter.charge()
        write()

    def apply(self, change: Change) -> None:
        """Write a repair. Raises LostRaceError, OutcomeUnknownError."""
        self._meter.charge()
        self._table.apply(change)

    def info(self, key: str) -> ObjectInfo | None:
        """Return what a HEAD says of an object; None only if the bucket is there, and the object is not.

        To a HEAD, a bucket that is not there looks like a missing object. A listing tells them apart, so that a wrong
        name in the settings is never taken for damage. Raises InvalidSettingError.
        """
        self._meter.charge()
        info = self._objects.info(key)
        if info is None:
            self._meter.charge()
            next(iter(self._objects.listed(key)), None)
        return info

    def range(self, key: str, byte_range: ByteRange) -> bytes:
        """Read a range, whole. Raises ObjectNotFoundError, NotRestoredError, TruncatedError."""
        self._meter.charge(1, len(byte_range))
        data = self._objects.get_range(key, byte_range).data
        if len(data) != len(byte_range):
            raise TruncatedError(
                key, byte_range.start, "the object ends early", expected=len(byte_range), found=len(data)
            )
        return data

    def can_ever_read(self, entry: FragmentEntry) -> bool:
        """Tell whether a whole run on a budget like this one is enough to read a fragment's object to its end."""
        gets = entry.object_bytes // BLOCK_BYTES + len(entry.sparse.points)
        return self._meter.can_ever(MIN_REQUESTS + READINGS * gets, READINGS * entry.object_bytes)
