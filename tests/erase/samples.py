"""Messages, chunks and fragments of every shape that an erasure meets."""

from __future__ import annotations

from collections.abc import Sequence

from rstream import AMQPMessage
from rstream._pyamqp.message import Properties

from coldstream.erase.chunk import Doubts, ErasedChunk, erase_chunk
from coldstream.erase.selection import Selection
from coldstream.format.amqp.message import messages
from coldstream.format.chunk import Chunk, ChunkType, iter_chunks
from coldstream.format.entry import SubBatch
from coldstream.format.tracking import TrackingRecord, TrackingType
from coldstream.format.writer import make_chunk
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

TRAILER = TrackingRecord(TrackingType.SEQUENCE, b"publisher-1", 17).to_bytes()
BLOOM = bytes([1, 2, 4, 8] * 4)


def amqp(body: bytes, *, user: str | None = None, **annotations: object) -> bytes:
    """Encode a message as a stream client does."""
    return bytes(
        AMQPMessage(
            body=body,
            properties=None if user is None else Properties(message_id=user),
            message_annotations={key.replace("_", "-"): value for key, value in annotations.items()} or None,
        )
    )


def chunk_of(*entries: bytes | SubBatch, chunk_id: int = 100, kind: ChunkType = ChunkType.USER) -> Chunk:
    """Make a chunk with a bloom filter and a trailer."""
    is_user = kind is ChunkType.USER
    _, data = make_chunk(
        entries,
        chunk_id=ChunkId(chunk_id),
        timestamp=TimestampMs(1_763_700_000_123),
        epoch=Epoch(3),
        kind=kind,
        bloom=BLOOM if is_user else b"",
        trailer=TRAILER if is_user else b"",
    )
    (chunk,) = iter_chunks(data, source="test")
    return chunk


def between(first_offset: int, next_offset: int) -> Selection:
    """Select by offsets alone."""
    return Selection(Offset(first_offset), Offset(next_offset))


def bytes_of(erased: ErasedChunk) -> bytes:
    """Return the rewritten chunk."""
    return b"".join(erased.pieces)


def erase(chunk: Chunk, selection: Selection, doubts: Doubts | None = None) -> Chunk:
    """Erase what must have something to erase, and parse the result as a reader does."""
    erased = erase_chunk(chunk, selection, doubts or Doubts(), source="test")
    assert erased is not None
    (found,) = iter_chunks(bytes_of(erased), source="test", expected=chunk.header.chunk_id)
    return found


def raw_of(chunk: Chunk) -> Sequence[bytes]:
    """Return the messages of a chunk, in order."""
    found = list(messages(chunk, source="test"))
    assert [message.offset for message in found] == list(range(chunk.header.chunk_id, chunk.header.next_offset))
    return [message.raw for message in found]
