"""Memory for the bytes of ranges, used again once nobody looks at them.

To fill 8 MiB of memory that is new to a process takes three times as long as to fill memory that it has: the kernel has
to find and clear each page first.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from io import BytesIO


class Buffers:
    """Buffers that are filled and handed out as views. Threads may share it.

    A view stays as it is for as long as somebody holds it, or a part of it. At most `most_bytes` are remembered for
    later; a buffer beyond that lives as long as its views.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._known: list[BytesIO] = []  # free, or with somebody

    def fill(self, size_bytes: int, read_into: Callable[[memoryview], None]) -> memoryview:
        """Have `read_into` fill a buffer of that size, and return it, read-only. Raises what that raises."""
        buffer = self._take(size_bytes)
        # A BytesIO whose bytes somebody holds copies them before it lends them to be written. So a buffer that was
        # wrongly taken for a free one would cost time, and never change what somebody reads.
        with buffer.getbuffer() as room:
            read_into(room[:size_bytes])
        data = memoryview(buffer.getvalue())[:size_bytes]
        # Not after a failure: whoever holds its traceback also holds the room.
        self._remember(buffer)
        return data

    @property
    def kept_bytes(self) -> int:
        """Size of the buffers that are remembered, free or not."""
        with self._lock:
            return sum(map(_size, self._known))

    def clear(self) -> None:
        """Forget all buffers: what nobody holds is freed."""
        with self._lock:
            self._known.clear()

    def _take(self, size_bytes: int) -> BytesIO:
        with self._lock:
            # The last one first: its pages are the likeliest to be in a cache.
            for number in reversed(range(len(self._known))):
                buffer = self._known[number]
                if size_bytes <= _size(buffer) <= 2 * size_bytes and _is_free(buffer):
                    return self._known.pop(number)
        # With room for the next range, which is about as large. Pages that are never written take no memory.
        return BytesIO(bytes(size_bytes + size_bytes // 4))

    def _remember(self, buffer: BytesIO) -> None:
        with self._lock:
            self._known.append(buffer)
            kept_bytes = sum(map(_size, self._known))
            while kept_bytes > self._most_bytes:
                kept_bytes -= _size(self._known.pop(0))


def _size(buffer: BytesIO) -> int:
    return len(buffer.getvalue())  # which copies nothing


def _is_free(buffer: BytesIO) -> bool:
    return _references(buffer) == _REFERENCES_OF_FREE


def _references(buffer: BytesIO) -> int:
    return sys.getrefcount(buffer.getvalue())


_REFERENCES_OF_FREE = _references(BytesIO(bytes(2)))
"""References to the bytes of a buffer that nobody else holds, while they are counted."""
