"""The entries of a chunk: messages on their own, and sub-batches as their publishers packed them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from coldstream.browse.chunks import chunk_row
from coldstream.browse.fragments import fragment_row
from coldstream.browse.meter import ReadMeter
from coldstream.browse.pieces import piece_from, read_piece
from coldstream.browse.placed import compression_name
from coldstream.browse.stream_views import EntryListing, EntryRow
from coldstream.errors import CorruptionError, GapError, InvalidQueryError, NotFoundError
from coldstream.format.chunk import Chunk
from coldstream.format.entry import SubBatch, iter_entries
from coldstream.manifest.entry import Gap
from coldstream.manifest.spec import AtOffset
from coldstream.manifest.stream import StreamId
from coldstream.resolve.attach import attach
from coldstream.resolve.tail import Tail
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import Offset

MAX_ENTRIES = 1000


def list_entries(
    table: ManifestReads,
    objects: ObjectReads,
    stream: StreamId,
    offset: Offset,
    *,
    first: int = 0,
    limit: int = 100,
) -> EntryListing:
    """Return entries of the chunk that holds an offset, from number `first` on. Nothing is unpacked.

    Cost: one Query and one GET. Raises GapError, NotFoundError past the end of the archive or before it begins,
    InvalidQueryError, CorruptionError, NotRestoredError, UnavailableError.
    """
    if not 1 <= limit <= MAX_ENTRIES:
        raise InvalidQueryError("limit", f"{limit} is not from 1 to {MAX_ENTRIES}")
    if first < 0:
        raise InvalidQueryError("first", f"{first} is less than 0")
    meter = ReadMeter(table, objects)
    found = attach(meter.table, stream, AtOffset(offset), 1)
    match found:
        case Gap():
            raise GapError(str(stream), found.first_offset, found.next_offset, found.reason)
        case Tail(next_offset):
            raise NotFoundError(f"offset {offset} of {stream} is not archived: the archive ends before {next_offset}")
    entry = found.entries[0]
    if offset < entry.first_offset:
        raise NotFoundError(f"offset {offset} of {stream} is before the first archived one, {entry.first_offset}")
    piece = piece_from(entry, offset, 1)
    # The chunks follow one another from at or before the offset to after it: one of them holds it.
    chunk = next(chunk for chunk in read_piece(meter.objects, piece) if offset < chunk.header.next_offset)
    rows: list[EntryRow] = []
    problem = None
    try:
        rows.extend(islice(_rows(chunk, piece.key), first, first + limit))
    except CorruptionError as err:
        problem = str(err)
    return EntryListing(
        stream,
        fragment_row(entry),
        chunk_row(entry, piece, chunk),
        tuple(rows),
        first,
        chunk.header.entries,
        meter.cost,
        problem,
    )


def _rows(chunk: Chunk, source: str) -> Iterator[EntryRow]:
    offset = Offset(chunk.header.chunk_id)
    for number, entry in enumerate(iter_entries(chunk, source=source)):
        if isinstance(entry, SubBatch):
            name = compression_name(entry.compression)
            yield EntryRow(number, offset, entry.records, len(entry.data), name, entry.uncompressed_bytes)
            offset = Offset(offset + entry.records)
        else:
            yield EntryRow(number, offset, 1, len(entry))
            offset = Offset(offset + 1)
