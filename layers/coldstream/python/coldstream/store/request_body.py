"""Bodies of requests to S3."""

from __future__ import annotations

from typing import Protocol

BLOCK_BYTES = 1 << 18
"""Sent by one call: large enough that calls cost nothing, small enough for a slow line within the SDK's timeout."""


class RequestBody(Protocol):
    """As much of a file as the SDK asks for, and a size.

    urllib3 asks a file for 16 KiB at a time, and passes on what it gets, so `read` may return more. It returns memory
    that lasts until the next call.
    """

    def read(self, size: int = -1) -> bytes | memoryview:
        """Return the next block, or all that is left; nothing at the end."""
        ...

    def seek(self, position: int, whence: int = 0) -> int:
        """Move, before another attempt, or to find out the size."""
        ...

    def tell(self) -> int:
        """Return the position."""
        ...

    def __len__(self) -> int:
        """Return the size in bytes."""
        ...

    def __bytes__(self) -> bytes:
        """Return all of it."""
        ...
