"""Find where in a stream's log an offset spec attaches.

Reads of the table are strongly consistent, but do not show one moment: while a transaction is being written, a Query
may see some of its items as they were before, and all of a later transaction. The links between neighbours, and the
head, reveal this, and the read is repeated.

The index by time lags, item by item. It only says where to begin: the log itself is read from there, first backwards,
to an entry with nothing late enough before it.

Entries may overlap: while a compaction is in progress, some of the entries that it replaces come before the merged one,
and lie within it. Their chunks are the same, so either may be found.

What was removed from the archive is as if the log had always begun after it, and a log that lost all of its entries is
answered with its tail. A stream whose head says that it is deleted is as one that never was. Most lookups see no head:
whoever needs to know of each deletion looks at the head himself, as `resolver` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from coldstream.errors import StreamNotFoundError, UnavailableError
from coldstream.manifest.entry import FragmentEntry, Gap, Head
from coldstream.manifest.spec import AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.resolve.cursor import Cursor
from coldstream.resolve.places import Place, rough_place
from coldstream.resolve.tail import Tail, past_tail
from coldstream.store.manifest_values import LogPage
from coldstream.units import MAX_OFFSET, Offset, TimestampMs

if TYPE_CHECKING:
    from coldstream.store.ports import ManifestReads

READS = 3
"""How often a view that shows half of a change is read."""

MAX_AT_ONCE = 99
"""Entries that one TransactGetItems reads as they are at one moment, with the head."""

PAGE_ENTRIES = 8
"""Entries that one Query reads when the log is read backwards."""


REMOVED = "removed from the archive on purpose"
"""The reason of a gap below the floor."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """The entry to attach in and those after it, and the place in that entry, at or before the chunk to attach at.

    `head` is there if the last entry was the stream's last. `floor` is there if the start was an offset below it.
    """

    entries: tuple[FragmentEntry, ...]
    start: Place
    head: Head | None
    floor: Offset | None = None


def attach(table: ManifestReads, stream: StreamId, start: OffsetSpec | Cursor, limit: int) -> Attachment | Gap | Tail:
    """Find where `start` attaches, and up to about `limit` entries from there on.

    Cost: one Query. For `next` one GetItem; for a timestamp two Queries, or past the last chunk one and a GetItem. A
    gap costs a GetItem, for its reason. At the tail and past it, add that of `past_tail`. A timestamp costs two or more
    further Queries if the index by time lags behind a change that matters to it, or a clock ran backwards. `last` costs
    one more if the last fragment holds no user chunk, and one for every eight of those. An offset before the first
    archived one costs a GetItem, for the floor.

    Raises StreamNotFoundError, also if nothing is archived yet or a head shows that the stream is deleted, and
    UnavailableError if every read showed half of a change.
    """
    match start:
        case AtEnd("first"):
            return _at_offset(table, stream, Offset(0), limit, is_told_floor=False)
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
    table: ManifestReads,
    stream: StreamId,
    offset: Offset,
    limit: int,
    *,
    exactly: bool = False,
    is_told_floor: bool = True,
) -> Attachment | Gap | Tail:
    for _ in range(READS):
        page = _read(table, stream, offset, limit)
        if page.entries:
            first = page.entries[0]
            floor: Offset | None = None
            if first.first_offset > offset:
                # The entry's own link proves the hole; `_read` has checked that it reaches back to `offset`.
                if first.prior_offset is not None:
                    return _with_reason(table, stream, Gap(first.prior_offset, first.first_offset))
                if is_told_floor:
                    head = page.head or table.head(stream.incarnation)
                    floor = _floor_above(offset, _check_head(stream, head))
                if exactly:
                    return Gap(offset, first.first_offset, None if floor is None else REMOVED)
            return Attachment(page.entries, rough_place(first, AtOffset(offset)), page.head, floor)
        head = _check_head(stream, page.head)
        floor = _floor_above(offset, head)
        if exactly and floor is not None:
            return Gap(offset, floor, REMOVED)
        # None means that the log has grown since the page was read: the next read may find `offset` in it.
        found = past_tail(table, head, max(offset, floor or offset))
        if found is not None:
            return replace(found, floor=floor) if isinstance(found, Tail) and is_told_floor else found
    raise _kept_changing(stream)


def _is_emptied(head: Head) -> bool:
    """Tell whether a log lost all of its entries."""
    return head.first_offset is None and head.next_offset is not None


def _floor_above(offset: Offset, head: Head) -> Offset | None:
    return head.floor if offset < head.floor else None


def _at_last(table: ManifestReads, stream: StreamId) -> Attachment | Gap | Tail:
    for _ in range(READS):
        end = table.log_end(stream.incarnation, PAGE_ENTRIES)
        tail = _tail(stream, end.head)
        head = _check_head(stream, end.head)
        if not end.entries and _is_emptied(head):
            if (found := past_tail(table, head, tail)) is not None:
                return found
            continue
        # The head must end where the last entry does: otherwise half of an append shows.
        if not end.entries or end.entries[-1].next_offset != tail or _unbroken(end) != end:
            continue
        nearest_first: list[FragmentEntry] = []
        for entry in _backwards(table, stream, end.entries):
            nearest_first.append(entry)
            if entry.last_user_chunk is not None:
                break
        entries = tuple(reversed(nearest_first))
        # One entry was read with the head, as the last. Several took more than one Query, at different moments.
        if len(entries) > 1 and not _are_last(table, stream, entries):
            continue
        user = entries[0].last_user_chunk
        if user is not None:
            return Attachment(entries, Place(user.chunk_id, user.timestamp, user.position), end.head)
        found = past_tail(table, _check_head(stream, end.head), tail)
        if found is not None:
            return found
    raise _kept_changing(stream)


def _are_last(table: ManifestReads, stream: StreamId, entries: Sequence[FragmentEntry]) -> bool:
    """Tell whether there was a moment when these were the last entries, with no other between them.

    An entry may have been appended while these were read, and a hole between them filled after that. Cost: one GetItem;
    if there are holes between them, one TransactGetItems.
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
            # The index has nothing so late, but it lags: only the head proves that there is nothing.
            head = _check_head(stream, table.head(stream.incarnation))
            if _is_emptied(head) or not _is_late(head.greatest_timestamp, timestamp):
                if (answer := past_tail(table, head, _tail(stream, head))) is not None:
                    return answer
                continue
            offset = _back_to(table, stream, Offset(MAX_OFFSET), timestamp)
        page = _read(table, stream, offset, limit)
        if not page.entries:
            offset = None
        elif _is_late_before(page.entries[0], timestamp):
            # The index lags, or a clock ran backwards: something before is late enough, and would be skipped.
            offset = _back_to(table, stream, page.entries[0].first_offset, timestamp)
        elif (found := _search(table, stream, page, timestamp, limit)) is not None:
            return found
    raise _kept_changing(stream)


