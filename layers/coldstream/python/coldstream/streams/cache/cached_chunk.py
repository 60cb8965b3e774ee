"""`CachedChunk`: a batch as it lies in memory."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.units import Epoch, Offset, TimestampMs

CHUNK_OVERHEAD_BYTES = 320
"""What a chunk in memory takes besides its bytes: the objects of Python that hold it, and their place in a list."""


@dataclass(frozen=True, slots=True)
class CachedChunk:
    """A whole chunk, header included, of the offsets `first_offset` up to `next_offset`."""

    first_offset: Offset
    next_offset: Offset
    timestamp: TimestampMs
    epoch: Epoch
    data: bytes

    @property
    def memory_bytes(self) -> int:
        """What it takes of a memory budget."""
        return memory_bytes(len(self.data))


def memory_bytes(data_bytes: int) -> int:
    """Return what a chunk of so many bytes takes of a memory budget: an append reserves this much."""
    return data_bytes + CHUNK_OVERHEAD_BYTES
