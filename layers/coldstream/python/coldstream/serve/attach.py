"""Find where in a stream's log an offset spec attaches.

Reads of the table are strongly consistent, but not of one moment: while a change's transaction is being written, a
Query may see some of its items as they were before. The links between neighbours and the head tell, and it is repeated.

The index by time lags behind the table, item by item. What it gives is taken only where its links say that nothing is
missing before it; else the log itself is read, backwards to the first entry that has nothing late enough before it, and
on from there.

Entries may overlap: while a compaction is under way, some of those that it replaces come before the one that it made,
and lie within it. Whichever is found, its chunks are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from coldstream.errors import StreamNotFoundError, UnavailableError
from coldstream.manifest.entry import FragmentEntry, Gap, Head
from coldstream.manifest.spec import AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.serve.cursor import Cursor
from coldstream.serve.places import Place, rough_place
from coldstream.store.ports import LogPage, ManifestReads
from coldstream.units import MAX_OFFSET, Offset, TimestampMs

READS = 3
"""Of a page that shows half of a change."""

PAGE_ENTRIES = 8
"""Read at a time where the log is read backwards."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """Entries from the one to attach in on, and the place in that one: at or before the chunk to attach at.

    `tail` is there when the last entry was the stream's last. `is_current` tells that all entries were read from the
    table itself, so that a hole between two of them is one.
    """

    entries: tuple[FragmentEntry, ...]
    start: Place
    tail: Offset | None
    is_current: bool


@dataclass(frozen=True, slots=True)
class Tail:
    """There is nothing to attach at: the broker has what comes from `next_offset` on."""

    next_offset: Offset


def attach(table: ManifestReads, stream: StreamId, start: OffsetSpec | Cursor, limit: int) -> Attachment | Gap | Tail:
    """Find where `start` attaches, and up to about `limit` entries from there on.

    Cost: one Query; for `next` one GetItem. A gap costs a GetItem more, for its reason. A timestamp costs two more
    Queries or a few while the index by time lags behind a change that matters to it; `last` one for every eight
    fragments at the end that hold no user chunk. Raises StreamNotFoundError, also where nothing is archived yet.
    """
    match start:
        case AtEnd("first"):
            return _at_offset(table, stream, Offset(0), limit)
        case AtEnd("last"):
            return _at_last(table, stream)
        case AtEnd():
            return _tail(stream, table.head(stream.incarnation))
        case AtOffset(offset):
            return _at_offset(table, stream, offset, limit)
        case AtTimestamp(timestamp):
            return _at_timestamp(table, stream, timestamp, limit)
        case Cursor():
            return _at_offset(table, stream, start.next_offset, limit, exactly=True)


def _at_offset(
    table: ManifestReads, stream: StreamId, offset: Offset, limit: int, *, exactly: bool = False
) -> Attachment | Gap | Tail:
    page = _read(table, stream, offset, limit)
    if not page.entries:
        return _tail(stream, page.head)
    first = page.entries[0]
    if first.first_offset > offset:
        if first.prior_offset is not None:
            gap = Gap(first.prior_offset, first.first_offset)
            return _known(table, stream, gap) or gap
        if exactly:
            return Gap(offset, first.first_offset)
    return Attachment(page.entries, rough_place(first, AtOffset(offset)), _end(stream, page), is_current=True)


def _at_last(table: ManifestReads, stream: StreamId) -> Attachment | Tail:
    nearest_first: list[FragmentEntry] = []
    for entry in _backwards(table, stream, Offset(MAX_OFFSET)):
        nearest_first.append(entry)
        if (user := entry.last_user_chunk) is not None:
            place = Place(user.chunk_id, user.timestamp, user.position)
            entries = tuple(reversed(nearest_first))
            return Attachment(entries, place, entries[-1].next_offset, is_current=True)
    if not nearest_first:
        raise _nothing(stream)
    return Tail(nearest_first[0].next_offset)


def _at_timestamp(
    table: ManifestReads, stream: StreamId, timestamp: TimestampMs, limit: int
) -> Attachment | Gap | Tail:
    page = table.log_from_timestamp(stream.incarnation, timestamp, limit)
    entries = tuple(sorted(page.entries, key=attrgetter("next_offset")))
    head = page.head
    if entries:
        before, nearest = entries[0].prior_timestamp, entries[0].first_offset
    else:
        # A new stream's first items may not be in the index yet.
        head = _registered(stream, head or table.head(stream.incarnation))
        before, nearest = head.greatest_timestamp, Offset(MAX_OFFSET)
    if before is not None and before >= timestamp:
        page = _read(table, stream, _back_to(table, stream, nearest, timestamp), limit)
        return _search(table, stream, page, timestamp, limit, is_current=True)
    found = _search(table, stream, LogPage(entries, head), timestamp, limit, is_current=False)
    if isinstance(found, Gap):
        known = _known(table, stream, found)
        if known is not None:
            return known
        page = _read(table, stream, found.first_offset, limit)
        found = _search(table, stream, page, timestamp, limit, is_current=True)
    return found


def _search(
    table: ManifestReads, stream: StreamId, page: LogPage, timestamp: TimestampMs, limit: int, *, is_current: bool
) -> Attachment | Gap | Tail:
    """Find the first entry, from the page's first on, with a chunk at or after `timestamp`.

    A hole right before the chunk may hide an earlier one, and so is the answer.
    """
    while True:
        prior_offset = page.entries[0].prior_offset if page.entries else None
        for number, entry in enumerate(page.entries):
            if entry.greatest_timestamp >= timestamp:
                if (
                    entry.first_timestamp >= timestamp
                    and prior_offset is not None
                    and prior_offset < entry.first_offset
                ):
                    return Gap(prior_offset, entry.first_offset)
                place = rough_place(entry, AtTimestamp(timestamp))
                return Attachment(page.entries[number:], place, _end(stream, page), is_current)
            prior_offset = entry.next_offset
        if not page.entries:
            return _tail(stream, page.head)
        next_offset = page.entries[-1].next_offset
        if _end(stream, page) == next_offset:
            return Tail(next_offset)
        page = _read(table, stream, next_offset, limit)
        is_current = True


def _back_to(table: ManifestReads, stream: StreamId, offset: Offset, timestamp: TimestampMs) -> Offset:
    """Return where an entry below `offset` begins that has only chunks older than `timestamp` before it."""
    for entry in _backwards(table, stream, offset):
        if entry.prior_timestamp is None or entry.prior_timestamp < timestamp:
            return entry.first_offset
    return Offset(0)


def _read(table: ManifestReads, stream: StreamId, offset: Offset, limit: int) -> LogPage:
    """Read a page from `offset` on, again where it begins with half of a change; it ends where one shows later on."""
    for _ in range(READS):
        page = table.log_from_offset(stream.incarnation, offset, limit)
        if page.entries:
            first = page.entries[0]
            if first.first_offset <= offset or first.prior_offset is None or first.prior_offset <= offset:
                return _whole(page)
        elif _tail(stream, page.head).next_offset <= offset:
            return page
    raise _being_changed(stream)


def _whole(page: LogPage) -> LogPage:
    """Leave out what comes after an entry that is missing."""
    for number, (before, entry) in enumerate(pairwise(page.entries), start=1):
        if not entry.follows(before):
            return LogPage(page.entries[:number], None)
    return page


def _backwards(table: ManifestReads, stream: StreamId, offset: Offset) -> Iterator[FragmentEntry]:
    """Yield the entries that end at or before `offset`, nearest first. Cost: one Query for every eight.

    Where half of a change shows, what took the place of the last one is read, and so may come after it.
    """
    for _ in range(READS):
        after: FragmentEntry | None = None
        is_whole = True
        while is_whole and (page := table.log_before(stream.incarnation, offset, PAGE_ENTRIES)):
            for entry in page:
                is_whole = after is None or after.follows(entry)
                if not is_whole:
                    break
                yield entry
                after, offset = entry, entry.first_offset
        if after is None or (is_whole and after.prior_offset is None):
            return
        offset = after.next_offset
    raise _being_changed(stream)


def _known(table: ManifestReads, stream: StreamId, gap: Gap) -> Gap | None:
    """Return the manifest's own item of a gap, with its reason; None when it has no such gap. Cost: one GetItem."""
    known = table.gap(stream.incarnation, gap.first_offset)
    return known if known is not None and known.next_offset == gap.next_offset else None


def _tail(stream: StreamId, head: Head | None) -> Tail:
    next_offset = _registered(stream, head).next_offset
    if next_offset is None:
        raise _nothing(stream)
    return Tail(next_offset)


def _end(stream: StreamId, page: LogPage) -> Offset | None:
    """Return where the log ends, if the page reached its end."""
    return None if page.head is None else _registered(stream, page.head).next_offset


def _registered(stream: StreamId, head: Head | None) -> Head:
    """Refuse an incarnation that is unknown, or another stream's."""
    if head is None or head.stream != stream:
        raise _nothing(stream)
    return head


def _nothing(stream: StreamId) -> StreamNotFoundError:
    return StreamNotFoundError(f"nothing of {stream}, incarnation {stream.incarnation}, is archived")


def _being_changed(stream: StreamId) -> UnavailableError:
    return UnavailableError(f"the manifest of {stream} was being changed each time it was read")
