"""The fragments of a stream around an offset: one Query, whatever the stream's size."""

from __future__ import annotations

from coldstream.browse.cost import query_cost, stored_usd
from coldstream.browse.stream_views import FragmentListing, FragmentRow
from coldstream.errors import InvalidQueryError
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestReads
from coldstream.units import Offset

MAX_FRAGMENTS = 500


def list_fragments(
    table: ManifestReads, stream: StreamId, at: Offset, limit: int = 50, *, before: bool = False
) -> FragmentListing:
    """Return the fragments from the one that holds `at` on; with `before`, those that end at or before it.

    The order is that of their offsets, both ways. Cost: one Query. Raises InvalidQueryError.
    """
    if not 1 <= limit <= MAX_FRAGMENTS:
        raise InvalidQueryError("limit", f"{limit} is not from 1 to {MAX_FRAGMENTS}")
    next_: Offset | None = at
    if before:
        entries = table.log_before(stream.incarnation, at, limit)[::-1]
    else:
        page = table.log_from_offset(stream.incarnation, at, limit)
        entries = page.entries
        next_ = None if page.head is not None or not entries else entries[-1].next_offset
    previous = entries[0].first_offset if entries and entries[0].prior_offset is not None else None
    return FragmentListing(stream, tuple(map(fragment_row, entries)), next_, previous, query_cost(entries=len(entries)))


def fragment_row(entry: FragmentEntry) -> FragmentRow:
    """Return the row of an entry."""
    return FragmentRow(
        first_offset=entry.first_offset,
        next_offset=entry.next_offset,
        first_time=entry.first_timestamp,
        last_time=entry.last_timestamp,
        epoch=entry.epoch,
        chunks=entry.chunks,
        records=entry.records,
        messages=entry.messages,
        data_bytes=entry.data_bytes,
        stored_bytes=entry.object_bytes,
        encoding=entry.encoding,
        storage_class=entry.storage_class,
        key=entry.key,
        generation=entry.generation,
        is_erased=entry.erased,
        gap_before=0 if entry.prior_offset is None else max(0, entry.first_offset - entry.prior_offset),
        cost_usd=stored_usd(entry),
    )
