"""What an erasure must leave as it was, as one digest: made of the old chunks, and again of those that were read back.

    of a chunk with erased messages   the header but for CRC and data size, the trailer, the kind and the number of
                                      records of each entry, and offset and bytes of each message that is not erased
    of any other chunk                the whole of it, by its header and its CRC-32

So if both digests are the same, each message that was to stay is there, and each of the others is an erased message: it
would be part of the second digest otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from hashlib import sha256

from coldstream.errors import CorruptionError
from coldstream.format.chunk import Chunk, ChunkHeader
from coldstream.format.entry import SubBatch, iter_entries
from coldstream.format.erased import ERASED_MESSAGE

_CHUNK = struct.Struct(
    ">"
    "B"  # type
    "H"  # entries
    "I"  # records
    "q"  # timestamp, ms
    "Q"  # epoch
    "Q"  # chunk id
    "I"  # trailer, bytes
    "B"  # bloom filter, bytes
)
_ENTRY = struct.Struct(
    ">"
    "?"  # whether it is a sub-batch
    "Q"  # first offset
    "H"  # records
)
_MESSAGE = struct.Struct(
    ">"
    "Q"  # offset
    "I"  # bytes
)


class KeptContent:
    """Takes the chunks of a fragment in order; `digest` is then that of what is to stay."""

    def __init__(self) -> None:
        self._sha256 = sha256()

    @property
    def digest(self) -> bytes:
        """The digest of what was taken so far."""
        return self._sha256.digest()

    def add_whole(self, header: ChunkHeader, chunk_crc32: int) -> None:
        """Take a chunk that stays as it is; the CRC-32 is that of all of its bytes."""
        self._sha256.update(header.to_bytes() + chunk_crc32.to_bytes(4))

    def add_without(self, chunk: Chunk, erased: Collection[int], *, source: str) -> None:
        """Take a chunk but for the messages at these offsets, and those that are erased messages."""
        header, update = chunk.header, self._sha256.update
        fixed = (header.type, header.entries, header.records, header.timestamp, header.epoch, header.chunk_id)
        update(_CHUNK.pack(*fixed, header.trailer_bytes, header.bloom_bytes) + chunk.trailer)
        offset = int(header.chunk_id)
        for entry in iter_entries(chunk, source=source):
            is_batch = isinstance(entry, SubBatch)
            records = entry.records if isinstance(entry, SubBatch) else 1
            update(_ENTRY.pack(is_batch, offset, records))
            for at, raw in _left(entry, range(offset, offset + records), erased, source):
                update(_MESSAGE.pack(at, len(raw)) + raw)
            offset += records


def _left(
    entry: memoryview | SubBatch, offsets: range, erased: Collection[int], source: str
) -> Iterator[tuple[int, memoryview]]:
    """Yield offset and bytes of the messages of an entry that are left."""
    # A batch that is erased whole may be one that nobody can unpack.
    if all(offset in erased for offset in offsets):
        return
    if isinstance(entry, SubBatch):
        try:
            members = list(entry.messages(source=source))
        except CorruptionError:
            # It stays as it is, packed: as one message, whatever is in it.
            yield offsets[0], entry.data
            return
    else:
        members = [entry]
    for offset, raw in zip(offsets, members, strict=True):
        if offset not in erased and raw != ERASED_MESSAGE:
            yield offset, raw
