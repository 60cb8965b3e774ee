"""The comparison of a staged copy with what the archive holds of its offsets, before any of the copy is archived.

Two copies belong to one history if each of their user chunks is the same: its id, records, entries, epoch, timestamp,
and the CRC-32 and size of its data. Anything else may differ. Brokers deliver neither trailers nor bloom filters, and a
segment that was rebuilt from deliveries has other tracking chunks (docs/formats.md, "Copies").

A fragment whose chunks the copy has bit for bit is recognised by the CRC-32 that the manifest keeps. The archived
chunks themselves are read only if that CRC-32 is unknown or differs.

Of a fragment of which messages were erased, the archive has other data than any copy. Its chunks are compared without
the CRC-32 and the size of their data; what was removed from the archive altogether is not compared.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, suppress

from coldstream.archive.coverage import Coverage
from coldstream.archive.fragment_chunks import fragment_chunks
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.staged_segment import StagedSegment
from coldstream.errors import ContradictionError, CorruptionError
from coldstream.format.checksum import combine_crc32
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.scanner import ChunkEnd, SegmentScanner, WholeChunk
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.history import check_epoch_before
from coldstream.store.ports import ObjectReads
from coldstream.units import Offset, format_timestamp


def check_history(objects: ObjectReads, segment: SegmentRolled, staged: StagedSegment, coverage: Coverage) -> None:
    """Raise ContradictionError, which names the first such chunk, if the copy belongs to another history.

    The whole copy is compared before its first chunk is archived. Checked on the way, a copy that contradicts the
    archive late would have left chunks of its own history there already.

    A broken copy is compared up to where it breaks, because only that part can be archived.

    Cost: nothing if the archive holds nothing near. Else the staged copy is read, up to its last archived chunk, or to
    its end if the archive goes on after it. If a CRC-32 leaves doubt, both the copy and the archived chunks are read.
    Raises CorruptionError if what is archived is corrupt.
    """
    if not coverage.entries and coverage.after is None:
        return
    doubtful = _find_doubtful(segment, staged, coverage)
    if doubtful:
        _compare(objects, segment, staged, coverage, doubtful)


def _find_doubtful(segment: SegmentRolled, staged: StagedSegment, coverage: Coverage) -> set[Offset]:
    """Return the entries, by next offset, of which no CRC-32 shows that the copy has the same chunks."""
    crcs: dict[Offset, int] = {}
    sizes: dict[Offset, int] = {}
    # The loop may end early: unless the generator is closed here, its threads read on until it is collected.
    with closing(_sound_chunks(segment, staged)) as chunks:
        for chunk in chunks:
            header = chunk.header
            entry = coverage.holder_of(header, source=segment.staged_key)
            if entry is not None:
                crc32 = crcs.get(entry.next_offset, 0)
                crcs[entry.next_offset] = combine_crc32(crc32, chunk.crc32, header.total_bytes)
                sizes[entry.next_offset] = sizes.get(entry.next_offset, 0) + header.total_bytes
            if coverage.after is None and header.next_offset >= coverage.entries[-1].next_offset:
                break
            if coverage.after is not None and header.type is ChunkType.USER:
                # A leader's epoch never falls. A copy with a later epoch than what is archived after it was written by
                # a leader of another history, even though no offset of it is archived twice.
                check_epoch_before(segment.staged_key, header.chunk_id, header.epoch, coverage.after)
    return {
        entry.next_offset
        for entry in coverage.entries
        if entry.next_offset in crcs
        and (sizes[entry.next_offset], crcs[entry.next_offset]) != (entry.data_bytes, entry.data_crc32)
    }


def _compare(
    objects: ObjectReads, segment: SegmentRolled, staged: StagedSegment, coverage: Coverage, doubtful: set[Offset]
) -> None:
    """Compare the copy with the archived chunks of the doubtful entries, chunk by chunk."""
    last = max(doubtful)
    entry_in_hand: FragmentEntry | None = None
    archived: Iterator[ChunkHeader] = iter(())
    with closing(_sound_chunks(segment, staged)) as chunks:
        for chunk in chunks:
            header = chunk.header
            if header.chunk_id >= last:
                break
            entry = coverage.holder_of(header, source=segment.staged_key)
            if entry is None or entry.next_offset not in doubtful:
                continue
            if entry is not entry_in_hand:
                entry_in_hand, archived = entry, fragment_chunks(objects, entry, Offset(header.chunk_id))
            other = next(archived, None)
            if other is None or not is_same_chunk(header, other, is_erased=entry.erased):
                found = "no chunk" if other is None else _describe(other)
                raise ContradictionError(
                    segment.staged_key, header.chunk_id, f"it has {_describe(header)}; {entry.key} has {found}"
                )


def is_same_chunk(one: ChunkHeader, other: ChunkHeader, *, is_erased: bool = False) -> bool:
    """Tell whether two chunks hold the same messages. Two tracking chunks, which hold none, need only the same id.

    With `is_erased`, messages of one of them may have been erased.
    """
    if one.type is not ChunkType.USER and other.type is not ChunkType.USER:
        return one.chunk_id == other.chunk_id
    return _place(one) == _place(other) and (is_erased or _data(one) == _data(other))


def _place(header: ChunkHeader) -> tuple[int, ...]:
    return header.type, header.chunk_id, header.records, header.entries, header.epoch, header.timestamp


def _data(header: ChunkHeader) -> tuple[int, int]:
    return header.crc, header.data_bytes


def _describe(header: ChunkHeader) -> str:
    kind = "a user chunk" if header.type is ChunkType.USER else "a tracking chunk"
    return (
        f"{kind} of offsets {header.chunk_id} to {header.next_offset - 1}, epoch {header.epoch},"
        f" {format_timestamp(header.timestamp)}, {header.data_bytes} bytes of CRC-32 {header.crc:08x}"
    )


def _sound_chunks(segment: SegmentRolled, staged: StagedSegment) -> Generator[ChunkEnd | WholeChunk, None, None]:
    """Yield the copy's chunks up to the first corrupt one, which the cutter will find again and report."""
    scanner = SegmentScanner(segment.staged_key, first_offset=segment.first_offset)
    with closing(staged.blocks()) as blocks, suppress(CorruptionError):
        for block in blocks:
            for event in scanner.feed_whole(block):
                if isinstance(event, WholeChunk | ChunkEnd):
                    yield event
