"""Read a staged segment: ranged GETs, one after the other, with the next ones under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from coldstream.store.ports import ObjectStore, RangeRead
from coldstream.units import MIB, ByteRange

BLOCK_BYTES = 2 * MIB
BLOCKS_AHEAD = 3
"""Blocks asked for before they are needed: with the one in hand, what a read holds in memory."""


class StagedSegment:
    """One copy of a segment, and no other: every read of it is held to its ETag."""

    def __init__(self, objects: ObjectStore, key: str, etag: str | None) -> None:
        """Look at the copy; cost: one GET. Without an `etag`, it is the one that is there now.

        Raises ObjectNotFoundError, and ReplacedError when another copy is there, as every read does.
        """
        self._objects = objects
        self._key = key
        first = objects.get_range(key, ByteRange(0, BLOCK_BYTES), if_match=etag)
        self.etag = first.etag
        self.size_bytes = first.object_bytes
        self._first_block: bytes | None = first.data

    def blocks(self) -> Generator[bytes, None, None]:
        """Yield the bytes in order, in blocks of 2 MiB."""
        first, self._first_block = self._first_block, None
        starts = iter(range(0 if first is None else BLOCK_BYTES, self.size_bytes, BLOCK_BYTES))
        with ThreadPoolExecutor(BLOCKS_AHEAD, thread_name_prefix="staged") as pool:
            ahead = deque(pool.submit(self._read, start) for start in islice(starts, BLOCKS_AHEAD))
            if first is not None:
                yield first
            while ahead:
                block = ahead.popleft().result().data
                ahead.extend(pool.submit(self._read, start) for start in islice(starts, 1))
                yield block

    def _read(self, start: int) -> RangeRead:
        block = ByteRange(start, min(start + BLOCK_BYTES, self.size_bytes))
        return self._objects.get_range(self._key, block, if_match=self.etag)
