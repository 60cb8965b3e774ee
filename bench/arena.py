"""Where the benchmark's S3 server keeps bodies."""

from __future__ import annotations

import itertools
import os
import socket
import weakref
import zlib
from collections import deque
from collections.abc import Sequence

from awscrt.checksums import combine_crc32

BLOCK_BYTES = 1 << 18


class Arena:
    """Where bodies lie: one file, in blocks that are used again.

    A virtual machine may pay dearly for memory that it touches for the first time, or for the first time in a while
    (300 MiB/s have been seen): `warm_mib` of blocks are written beforehand, and none is ever given back to the system.
    """

    def __init__(self, directory: str | None, warm_mib: int) -> None:
        if directory is None:
            self.fd = os.memfd_create("objects")
        else:
            self.fd = os.open(directory, os.O_TMPFILE | os.O_RDWR)
        self._unused = itertools.count()
        self._free: deque[int] = deque()
        zeros = bytes(BLOCK_BYTES)
        for _ in range((warm_mib << 20) // BLOCK_BYTES):
            start = self.take()
            os.pwrite(self.fd, zeros, start)
            self._free.append(start)

    def take(self) -> int:
        """Return the position of a block that nobody uses."""
        try:
            return self._free.popleft()
        except IndexError:
            return next(self._unused) * BLOCK_BYTES

    def give_back(self, starts: Sequence[int]) -> None:
        """Let others use blocks again."""
        self._free.extend(starts)


class Body:
    """The bytes of an object, in blocks of the arena; they are free again when nobody refers to the body any more."""

    def __init__(self, arena: Arena) -> None:
        self._fd = arena.fd
        self._take = arena.take
        self._starts: list[int] = []
        self.size_bytes = 0
        self.crc32 = 0
        weakref.finalize(self, arena.give_back, self._starts)

    def add(self, view: memoryview) -> None:
        """Append bytes, and sum them."""
        self.crc32 = zlib.crc32(view, self.crc32)
        while view:
            within = self.size_bytes % BLOCK_BYTES
            if within == 0:
                self._starts.append(self._take())
            written = os.pwrite(self._fd, view[: BLOCK_BYTES - within], self._starts[-1] + within)
            self.size_bytes += written
            view = view[written:]

    def take_over(self, other: Body) -> None:
        """Append the bytes of another body, which is of no use any more, without touching them."""
        if self.size_bytes % BLOCK_BYTES:
            raise ValueError(f"what comes before another body has to end at a multiple of {BLOCK_BYTES} bytes")
        self.crc32 = combine_crc32(self.crc32, other.crc32, other.size_bytes)
        self.size_bytes += other.size_bytes
        self._starts += other._starts
        other._starts.clear()

    def send(self, connection: socket.socket, at: int, end: int) -> int:
        """Send some of the bytes from `at` on, not past `end`, without touching them; return how many."""
        number, within = divmod(at, BLOCK_BYTES)
        count = min(BLOCK_BYTES - within, end - at)
        return os.sendfile(connection.fileno(), self._fd, self._starts[number] + within, count)
