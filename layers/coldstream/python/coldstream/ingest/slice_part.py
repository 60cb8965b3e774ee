"""A part of a slice's staged copy, read out of the segment file in blocks: once for its CRC-32, once for each attempt.

Two reads out of the page cache take less of the processor than one into memory of a part's size, which the kernel has
to give first; and blocks stay in the processor's cache for whoever sums or sends them. If the bytes changed in between,
S3 would refuse them, as they are not of the CRC-32 that was sent.
"""

from __future__ import annotations

import os
import sys
from zlib import crc32

from coldstream.errors import TruncatedError
from coldstream.store.request_body import BLOCK_BYTES


class SlicePart:
    """Implements `RequestBody`: `head`, and then bytes `start` up to `end` of an open file, which stays open.

    For one thread at a time. Memory: a block. Reading raises TruncatedError when the file ends too early.
    """

    def __init__(self, descriptor: int, name: str, head: bytes, start: int, end: int) -> None:
        self._descriptor = descriptor
        self._name = name
        self._head = head
        self._start = start
        self._end = end
        self._at = 0
        self._block = bytearray(0)

    def __len__(self) -> int:
        return len(self._head) + self._end - self._start

    def __bytes__(self) -> bytes:
        self.seek(0)
        return b"".join(map(bytes, iter(self.read_block, b"")))

    def checksum(self) -> int:
        """Return the CRC-32, and go back to the beginning; reads the file once."""
        self.seek(0)
        found = 0
        while block := self.read_block():
            found = crc32(block, found)
        self.seek(0)
        return found

    def read(self, size: int = -1) -> bytes | memoryview:
        """Return the next block, or all that is left."""
        if size >= 0:
            return self.read_block() if size else b""
        return b"".join(map(bytes, iter(self.read_block, b"")))

    def read_block(self) -> bytes | memoryview:
        """Return the next block, which lasts until the next call."""
        if self._at < len(self._head):
            found = self._head[self._at :]
            self._at = len(self._head)
            return found
        position = self._start + self._at - len(self._head)
        size_bytes = min(BLOCK_BYTES, self._end - position)
        if not size_bytes:
            return b""
        if not self._block:
            self._block = bytearray(BLOCK_BYTES)
        block = memoryview(self._block)[:size_bytes]
        found_bytes = os.preadv(self._descriptor, [block], position)
        # Of a regular file, a read returns less only at its end: then the file was cut after the slice was made.
        if found_bytes < size_bytes:
            missing_bytes = self._end - position
            raise TruncatedError(
                self._name, position, "the file ends inside the slice", expected=missing_bytes, found=found_bytes
            )
        self._at += size_bytes
        return block

    def seek(self, position: int, whence: int = 0) -> int:
        """Move."""
        self._at = min(max(0, (0, self._at, len(self))[whence] + position), len(self))
        return self._at

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def forget(self) -> None:
        """Tell the kernel that nobody here reads these bytes again: they would push the broker's out of its cache."""
        self._block = bytearray(0)
        if sys.platform == "linux":
            os.posix_fadvise(self._descriptor, self._start, self._end - self._start, os.POSIX_FADV_DONTNEED)
