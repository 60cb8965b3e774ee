"""`StagedSegment`: one staged copy of a segment, read by ranged GETs of which a few are always in flight."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

from coldstream.flow.window import map_ahead
from coldstream.store.ports import ObjectStore
from coldstream.units import MIB, ByteRange

BLOCK_BYTES = 2 * MIB
BLOCKS_AHEAD = 3
"""Blocks that are requested before they are needed. Memory: these and the block in use."""


class StagedSegment:
    """One copy of a segment and no other: every read requires its ETag."""

    def __init__(self, objects: ObjectStore, key: str, etag: str | None) -> None:
        """Read the copy's first block and its ETag. Without `etag`, the copy is the one that is there now.

        Cost: one GET. Raises ObjectNotFoundError, and ReplacedError if another copy is there, as every read does.
        """
        self._objects = objects
        self._key = key
        first = objects.get_range(key, ByteRange(0, BLOCK_BYTES), if_match=etag)
        self.etag = first.etag
        self.size_bytes = first.object_bytes
        self._first_block: bytes | None = first.data

    def blocks(self) -> Generator[bytes, None, None]:
        """Yield the bytes in order, in blocks of 2 MiB."""
        starts = range(0, self.size_bytes, BLOCK_BYTES)
        with ThreadPoolExecutor(BLOCKS_AHEAD, thread_name_prefix="staged") as pool:
            # One call more than BLOCKS_AHEAD: while the caller works on a block, its own call is no longer in flight.
            yield from map_ahead(pool, self._read, starts, max_calls=BLOCKS_AHEAD + 1)

    def _read(self, start: int) -> bytes:
        if start == 0 and self._first_block is not None:
            first, self._first_block = self._first_block, None  # given away once: it must not stay in memory
            return first
        block = ByteRange(start, min(start + BLOCK_BYTES, self.size_bytes))
        # Without the ETag, a copy staged in the meantime would be spliced onto the beginning of this one.
        return self._objects.get_range(self._key, block, if_match=self.etag).data
