"""The way out to one socket: what passes through, and what the gateway sends beside it, as whole frames in order."""

from __future__ import annotations

import asyncio
from typing import Final

from coldstream.errors import ClosedLinkError
from coldstream.units import KIB

HIGH_WATER_BYTES: Final = 256 * KIB
"""With more than this unsent, the other side is not read any further."""

_LOW_WATER_BYTES = 64 * KIB
_JOINED_BYTES = 64 * KIB


class Outlet:
    """Writes to one socket.

    `send` queues: while it is held, in the middle of a frame or of a read; and else until the loop's next turn or until
    there is enough, since a write for each frame takes more time than all else that is done for it.
    """

    __slots__ = (
        "_is_finishing",
        "_is_held",
        "_is_over",
        "_is_scheduled",
        "_queued_bytes",
        "_transport",
        "_waiters",
        "is_paused",
        "queue",
        "sent_bytes",
    )

    def __init__(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(HIGH_WATER_BYTES, _LOW_WATER_BYTES)
        self._transport = transport
        self._is_held = False
        self._is_finishing = False
        self._is_over = False
        self._is_scheduled = False
        self._queued_bytes = 0
        self._waiters: list[asyncio.Future[None]] = []
        self.queue: list[bytes] = []
        """What waits for a place between two frames."""
        self.is_paused = False
        """The socket takes no more for now."""
        self.sent_bytes = 0

    @property
    def is_full(self) -> bool:
        """Tell whether more is unsent than the socket takes."""
        return self.is_paused or self._queued_bytes > HIGH_WATER_BYTES

    def write(self, data: memoryview | bytes) -> None:
        """Write what passes through. It is copied: it lies in a buffer that is used again at once."""
        # A socket that is closing is not written to: uvloop would raise, and asyncio warn.
        if data and not self._is_over and not self._transport.is_closing():
            self.sent_bytes += len(data)
            self._transport.write(bytes(data))

    def send(self, *pieces: bytes) -> None:
        """Write whole frames soon, but not before the frame that passes through is complete."""
        if self._is_finishing:
            return
        self.queue += pieces
        self._queued_bytes += sum(map(len, pieces))
        if self._is_held:
            return
        if self._queued_bytes >= _JOINED_BYTES:
            self.flush()
        elif not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush_scheduled)

    def finish(self, *last: bytes) -> None:
        """Write a last frame in its turn, and nothing after it."""
        if self._is_finishing:
            return
        self.queue += last
        self._is_finishing = True
        if not self._is_held:
            self.flush()

    def end(self) -> None:
        """Write nothing more, from now on. Whoever waits for `drained` is told."""
        if self.queue and not self._is_held:
            self._send(self.queue)
        self._is_finishing = self._is_over = True
        self.queue.clear()
        self._queued_bytes = 0
        self._wake()

    def hold(self) -> None:
        """Let what is sent from now on wait for `flush` or `release`."""
        if self.queue and not self._is_held:
            self.flush()
        self._is_held = True

    def flush(self) -> None:
        """Write what is queued: a frame has ended here."""
        if self.queue and not self._is_over:
            pieces, self.queue = self.queue, []
            self._queued_bytes = 0
            self._send(pieces)
            self._wake()
        if self._is_finishing and not self._is_over:
            self.end()

    def release(self) -> None:
        """Write what is queued, and hold it no longer."""
        self._is_held = False
        self.flush()

    def pause(self) -> None:
        """Note that the socket takes no more."""
        self.is_paused = True

    def resume(self) -> None:
        """Note that the socket takes more."""
        self.is_paused = False
        self._wake()

    async def drained(self) -> None:
        """Wait until it is not full. Raises ClosedLinkError if it ends."""
        while not self._is_finishing and self.is_full:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        if self._is_finishing:
            raise ClosedLinkError("the connection has ended")

    def _flush_scheduled(self) -> None:
        self._is_scheduled = False
        if not self._is_held:
            self.flush()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _send(self, pieces: list[bytes]) -> None:
        if self._is_over or self._transport.is_closing():
            return
        # Small ones together, for each write is a call of the system; large ones as they are, not copied.
        small: list[bytes] = []
        self.sent_bytes += sum(map(len, pieces))
        for piece in pieces:
            if len(piece) < _JOINED_BYTES:
                small.append(piece)
                continue
            if small:
                self._transport.write(b"".join(small))
                small = []
            self._transport.write(piece)
        if small:
            self._transport.write(b"".join(small))
