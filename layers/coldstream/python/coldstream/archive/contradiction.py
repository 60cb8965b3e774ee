"""Hold a staged copy to what the archive has of its offsets, before any of it is archived.

Two copies are of one history when each of their user chunks is the same: its id, records, entries, epoch, timestamp,
and the CRC-32 and size of its data. All else may differ: brokers deliver neither trailers nor bloom filters, and where
a segment is rebuilt from deliveries, tracking chunks are replaced (docs/formats.md, "Copies").

Fragments of which the copy has all chunks, to the bit, are known by the CRC-32 that the manifest has of them. Only
where that says nothing, or that something differs, the archived chunks are read.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, suppress

from coldstream.archive.archived import archived_chunks
from coldstream.archive.coverage import Coverage
from coldstream.archive.rolled import SegmentRolled
from coldstream.archive.staged import StagedSegment
from coldstream.errors import ContradictionError, CorruptionError
from coldstream.format.checksum import combine_crc32
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.scanner import ChunkEnd, SegmentScanner
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.history import check_epoch_before
from coldstream.store.ports import ObjectReads
from coldstream.units import Offset, format_timestamp


def check_history(objects: ObjectReads, segment: SegmentRolled, staged: StagedSegment, coverage: Coverage) -> None:
    """Raise ContradictionError, naming the first such chunk, when the copy is of another history than the archive.

    Cost: nothing where nothing near is archived. Else the staged copy is read, up to its last chunk that is archived,
    or to its end where something behind it is; and where a CRC-32 does not settle it, once more, beside what is
    archived. Of a copy that is broken what comes before that is held to the archive: only that can be archived. Raises
    CorruptionError, of what is archived.
    """
    if not coverage.entries and coverage.after is None:
        return
    doubtful = _doubtful(segment, staged, coverage)
    if doubtful:
        _compare(objects, segment, staged, coverage, doubtful)


def _doubtful(segment: SegmentRolled, staged: StagedSegment, coverage: Coverage) -> set[Offset]:
    """Return the next offsets of the entries that a CRC-32 does not show to have the same chunks."""
    met: dict[Offset, int] = {}
    sizes: dict[Offset, int] = {}
    with closing(_chunks(segment, staged)) as chunks:
        for chunk in chunks:
            header = chunk.header
            entry = coverage.holder_of(header, source=segment.staged_key)
            if entry is not None:
                crc32 = met.get(entry.next_offset, 0)
                met[entry.next_offset] = combine_crc32(crc32, chunk.crc32, header.total_bytes)
                sizes[entry.next_offset] = sizes.get(entry.next_offset, 0) + header.total_bytes
            if coverage.after is None and header.next_offset >= coverage.entries[-1].next_offset:
                break
            if coverage.after is not None and header.type is ChunkType.USER:
                check_epoch_before(segment.staged_key, header.chunk_id, header.epoch, coverage.after)
    return {
        entry.next_offset
        for entry in coverage.entries
        if entry.next_offset in met
        and (sizes[entry.next_offset], met[entry.next_offset]) != (entry.data_bytes, entry.data_crc32)
    }


def _compare(
    objects: ObjectReads, segment: SegmentRolled, staged: StagedSegment, coverage: Coverage, doubtful: set[Offset]
) -> None:
    last = max(doubtful)
    held: FragmentEntry | None = None
    archived: Iterator[ChunkHeader] = iter(())
    with closing(_chunks(segment, staged)) as chunks:
        for chunk in chunks:
            header = chunk.header
            if header.chunk_id >= last:
                break
            entry = coverage.holder_of(header, source=segment.staged_key)
            if entry is None or entry.next_offset not in doubtful:
                continue
            if entry is not held:
                held, archived = entry, archived_chunks(objects, entry, Offset(header.chunk_id))
            there = next(archived, None)
            if there is None or not is_same(header, there):
                found = "no chunk" if there is None else _told(there)
                raise ContradictionError(
                    segment.staged_key, header.chunk_id, f"it has {_told(header)}; {entry.key} has {found}"
                )


def is_same(one: ChunkHeader, other: ChunkHeader) -> bool:
    """Tell whether two chunks are the same, but for what brokers do not deliver; tracking chunks have no messages."""
    if one.type is ChunkType.USER or other.type is ChunkType.USER:
        return _identity(one) == _identity(other)
    return one.chunk_id == other.chunk_id


def _identity(header: ChunkHeader) -> tuple[int, ...]:
    return (
        header.type,
        header.chunk_id,
        header.records,
        header.entries,
        header.epoch,
        header.timestamp,
        header.crc,
        header.data_bytes,
    )


def _told(header: ChunkHeader) -> str:
    kind = "a user chunk" if header.type is ChunkType.USER else "a tracking chunk"
    return (
        f"{kind} of offsets {header.chunk_id} to {header.next_offset - 1}, epoch {header.epoch},"
        f" {format_timestamp(header.timestamp)}, {header.data_bytes} bytes of CRC-32 {header.crc:08x}"
    )


def _chunks(segment: SegmentRolled, staged: StagedSegment) -> Generator[ChunkEnd, None, None]:
    """Yield the chunks of the copy, as far as it is sound: where it is not, that is found again when it is cut."""
    scanner = SegmentScanner(segment.staged_key, first_offset=segment.first_offset)
    with closing(staged.blocks()) as blocks, suppress(CorruptionError):
        for block in blocks:
            for event in scanner.feed(block):
                if isinstance(event, ChunkEnd):
                    yield event
