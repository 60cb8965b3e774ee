"""Entries of fragments, for the tests of compaction."""

from __future__ import annotations

from coldstream.manifest.entry import Encoding, FragmentEntry
from coldstream.manifest.frames import Frames
from coldstream.manifest.sparse import SparseIndex, SparsePoint
from coldstream.units import MIB, ChunkId, Epoch, Offset, TimestampMs


def fragment(
    first: int, following: int, *, size: int = 10, time: int = 0, packed: bool = False, chunks: int = 4
) -> FragmentEntry:
    """Make the entry of a fragment of `size` MiB."""
    point = SparsePoint(ChunkId(first), 0, 8, TimestampMs(time), TimestampMs(time))
    return FragmentEntry(
        first_offset=Offset(first),
        next_offset=Offset(following),
        first_timestamp=TimestampMs(time),
        last_timestamp=TimestampMs(time),
        greatest_timestamp=TimestampMs(time),
        epoch=Epoch(1),
        chunks=chunks,
        records=following - first,
        messages=1,
        data_bytes=size * MIB,
        object_bytes=size * MIB + 100,
        key=f"{first:020}.fragment",
        crc32=0,
        sparse=SparseIndex((point,)),
        last_user_chunk=None,
        segment_offset=Offset(first),
        encoding=Encoding.ZSTD_SEEKABLE if packed else Encoding.IDENTITY,
        frames=Frames((17, 100)) if packed else None,
    )
