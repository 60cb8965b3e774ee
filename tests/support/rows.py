"""Messages as rows, out of a chunk of their own."""

from __future__ import annotations

import pyarrow as pa

from coldstream.format.chunk import iter_chunks
from coldstream.format.writer import make_chunk
from coldstream.rows.batches import batches
from coldstream.rows.schema import SCHEMA
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

TIME = 1_763_700_000_123
"""2025-11-21T04:40:00.123Z."""


def as_rows(*published: bytes, timestamp: int = TIME) -> pa.RecordBatch:
    """Return messages of the stream orders, from offset 40 on, as rows with all columns."""
    header, data = make_chunk(published, chunk_id=ChunkId(40), timestamp=TimestampMs(timestamp), epoch=Epoch(1))
    (found,) = batches(
        iter_chunks(data, source="test"),
        "orders",
        SCHEMA.names,
        start=Offset(0),
        end=Offset(header.next_offset),
        source="test",
    )
    return found
