"""A relay that looks at nothing: what an asyncio process takes for the bytes alone (`python -m bench.byte_relay`).

It prints its port. Each chunk of bytes that is received is written on, and a full buffer pauses the other side.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import cast


class _Side(asyncio.BufferedProtocol):
    """One side of a pair."""

    scratch = memoryview(bytearray(256 * 1024))

    def __init__(self, other: _Side | None = None) -> None:
        self.other = other
        self.transport: asyncio.Transport | None = None
        self.early = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class

    def get_buffer(self, _: int) -> memoryview:
        return self.scratch

    def buffer_updated(self, size_bytes: int) -> None:
        if self.other is None or self.other.transport is None:
            self.early += self.scratch[:size_bytes]  # uvloop reads before it heeds that reading was paused
        else:
            self.other.transport.write(bytes(self.scratch[:size_bytes]))

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class _ClientSide(_Side):
    """The side of the client, which waits for the broker's."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.pause_reading()
        self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        _, self.other = await loop.create_connection(lambda: _Side(self), "127.0.0.1", int(sys.argv[1]))
        assert self.transport is not None
        assert self.other.transport is not None
        self.other.transport.write(self.early)
        self.transport.resume_reading()


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_ClientSide, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        loop_factory = importlib.import_module("uvloop").new_event_loop
    except ModuleNotFoundError:
        loop_factory = None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(_serve())
