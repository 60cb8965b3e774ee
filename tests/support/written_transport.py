"""A socket that a test reads and holds up: what asyncio's transports do, without a loop."""

from __future__ import annotations

import asyncio


class WrittenTransport(asyncio.Transport):
    """Keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.is_shut = False
        self.limits: tuple[int | None, int | None] = (None, None)

    @property
    def written(self) -> bytes:
        """All of it."""
        return b"".join(self.pieces)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        # A piece of the shared buffer would change under whoever keeps it.
        assert isinstance(data, bytes)
        assert data
        self.pieces.append(data)

    def is_closing(self) -> bool:
        return self.is_shut

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (high, low)
