"""The bodies of objects in the benchmark's S3 server: blocks of one file, which are used again."""

from __future__ import annotations

import itertools
import os
import socket
import weakref
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from coldstream.format.checksum import combine_crc32

BLOCK_BYTES = 1 << 18


class Arena:
    """A file of blocks that bodies take and give back.

    Memory that a virtual machine touches for the first time can be slow (300 MiB/s were measured). So `warm_mib` of
    blocks are written beforehand, and no block ever returns to the system.
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
        """Return the position of a free block."""
        try:
            return self._free.popleft()
        except IndexError:
            return next(self._unused) * BLOCK_BYTES

    def give_back(self, starts: Sequence[int]) -> None:
        """Free blocks."""
        self._free.extend(starts)


class Body:
    """The bytes of an object, in blocks of the arena. They are freed with the last reference to the body."""

    def __init__(self, arena: Arena) -> None:
        self._fd = arena.fd
        self._take = arena.take
        self._blocks: list[int] = []
        # Pieces, each up to the next: their positions in the body, and in the arena.
        self._positions: list[int] = []
        self._arena_positions: list[int] = []
        self._room = 0
        self.size_bytes = 0
        self.crc32 = 0
        weakref.finalize(self, arena.give_back, self._blocks)

    def add(self, view: memoryview) -> None:
        """Append bytes, and add them to the CRC-32."""
        self.crc32 = zlib.crc32(view, self.crc32)
        while view:
            if self._room == 0:
                self._blocks.append(self._take())
                self._positions.append(self.size_bytes)
                self._arena_positions.append(self._blocks[-1])
                self._room = BLOCK_BYTES
            written = os.pwrite(self._fd, view[: self._room], self._blocks[-1] + BLOCK_BYTES - self._room)
            self._room -= written
            self.size_bytes += written
            view = view[written:]

    def take_over(self, other: Body) -> None:
        """Append the bytes of another body without copying them. The other body is unusable afterwards."""
        self.crc32 = combine_crc32(self.crc32, other.crc32, other.size_bytes)
        self._positions += [self.size_bytes + position for position in other._positions]
        self._arena_positions += other._arena_positions
        self._blocks += other._blocks
        self._room = other._room
        self.size_bytes += other.size_bytes
        other._blocks.clear()  # otherwise the end of the other body would free them

    def add_from(self, other: Body, start: int, end: int) -> None:
        """Append a copy of bytes `start` to `end` of another body."""
        while start < end:
            position, count = other._find(start, min(end, start + BLOCK_BYTES))
            self.add(memoryview(os.pread(self._fd, count, position)))
            start += count

    def send(self, connection: socket.socket, at: int, end: int) -> int:
        """Send bytes from `at` on, up to `end` at most, without copying them; return how many were sent."""
        position, count = self._find(at, end)
        return os.sendfile(connection.fileno(), self._fd, position, count)

    def _find(self, at: int, end: int) -> tuple[int, int]:
        """Return the position in the arena of the byte at `at`, and how many bytes up to `end` follow it there."""
        number = bisect_right(self._positions, at)
        piece_end = self._positions[number] if number < len(self._positions) else self.size_bytes
        return self._arena_positions[number - 1] + at - self._positions[number - 1], min(end, piece_end) - at
