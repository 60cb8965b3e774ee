"""A batch of messages as a slice of a segment: the bytes that are staged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from coldstream.format.entry import SIMPLE_HEADER_BYTES
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.format.writer import make_chunk
from coldstream.units import MIB, ChunkId, Epoch, Offset, TimestampMs

CHUNK_MESSAGES = 1000
CHUNK_BYTES = MIB
"""A chunk ends with the message that takes it to either. Readers hold a chunk in memory whole."""


def batch_bytes(messages: Sequence[bytes], first_offset: Offset, timestamp: TimestampMs, epoch: Epoch) -> bytes:
    """Return a segment of these messages; the same bytes for the same arguments. Raises OverflowError (2 GiB)."""
    parts = [SEGMENT_HEADER]
    for start, end in pairwise(_borders(messages)):
        _, chunk = make_chunk(
            messages[start:end], chunk_id=ChunkId(first_offset + start), timestamp=timestamp, epoch=epoch
        )
        parts.append(chunk)
    return b"".join(parts)


def _borders(messages: Sequence[bytes]) -> Iterator[int]:
    """Yield where chunks begin, and the end."""
    yield 0
    start = size_bytes = 0
    for at, message in enumerate(messages, 1):
        size_bytes += SIMPLE_HEADER_BYTES + len(message)
        if at - start >= CHUNK_MESSAGES or size_bytes >= CHUNK_BYTES or at == len(messages):
            yield at
            start, size_bytes = at, 0
