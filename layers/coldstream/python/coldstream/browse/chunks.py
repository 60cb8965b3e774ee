"""The chunks of a fragment around an offset, by their headers: one Query, and one GET of about a MiB."""

from __future__ import annotations

from coldstream.browse.fragments import fragment_row
from coldstream.browse.meter import ReadMeter
from coldstream.browse.pieces import piece_before, piece_from, read_piece
from coldstream.browse.stream_views import ChunkListing, ChunkRow
from coldstream.format.chunk import Chunk
from coldstream.manifest.entry import Encoding, FragmentEntry, Gap
from coldstream.manifest.spec import AtOffset
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import ScanSlice
from coldstream.resolve.attach import attach
from coldstream.resolve.tail import Tail
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import Offset


def list_chunks(
    table: ManifestReads, objects: ObjectReads, stream: StreamId, at: Offset, *, before: bool = False
) -> ChunkListing:
    """Return the chunks from the one that holds `at` on; with `before`, those up to the one that ends there.

    They are those of one step of the sparse index. Every one is verified. Cost: one Query and one GET. Raises
    StreamNotFoundError, CorruptionError, NotRestoredError, UnavailableError.
    """
    meter = ReadMeter(table, objects)
    found = attach(meter.table, stream, AtOffset(Offset(max(0, at - 1)) if before else at), 1)
    match found:
        case Gap():
            previous = found.first_offset or None
            return ChunkListing(stream, None, (), found, found.next_offset, previous, meter.cost)
        case Tail(next_offset):
            previous = next_offset if next_offset and found.floor is None else None
            return ChunkListing(stream, None, (), None, None, previous, meter.cost)
    entry = found.entries[0]
    if before and entry.first_offset < at:
        piece = piece_before(entry, at, 1)
    else:
        piece = piece_from(entry, max(at, entry.first_offset), 1)
    chunks = read_piece(meter.objects, piece)
    rows = tuple(chunk_row(entry, piece, chunk) for chunk in chunks)
    is_last = found.head is not None and piece.end == entry.next_offset == found.head.next_offset
    first = rows[0].chunk_id if rows else piece.start
    is_first = entry.prior_offset is None and first <= entry.first_offset
    return ChunkListing(
        stream,
        fragment_row(entry),
        rows,
        None,
        None if is_last else Offset(rows[-1].next_offset if rows else piece.end),
        None if is_first else Offset(first),
        meter.cost,
    )


def chunk_row(entry: FragmentEntry, piece: ScanSlice, chunk: Chunk) -> ChunkRow:
    """Return the row of a chunk that was read in a piece of a fragment."""
    header = chunk.header
    # Of a piece that was compressed, positions count from its own beginning.
    begins_at = piece.byte_range.start if piece.encoding is Encoding.IDENTITY else 0
    point = entry.sparse.points[entry.sparse.at_offset(piece.first_offset)]
    return ChunkRow(
        chunk_id=header.chunk_id,
        next_offset=header.next_offset,
        type=header.type,
        entries=header.entries,
        records=header.records,
        timestamp=header.timestamp,
        epoch=header.epoch,
        crc=header.crc,
        position=point.position + chunk.position - begins_at,
        data_bytes=header.data_bytes,
        trailer_bytes=header.trailer_bytes,
        bloom_bytes=header.bloom_bytes,
    )
