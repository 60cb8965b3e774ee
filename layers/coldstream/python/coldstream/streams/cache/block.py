"""`CachedBlock`: some chunks of one object of the archive, as they lie in memory, and how they get there."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from coldstream.manifest.entry import Encoding
from coldstream.read.scan import ScanSlice, read_slice
from coldstream.store.ports import ObjectReads
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.streams.cache.read_ahead import ReadAhead
from coldstream.units import ByteRange, Offset

BlockKey = tuple[str, ByteRange]
"""An object, and the bytes of it."""


@dataclass(slots=True, eq=False)
class CachedBlock:
    """The chunks of one planned step, verified, each a copy of its own; None until they are there, by `load`.

    `memory_bytes` is what they take of the budget. `reader` is the window of the reader for whom the block was read
    ahead, None once somebody has read it.
    """

    step: ScanSlice
    load: Load | None = None
    chunks: Sequence[CachedChunk] | None = None
    memory_bytes: int = 0
    reader: ReadAhead | None = None

    @property
    def key(self) -> BlockKey:
        """The bytes that it is."""
        return key_of(self.step)

    def between(self, start: Offset, end: Offset) -> Sequence[CachedChunk]:
        """Return the chunks that hold offsets from `start` up to `end`; they must be there. Nothing is copied."""
        assert self.chunks is not None
        first = bisect_right(self.chunks, start, key=_next_offset)
        return self.chunks[first : bisect_left(self.chunks, end, lo=first, key=_first_offset)]


@dataclass(slots=True, eq=False)
class Load:
    """One GET under way, of neighbouring blocks; `waiting` readers need it.

    Until `is_reading`, it waits for memory, and can be cancelled. After that its memory is in use.
    """

    blocks: tuple[CachedBlock, ...]
    is_reading: bool
    waiting: int = 0
    task: asyncio.Task[None] = field(init=False)


def key_of(step: ScanSlice) -> BlockKey:
    """Return the key of the block of a planned step."""
    return step.key, step.byte_range


def are_neighbours(step: ScanSlice, following: ScanSlice) -> bool:
    """Tell whether one GET can read both."""
    return (
        step.key == following.key
        and step.byte_range.end == following.byte_range.start
        and step.next_offset == following.first_offset
    )


def load_bytes(steps: Sequence[ScanSlice]) -> int:
    """Return what reading blocks takes of memory: what is fetched, what that unpacks to, and the chunks in the end."""
    data_bytes = sum(step.data_bytes for step in steps)
    object_bytes = sum(len(step.byte_range) for step in steps)
    return object_bytes + data_bytes if steps[0].encoding is Encoding.IDENTITY else object_bytes + 2 * data_bytes


def read_blocks(objects: ObjectReads, steps: Sequence[ScanSlice]) -> list[list[CachedChunk]]:
    """Read neighbouring blocks, verify them, and return the chunks of each. Cost: one GET. Raises as read_slice does.

    Each chunk is copied out of what was fetched, once: so evicting it frees it, and whoever reads it shares the copy.
    """
    first, last = steps[0], steps[-1]
    whole = replace(
        first,
        start=first.first_offset,
        end=last.next_offset,
        byte_range=ByteRange(first.byte_range.start, last.byte_range.end),
        data_bytes=sum(step.data_bytes for step in steps),
        next_offset=last.next_offset,
    )
    blocks: list[list[CachedChunk]] = [[] for _ in steps]
    number = 0
    for chunk in read_slice(objects, whole):
        header = chunk.header
        while header.chunk_id >= steps[number].next_offset:
            number += 1
        data = b"".join((header.to_bytes(), chunk.bloom, chunk.data, chunk.trailer))
        blocks[number].append(
            CachedChunk(Offset(header.chunk_id), header.next_offset, header.timestamp, header.epoch, data)
        )
    return blocks


def retrieve(task: asyncio.Task[None]) -> None:
    """Take a failure that nobody waits for any more: asyncio would complain."""
    if not task.cancelled():
        task.exception()


def _first_offset(chunk: CachedChunk) -> Offset:
    return chunk.first_offset


def _next_offset(chunk: CachedChunk) -> Offset:
    return chunk.next_offset
