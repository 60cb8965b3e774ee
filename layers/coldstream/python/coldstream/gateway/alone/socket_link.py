"""`SocketLink`: a client's socket, cut into frames; it can be left unread."""

from __future__ import annotations

import asyncio
import struct
from typing import Protocol, cast

from coldstream.errors import ClosedLinkError
from coldstream.gateway.alone.options import LEAST_FRAME_BYTES
from coldstream.gateway.frames.frame import LENGTH_BYTES
from coldstream.gateway.frames.keys import Code
from coldstream.gateway.frames.requests import Close
from coldstream.live.address import place_text
from coldstream.units import MIB

_LENGTH = struct.Struct(">I")
_HIGH_WATER_BYTES = MIB
_CLOSE_WITHIN_S = 5.0
_CLOSE_ID = 1


class FrameReceiver(Protocol):
    """Takes what comes from a socket. No method waits."""

    def frame(self, body: bytes) -> None:
        """Take a frame, without its length."""
        ...

    def too_large(self, size_bytes: int) -> None:
        """Learn that a frame is larger than agreed; nothing more is read."""
        ...

    def lost(self) -> None:
        """Learn that the connection is over. Called once."""
        ...


class SocketLink(asyncio.Protocol):
    """One connection's transport. `max_frame_bytes` is 8 KiB until a larger one is agreed on."""

    def __init__(self) -> None:
        self.max_frame_bytes = LEAST_FRAME_BYTES
        self.received_at = 0.0
        self.sent_at = 0.0
        self.full_since: float | None = None
        self.is_paused = False
        self._receiver: FrameReceiver | None = None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._room: asyncio.Future[None] | None = None
        self._is_closing = self._is_lost = self._is_scanning = False
        self._closing_timer: asyncio.TimerHandle | None = None

    def begin(self, receiver: FrameReceiver) -> None:
        """Give what comes to a receiver from now on."""
        self._receiver = receiver

    @property
    def peer_address(self) -> str:
        """The client's address, without the port."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) and name else "unknown"

    @property
    def peer(self) -> str:
        """The client's address, with the port."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return place_text(str(name[0]), int(name[1])) if isinstance(name, tuple) and name else "unknown"

    @property
    def own_address(self) -> tuple[str, int]:
        """The address and port at which the client has reached this server."""
        name = None if self._transport is None else self._transport.get_extra_info("sockname")
        return (str(name[0]), int(name[1])) if isinstance(name, tuple) and name else ("localhost", 0)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # that of another loop, as uvloop's, is no subclass
        self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self.received_at = self.sent_at = self._loop.time()

    def data_received(self, data: bytes) -> None:
        """Scan for frames."""
        self.received_at = self._loop.time()
        if not self._is_closing or self._closing_timer is not None:
            self._buffer += data
            self._scan()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  whatever it was
        """End."""
        self._is_lost = True
        self._buffer.clear()
        if self._closing_timer is not None:
            self._closing_timer.cancel()
        self._leave_waiting()
        if self._receiver is not None:
            self._receiver.lost()

    def pause_writing(self) -> None:
        """Note that the client takes less than it is sent."""
        self.full_since = self._loop.time()
        self._apply_pause()

    def resume_writing(self) -> None:
        """Note that there is room again."""
        self.full_since = None
        self._leave_waiting()
        self._apply_pause()
        self._loop.call_soon(self._scan)

    # ClientLink

    def send(self, *pieces: bytes) -> None:
        """See ClientLink."""
        if not (self._is_lost or self._is_closing) and self._transport is not None:
            self.sent_at = self._loop.time()
            self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    @property
    def is_full(self) -> bool:
        """See ClientLink."""
        return self.full_since is not None

    async def drained(self) -> None:
        """See ClientLink."""
        while self.is_full and not self._is_lost:
            if self._room is None:
                self._room = self._loop.create_future()
            await asyncio.shield(self._room)
        if self._is_lost or self._is_closing:
            raise ClosedLinkError("the client's connection is over")

    def close(self, code: Code, reason: str) -> None:
        """See ClientLink."""
        if self._is_closing or self._is_lost or self._transport is None:
            return
        self.send(Close(_CLOSE_ID, code, reason[:1000]).to_bytes())
        self._is_closing = True
        self._leave_waiting()
        self._closing_timer = self._loop.call_later(_CLOSE_WITHIN_S, self.abort)
        self.is_paused = False
        self._apply_pause()  # for its answer

    @property
    def is_closing(self) -> bool:
        """Tell whether the end has begun."""
        return self._is_closing or self._is_lost

    # What ClientLink does not have.

    def pause(self) -> None:
        """Read nothing until `resume`."""
        self.is_paused = True
        self._apply_pause()

    def resume(self) -> None:
        """Read again; what is there already comes soon."""
        self.is_paused = False
        self._apply_pause()
        self._loop.call_soon(self._scan)

    def end(self) -> None:
        """Send what is queued, and close the socket; at once if the client takes nothing."""
        self._is_closing = True
        self._leave_waiting()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            if self._closing_timer is None:
                self._closing_timer = self._loop.call_later(_CLOSE_WITHIN_S, self.abort)

    def abort(self) -> None:
        """Close the socket at once."""
        if self._transport is not None:
            self._transport.abort()

    def _apply_pause(self) -> None:
        # Who does not take answers may not ask on: else these would pile up here.
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.is_paused or (self.is_full and not self._is_closing):
            transport.pause_reading()
        else:
            transport.resume_reading()

    def _leave_waiting(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    def _scan(self) -> None:
        if self._is_scanning or self._receiver is None:
            return
        self._is_scanning = True
        buffer, at = self._buffer, 0
        try:
            while len(buffer) - at >= LENGTH_BYTES and not self._is_lost:
                if (self.is_paused or self.is_full) and not self._is_closing:
                    break
                size_bytes = _LENGTH.unpack_from(buffer, at)[0]
                if size_bytes > self.max_frame_bytes:
                    at = len(buffer)
                    self._receiver.too_large(size_bytes)
                    break
                end = at + LENGTH_BYTES + size_bytes
                if end > len(buffer):
                    break
                body = bytes(memoryview(buffer)[at + LENGTH_BYTES : end])
                at = end
                self._receiver.frame(body)
        finally:
            self._is_scanning = False
            del buffer[:at]
