"""Read a staged segment: ranged GETs, one after the other, with the next ones under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from coldstream.errors import BadLengthError
from coldstream.store.ports import ObjectStore, RangeRead
from coldstream.units import MIB, ByteRange

BLOCK_BYTES = 2 * MIB
BLOCKS_AHEAD = 3
"""Blocks asked for before they are needed: with the one in hand, what a read holds in memory."""


class StagedSegment:
    """One version of a staged object, held to it by its ETag."""

    def __init__(self, objects: ObjectStore, key: str, size_bytes: int) -> None:
        """Look at the object; cost: one GET. `size_bytes` is what was announced. Raises ObjectNotFoundError."""
        self._objects = objects
        self._key = key
        self._size_bytes = size_bytes
        first = objects.get_range(key, ByteRange(0, min(BLOCK_BYTES, size_bytes)))
        self.etag = first.etag
        self._object_bytes = first.object_bytes
        self._first_block = first.data

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes in order, in blocks of 2 MiB; to be called once.

        Raises BadLengthError when the object is not of the size announced, ConflictError when it is replaced meanwhile.
        """
        if self._object_bytes != self._size_bytes:
            raise BadLengthError(
                self._key, 0, "size of the segment", expected=self._size_bytes, found=self._object_bytes
            )
        starts = iter(range(BLOCK_BYTES, self._object_bytes, BLOCK_BYTES))
        with ThreadPoolExecutor(BLOCKS_AHEAD, thread_name_prefix="staged") as pool:
            ahead = deque(pool.submit(self._read, start) for start in islice(starts, BLOCKS_AHEAD))
            block, self._first_block = self._first_block, b""
            while True:
                yield block
                if not ahead:
                    return
                block = ahead.popleft().result().data
                ahead.extend(pool.submit(self._read, start) for start in islice(starts, 1))

    def _read(self, start: int) -> RangeRead:
        block = ByteRange(start, min(start + BLOCK_BYTES, self._object_bytes))
        return self._objects.get_range(self._key, block, if_match=self.etag)
