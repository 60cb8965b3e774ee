"""What a search will read and cost, foretold from the head and the entry at its start, by a few requests."""

from __future__ import annotations

from coldstream.browse.cost import ReadCost, get_cost, query_cost
from coldstream.browse.names import StreamNames
from coldstream.browse.search import READ_BYTES
from coldstream.browse.search_slice import SearchForecast, SearchQuery, SliceBounds
from coldstream.errors import StreamNotFoundError
from coldstream.manifest.entry import FragmentEntry, Gap, Head
from coldstream.manifest.spec import AtOffset, OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import PAGE_ENTRIES
from coldstream.resolve.attach import attach
from coldstream.resolve.tail import Tail
from coldstream.store.ports import ManifestReads
from coldstream.units import Offset

_SLICE_BYTES = SliceBounds().max_bytes


def search_forecast(table: ManifestReads, query: SearchQuery, *, names: StreamNames | None = None) -> SearchForecast:
    """Foretell a search: an estimate, as if all offsets took as many bytes; of one fragment, as many as there.

    Cost: that of finding the stream, a GetItem, and one Query; for each time two. Raises StreamNotFoundError.
    """
    stream = (names or StreamNames(table)).find(query.vhost, query.name, query.incarnation)
    head = table.head(stream.incarnation)
    if head is None or head.is_deleted:
        raise StreamNotFoundError(f"nothing of {stream}, incarnation {stream.incarnation}, is archived")
    if head.first_offset is None or head.next_offset is None:
        nothing = head.next_offset or Offset(0)
        return SearchForecast(nothing, nothing, 0, 0, 0, ReadCost(), is_bounded=False)
    found, entry = _place(table, stream, query.start)
    start = max(found, head.first_offset)
    end = head.next_offset
    if isinstance(query.end, AtOffset):
        end = min(query.end.offset, end)
    elif query.end is not None:
        end = min(_place(table, stream, query.end)[0], end)
    return _forecast(query, head, entry, start, max(start, end))


def _place(table: ManifestReads, stream: StreamId, spec: OffsetSpec) -> tuple[Offset, FragmentEntry | None]:
    """Return about where a spec attaches: a point of the sparse index, up to a MiB before; and the entry there."""
    found = attach(table, stream, spec, 1)
    match found:
        case Tail(next_offset):
            return next_offset, None
        case Gap():
            return found.first_offset, None
    at = spec.offset if isinstance(spec, AtOffset) else Offset(found.start.chunk_id)
    return at, found.entries[0]


def _forecast(
    query: SearchQuery, head: Head, entry: FragmentEntry | None, start: Offset, end: Offset
) -> SearchForecast:
    offsets = end - start
    is_of_one = entry is not None and entry.first_offset <= start and end <= entry.next_offset
    # What lies in gaps is in `offsets`, so the sum may be too large, and never more than all there is.
    if entry is not None and is_of_one:
        share = offsets / entry.records
        whole = (entry.data_bytes, entry.object_bytes, entry.messages, 1)
    else:
        share = min(1.0, offsets / max(1, head.records))
        whole = (head.data_bytes, head.object_bytes, head.messages, head.fragments)
    chunk_bytes, read_bytes, messages, fragments = (round(one * share) for one in whole)
    is_bounded = chunk_bytes > query.max_bytes
    if is_bounded:
        rest = query.max_bytes / chunk_bytes
        chunk_bytes = query.max_bytes
        read_bytes, messages, fragments = (round(one * rest) for one in (read_bytes, messages, fragments))
    slices = 1 + chunk_bytes // _SLICE_BYTES
    cost = query_cost(2 * slices, entries=slices * min(PAGE_ENTRIES, max(1, fragments)))
    storage_class = None if entry is None else entry.storage_class
    cost += get_cost(max(fragments, -(-chunk_bytes // READ_BYTES)), read_bytes, storage_class)
    is_cold = storage_class is not None and storage_class.must_be_restored
    return SearchForecast(
        start, end, chunk_bytes, read_bytes, messages, cost, is_bounded, storage_class if is_cold else None
    )
