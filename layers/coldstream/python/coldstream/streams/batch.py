"""`Batch`: messages that are appended as one chunk, in the broker's own format."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from zlib import crc32

from coldstream.errors import InvalidInputError
from coldstream.format.amqp.message import Message
from coldstream.format.amqp.sections import DATA
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.entry import SubBatch, simple_entry
from coldstream.format.writer import make_chunk
from coldstream.units import MIB, ChunkId, Epoch, Offset, TimestampMs

MAX_BATCH_ENTRIES = 65_535
"""Entries of one batch: the header of a chunk has 16 bits for them."""

MAX_BATCH_BYTES = 16 * MIB
"""Bytes of one batch, with the lengths of its entries: readers hold a chunk in memory whole."""

_DESCRIPTOR = bytes((0x00, 0x53, DATA))
_SHORT = struct.Struct(">3sBB")  # descriptor, binary of up to 255 bytes, its length
_LONG = struct.Struct(">3sBI")  # descriptor, binary, its length
_MAX_SHORT = 255
_EPOCH = slice(16, 24)  # of a chunk's header


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages as they lie in a chunk: `data` has all the entries, of which there are `entries`, with `records`.

    Each record takes one offset. `Batch.of` makes one of bodies, `Batch.encoded` of whole AMQP 1.0 messages.
    """

    data: bytes
    entries: int
    records: int
    crc32: int

    @classmethod
    def of(cls, messages: Sequence[bytes | Message]) -> Batch:
        """Make a batch: bytes are the body of a message that has nothing else, a `Message` stays as it is.

        Raises InvalidInputError for none, more than MAX_BATCH_ENTRIES, or more than MAX_BATCH_BYTES.
        """
        return cls._of([simple_entry(one.raw if isinstance(one, Message) else _data(one)) for one in messages])

    @classmethod
    def encoded(cls, entries: Iterable[bytes | SubBatch]) -> Batch:
        """Make a batch of messages that are encoded in AMQP 1.0, and of sub-batches, packed as a publisher does.

        Raises InvalidInputError as `of` does, and for a sub-batch without messages.
        """
        entries = list(entries)
        if any(isinstance(one, SubBatch) and not one.records for one in entries):
            raise InvalidInputError("batch", "has a sub-batch without messages")
        records = sum(one.records if isinstance(one, SubBatch) else 1 for one in entries)
        return cls._of([one.to_bytes() if isinstance(one, SubBatch) else simple_entry(one) for one in entries], records)

    @classmethod
    def _of(cls, parts: list[bytes], records: int | None = None) -> Batch:
        if not 1 <= len(parts) <= MAX_BATCH_ENTRIES:
            raise InvalidInputError("batch", f"has {len(parts)} messages: 1 to {MAX_BATCH_ENTRIES}")
        data = b"".join(parts)
        if len(data) > MAX_BATCH_BYTES:
            raise InvalidInputError("batch", f"has {len(data)} bytes, of {MAX_BATCH_BYTES} at most")
        return cls(data, len(parts), len(parts) if records is None else records, crc32(data))

    def chunk(self, first_offset: Offset, timestamp: TimestampMs, epoch: Epoch, trailer: bytes = b"") -> bytes:
        """Return the chunk of this batch at an offset. Raises InvalidInputError if no offsets are left after it."""
        try:
            header = ChunkHeader(
                ChunkType.USER,
                self.entries,
                self.records,
                timestamp,
                epoch,
                ChunkId(first_offset),
                self.crc32,
                len(self.data),
                len(trailer),
                0,
            ).to_bytes()
        except OverflowError as err:
            raise InvalidInputError("batch", str(err)) from err
        return b"".join((header, self.data, trailer))


def tracking_chunk(snapshot: bytes, first_offset: Offset, timestamp: TimestampMs, epoch: Epoch) -> bytes:
    """Return the chunk of a snapshot of the publishers' sequences. It takes one offset, and readers skip it."""
    _, chunk = make_chunk(
        [snapshot], chunk_id=ChunkId(first_offset), timestamp=timestamp, epoch=epoch, kind=ChunkType.TRACKING_SNAPSHOT
    )
    return chunk


def with_epoch(chunk: bytes, epoch: Epoch) -> bytes:
    """Return a chunk as another opening writes it: nothing but the epoch is different, which its CRC does not cover."""
    return b"".join((chunk[: _EPOCH.start], epoch.to_bytes(8, "big"), chunk[_EPOCH.stop :]))


def is_tracking(chunk: bytes) -> bool:
    """Tell whether a chunk holds no messages, and readers skip it."""
    return chunk[1] != ChunkType.USER


def _data(body: bytes) -> bytes:
    if len(body) <= _MAX_SHORT:
        return _SHORT.pack(_DESCRIPTOR, 0xA0, len(body)) + body
    return _LONG.pack(_DESCRIPTOR, 0xB0, len(body)) + body