def _search(
    table: ManifestReads, stream: StreamId, page: LogPage, timestamp: TimestampMs, limit: int
) -> Attachment | Gap | Tail | None:
    """Find the first entry, from the page's first on, with a chunk at or after `timestamp`.

    A hole right before that chunk may hide an earlier one, so the answer is the hole. None says that something before
    what was found may have been late enough.
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
                return _with_reason(table, stream, Gap(prior_offset, entry.first_offset))
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
    """Tell whether nothing before the last of the entries `read` is late enough; with `head`, nothing at all.

    Nothing before the first of them, and in the others, was late enough when it was read. If their links or the head
    say otherwise, an entry came before or between them meanwhile, or its timestamp was announced and it never came.
    Then it is asked again, of one moment. Cost: nothing, or one TransactGetItems.
    """
    said = [entry.prior_timestamp for entry in read[1:]] + ([] if head is None else [head.greatest_timestamp])
    if not any(_is_late(one, timestamp) for one in said):
        return True
    # Entries that touch have nothing between them: one moment is needed only of the ends, and of what follows a hole.
    # To read all of them could take too many: what was removed leaves timestamps behind that make a lookup read on.
    after_holes = [entry for before, entry in pairwise(read) if entry.first_offset > before.next_offset]
    needed = {entry.next_offset: entry for entry in (read[0], *after_holes, read[-1])}
    page = table.log_at_once(stream.incarnation, list(needed)) if len(needed) <= MAX_AT_ONCE else None
    if page is None or _is_late_before(page.entries[0], timestamp):
        return False
    found = {entry.next_offset: entry for entry in page.entries}
    # A hole that is linked as it was has nothing in it.
    if any(found[entry.next_offset].prior_offset != entry.prior_offset for entry in after_holes):
        return False
    passed = page.entries if head is not None else page.entries[:-1]
    if any(_is_late(entry.greatest_timestamp, timestamp) for entry in passed):
        return False
    return head is None or _tail(stream, page.head) == page.entries[-1].next_offset


def _is_late(timestamp: TimestampMs | None, least: TimestampMs) -> bool:
    return timestamp is not None and timestamp >= least


def _is_late_before(entry: FragmentEntry, least: TimestampMs) -> bool:
    """Tell whether something before an entry may be late enough.

    An entry with nothing before it may still have a prior timestamp: that of what was removed.
    """
    return entry.prior_offset is not None and _is_late(entry.prior_timestamp, least)


def _back_to(table: ManifestReads, stream: StreamId, offset: Offset, timestamp: TimestampMs) -> Offset:
    """Return where an entry before `offset` begins that has only chunks older than `timestamp` before it."""
    for entry in _backwards(table, stream, offset):
        if not _is_late_before(entry, timestamp):
            return entry.first_offset
    return Offset(0)


def _read(table: ManifestReads, stream: StreamId, offset: Offset, limit: int) -> LogPage:
    """Read a page from `offset` on, again if it begins with half of a change. It ends before a later half."""
    for _ in range(READS):
        page = table.log_from_offset(stream.incarnation, offset, limit)
        if page.entries:
            if page.head is not None:
                _check_head(stream, page.head)
            first = page.entries[0]
            # A link to an offset past `offset` names an entry that exists and did not show.
            if first.first_offset <= offset or first.prior_offset is None or first.prior_offset <= offset:
                return _unbroken(page)
        elif _is_emptied(_check_head(stream, page.head)) or _tail(stream, page.head) <= offset:
            return page
    raise _kept_changing(stream)


def _unbroken(page: LogPage) -> LogPage:
    """Return a page up to the first break in its chain of links, after which an entry did not show."""
    for number, (before, entry) in enumerate(pairwise(page.entries), start=1):
        if not entry.follows(before):
            return LogPage(page.entries[:number], None)
    return page


def _at_once(table: ManifestReads, stream: StreamId, entries: Sequence[FragmentEntry]) -> LogPage | None:
    """Read entries and the head again, as they are at one moment.

    None if another entry is between them by then, or one of them is being changed. Cost: one TransactGetItems.
    """
    if not 0 < len(entries) <= MAX_AT_ONCE:
        return None
    page = table.log_at_once(stream.incarnation, [entry.next_offset for entry in entries])
    return page if page is not None and _unbroken(page) == page else None


def _backwards(
    table: ManifestReads, stream: StreamId, end: Offset | Sequence[FragmentEntry]
) -> Iterator[FragmentEntry]:
    """Yield the entries that end at or before an offset, nearest first; or given entries, and those before them.

    If half of a change shows, reading starts over from the last entry. Its replacement is then read, and may be yielded
    after it. Cost: one Query for every eight.
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
    raise _kept_changing(stream)


def _with_reason(table: ManifestReads, stream: StreamId, gap: Gap) -> Gap:
    """Return a gap with its reason, if the manifest's item of exactly that gap has one. Cost: one GetItem."""
    known = table.gap(stream.incarnation, gap.first_offset)
    return known if known is not None and known.next_offset == gap.next_offset else gap


def _tail(stream: StreamId, head: Head | None) -> Offset:
    next_offset = _check_head(stream, head).next_offset
    if next_offset is None:
        raise _not_archived(stream)
    return next_offset


def _check_head(stream: StreamId, head: Head | None) -> Head:
    """Return the head. Raises StreamNotFoundError if the incarnation is unknown, deleted, or another stream's."""
    if head is None or head.stream != stream or head.is_deleted:
        raise _not_archived(stream)
    return head


def _not_archived(stream: StreamId) -> StreamNotFoundError:
    return StreamNotFoundError(f"nothing of {stream}, incarnation {stream.incarnation}, is archived")


def _kept_changing(stream: StreamId) -> UnavailableError:
    return UnavailableError(f"the manifest of {stream} was being changed each time it was read")
