"""Find where in a stream's log an offset spec attaches.

Reads of the table are strongly consistent, but not of one moment: while a change's transaction is being written, a
Query may see some of its items as they were before, and all of a later transaction. The links between neighbours and
the head tell, and it is repeated.

The index by time lags behind the table, item by item. It only says where to begin: the log itself is read from there,
backwards first, to an entry that has nothing late enough before it.

Entries may overlap: while a compaction is under way, some of those that it replaces come before the one that it made,
and lie within it. Whichever is found, its chunks are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from coldstream.errors import StreamNotFoundError, UnavailableError
from coldstream.manifest.entry import FragmentEntry, Gap, Head
from coldstream.manifest.spec import AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.resolve.cursor import Cursor
from coldstream.resolve.places import Place, rough_place
from coldstream.resolve.tail import Tail, past_tail
from coldstream.store.ports import LogPage, ManifestReads
from coldstream.units import MAX_OFFSET, Offset, TimestampMs

READS = 3
"""Of what shows half of a change."""

MAX_AT_ONCE = 99
"""Entries that can be read as they are at one moment, with the head."""

PAGE_ENTRIES = 8
"""Read at a time where the log is read backwards."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """Entries from the one to attach in on, and the place in that one: at or before the chunk to attach at.

    `head` is there when the last entry was the stream's last.
    """

    entries: tuple[FragmentEntry, ...]
    start: Place
    head: Head | None


def attach(table: ManifestReads, stream: StreamId, start: OffsetSpec | Cursor, limit: int) -> Attachment | Gap | Tail:
    """Find where `start` attaches, and up to about `limit` entries from there on.

    Cost: one Query; for `next` one GetItem; for a timestamp two Queries, past the last chunk one and a GetItem. A gap
    costs a GetItem, for its reason. At the tail, and past it, that of `past_tail` is added. A timestamp costs two more
    Queries or a few where the index by time lags behind a change that matters to it, or a clock ran backwards; `last`
    one more where the last fragment holds no user chunk, and one for every eight of those. Raises StreamNotFoundError,
    also where nothing is archived yet; UnavailableError where what was read showed half of a change each time.
    """
    match start:
        case AtEnd("first"):
            return _at_offset(table, stream, Offset(0), limit)
        case AtEnd("last"):
            return _at_last(table, stream)
        case AtEnd():
            return Tail(_tail(stream, table.head(stream.incarnation)))
        case AtOffset(offset):
            return _at_offset(table, stream, offset, limit)
        case AtTimestamp(timestamp):
            return _at_timestamp(table, stream, timestamp, limit)
        case Cursor():
            return _at_offset(table, stream, start.next_offset, limit, exactly=True)


def _at_offset(
    table: ManifestReads, stream: StreamId, offset: Offset, limit: int, *, exactly: bool = False
) -> Attachment | Gap | Tail:
    for _ in range(READS):
        page = _read(table, stream, offset, limit)
        if page.entries:
            first = page.entries[0]
            if first.first_offset > offset:
                if first.prior_offset is not None:
                    return _told(table, stream, Gap(first.prior_offset, first.first_offset))
                if exactly:
                    return Gap(offset, first.first_offset)
            return Attachment(page.entries, rough_place(first, AtOffset(offset)), page.head)
        found = past_tail(table, _registered(stream, page.head), offset)
        if found is not None:
            return found
    raise _being_changed(stream)


def _at_last(table: ManifestReads, stream: StreamId) -> Attachment | Gap | Tail:
    for _ in range(READS):
        end = table.log_end(stream.incarnation, PAGE_ENTRIES)
        tail = _tail(stream, end.head)
        if not end.entries or end.entries[-1].next_offset != tail or _whole(end) != end:
            continue
        nearest_first: list[FragmentEntry] = []
        for entry in _backwards(table, stream, end.entries):
            nearest_first.append(entry)
            if entry.last_user_chunk is not None:
                break
        entries = tuple(reversed(nearest_first))
        if len(entries) > 1 and not _are_last(table, stream, entries):
            continue
        user = entries[0].last_user_chunk
        if user is not None:
            return Attachment(entries, Place(user.chunk_id, user.timestamp, user.position), end.head)
        found = past_tail(table, _registered(stream, end.head), tail)
        if found is not None:
            return found
    raise _being_changed(stream)


def _are_last(table: ManifestReads, stream: StreamId, entries: Sequence[FragmentEntry]) -> bool:
    """Tell whether there was a moment when these were the last entries, without any between them.

    What was filled in while they were read may have come after another that was appended then. Cost: one GetItem;
    where there are holes between them, which may have been filled by then, one TransactGetItems.
    """
    if all(after.first_offset <= before.next_offset for before, after in pairwise(entries)):
        head = table.head(stream.incarnation)
    else:
        page = _at_once(table, stream, entries)
        head = None if page is None else page.head
    return head is not None and head.next_offset == entries[-1].next_offset


def _at_timestamp(
    table: ManifestReads, stream: StreamId, timestamp: TimestampMs, limit: int
) -> Attachment | Gap | Tail:
    shown = table.log_from_timestamp(stream.incarnation, timestamp, 1).entries
    offset = shown[0].first_offset if shown else None
    for _ in range(READS):
        if offset is None:
            # The index has nothing so late, and may not have it yet; the head does.
            head = _registered(stream, table.head(stream.incarnation))
            if not _is_late(head.greatest_timestamp, timestamp):
                if (lost := past_tail(table, head, _tail(stream, head))) is not None:
                    return lost
                continue
            offset = _back_to(table, stream, Offset(MAX_OFFSET), timestamp)
        page = _read(table, stream, offset, limit)
        if not page.entries:
            offset = None
        elif _is_late(page.entries[0].prior_timestamp, timestamp):
            offset = _back_to(table, stream, page.entries[0].first_offset, timestamp)
        elif (found := _search(table, stream, page, timestamp, limit)) is not None:
            return found
    raise _being_changed(stream)


def _search(
    table: ManifestReads, stream: StreamId, page: LogPage, timestamp: TimestampMs, limit: int
) -> Attachment | Gap | Tail | None:
    """Find the first entry, from the page's first on, with a chunk at or after `timestamp`.

    A hole right before the chunk may hide an earlier one, and so is the answer. None where there may have been
    something late enough before what was found.
    """
    read: list[FragmentEntry] = []
    while True:
        for number, entry in enumerate(page.entries):
            read.append(entry)
            if entry.greatest_timestamp < timestamp:
                continue
            if not _is_first(table, stream, read, timestamp):
                return None
            prior_offset = entry.prior_offset if len(read) == 1 else read[-2].next_offset
            if entry.first_timestamp >= timestamp and prior_offset is not None and prior_offset < entry.first_offset:
                return _told(table, stream, Gap(prior_offset, entry.first_offset))
            return Attachment(page.entries[number:], rough_place(entry, AtTimestamp(timestamp)), page.head)
        if page.head is not None and (not page.entries or _tail(stream, page.head) == read[-1].next_offset):
            is_none = _is_first(table, stream, read, timestamp, head=page.head)
            return past_tail(table, page.head, _tail(stream, page.head)) if is_none else None
        page = _read(table, stream, read[-1].next_offset, limit)


def _is_first(
    table: ManifestReads,
    stream: StreamId,
    read: Sequence[FragmentEntry],
    timestamp: TimestampMs,
    *,
    head: Head | None = None,
) -> bool:
    """Tell whether nothing before the last of the entries that were `read` is late enough; with `head`, nothing at all.

    Before the first, and in the others, there is not. But where the links of these, or the head, say that there is,
    something came before or between them while they were read; or it was announced, and never came. One read of all of
    them, as they are at one moment, tells. Cost: nothing, unless it takes that.
    """
    said = [entry.prior_timestamp for entry in read[1:]] + ([] if head is None else [head.greatest_timestamp])
    if not any(_is_late(one, timestamp) for one in said):
        return True
    page = _at_once(table, stream, read)
    if page is None or _is_late(page.entries[0].prior_timestamp, timestamp):
        return False
    passed = page.entries if head is not None else page.entries[:-1]
    if any(_is_late(entry.greatest_timestamp, timestamp) for entry in passed):
        return False
    return head is None or _tail(stream, page.head) == page.entries[-1].next_offset


def _is_late(timestamp: TimestampMs | None, least: TimestampMs) -> bool:
    return timestamp is not None and timestamp >= least


def _back_to(table: ManifestReads, stream: StreamId, offset: Offset, timestamp: TimestampMs) -> Offset:
    """Return where an entry below `offset` begins that has only chunks older than `timestamp` before it."""
    for entry in _backwards(table, stream, offset):
        if not _is_late(entry.prior_timestamp, timestamp):
            return entry.first_offset
    return Offset(0)


def _read(table: ManifestReads, stream: StreamId, offset: Offset, limit: int) -> LogPage:
    """Read a page from `offset` on, again where it begins with half of a change; it ends where one shows later on."""
    for _ in range(READS):
        page = table.log_from_offset(stream.incarnation, offset, limit)
        if page.entries:
            if page.head is not None:
                _registered(stream, page.head)
            first = page.entries[0]
            if first.first_offset <= offset or first.prior_offset is None or first.prior_offset <= offset:
                return _whole(page)
        elif _tail(stream, page.head) <= offset:
            return page
    raise _being_changed(stream)


def _whole(page: LogPage) -> LogPage:
    """Leave out what comes after an entry that is missing."""
    for number, (before, entry) in enumerate(pairwise(page.entries), start=1):
        if not entry.follows(before):
            return LogPage(page.entries[:number], None)
    return page


def _at_once(table: ManifestReads, stream: StreamId, entries: Sequence[FragmentEntry]) -> LogPage | None:
    """Read entries and the head again, as they are at one moment.

    None where there is another between them by then, or a change of one is being written. Cost: one TransactGetItems.
    """
    if not 0 < len(entries) <= MAX_AT_ONCE:
        return None
    page = table.log_at_once(stream.incarnation, [entry.next_offset for entry in entries])
    return page if page is not None and _whole(page) == page else None


def _backwards(
    table: ManifestReads, stream: StreamId, end: Offset | Sequence[FragmentEntry]
) -> Iterator[FragmentEntry]:
    """Yield the entries that end at or before an offset, nearest first, or these and those before them.

    Where half of a change shows, what took the place of the last one is read, and so may come after it. Cost: one Query
    for every eight.
    """
    offset, page = (end, ()) if isinstance(end, int) else (Offset(0), tuple(reversed(end)))
    for _ in range(READS):
        after: FragmentEntry | None = None
        is_whole = True
        while is_whole and (page := page or table.log_before(stream.incarnation, offset, PAGE_ENTRIES)):
            for entry in page:
                is_whole = after is None or after.follows(entry)
                if not is_whole:
                    break
                yield entry
                after, offset = entry, entry.first_offset
            page = ()
        if after is None or (is_whole and after.prior_offset is None):
            return
        offset = after.next_offset
    raise _being_changed(stream)


def _told(table: ManifestReads, stream: StreamId, gap: Gap) -> Gap:
    """Return a gap with its reason, if the manifest's own item of that gap has one. Cost: one GetItem."""
    known = table.gap(stream.incarnation, gap.first_offset)
    return known if known is not None and known.next_offset == gap.next_offset else gap


def _tail(stream: StreamId, head: Head | None) -> Offset:
    next_offset = _registered(stream, head).next_offset
    if next_offset is None:
        raise _nothing(stream)
    return next_offset


def _registered(stream: StreamId, head: Head | None) -> Head:
    """Refuse an incarnation that is unknown, or another stream's."""
    if head is None or head.stream != stream:
        raise _nothing(stream)
    return head


def _nothing(stream: StreamId) -> StreamNotFoundError:
    return StreamNotFoundError(f"nothing of {stream}, incarnation {stream.incarnation}, is archived")


def _being_changed(stream: StreamId) -> UnavailableError:
    return UnavailableError(f"the manifest of {stream} was being changed each time it was read")
