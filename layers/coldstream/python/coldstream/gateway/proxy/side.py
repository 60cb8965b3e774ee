"""One socket of a connection: the client's, or the broker's."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, cast

from coldstream.errors import BadFrameError, FrameTooLargeError
from coldstream.gateway.frames.keys import Code
from coldstream.gateway.proxy.outlet import Outlet
from coldstream.gateway.proxy.scanner import FrameScanner
from coldstream.units import KIB

EARLY_BYTES: Final = 8 * KIB
"""What may be read before `join`: no more than a client may send before it is open."""

_KEEPALIVE = {socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPINTVL: 15, socket.TCP_KEEPCNT: 4}
"""A peer is gone that has said nothing for a minute, and for another one answers no probe: seconds, and how many."""

_LOG = logging.getLogger(__name__)


class SideOwner(Protocol):
    """Who has both sides."""

    def made(self, side: ConnectionSide) -> None:
        """The socket is connected; nothing is read from it before `join`."""

    def broken(self, side: ConnectionSide, code: Code, reason: str) -> None:
        """The side has sent what cannot be, or something failed with what it sent."""

    def lost(self, side: ConnectionSide, error: Exception | None) -> None:
        """The socket is closed."""


class ConnectionSide(asyncio.BufferedProtocol):
    """Reads what one peer sends into the buffer that all share, and has it scanned at once.

    While the other side's socket takes no more, nothing is read here.
    """

    __slots__ = (
        "_early",
        "_early_space",
        "_other",
        "_owner",
        "_scanner",
        "admit",
        "is_lost",
        "outlet",
        "read_bytes",
        "transport",
    )

    def __init__(self, owner: SideOwner) -> None:
        self._owner = owner
        self._other: ConnectionSide | None = None
        self._scanner: FrameScanner | None = None
        self._early = b""
        self._early_space: bytearray | None = None
        self.admit: Callable[[], bool] | None = None
        """Asked once the socket is connected, by TLS too; if it says no, nobody hears of it."""
        self.is_lost = False
        self.read_bytes = 0

    @property
    def sent_bytes(self) -> int:
        """How many bytes were written to it."""
        return self.outlet.sent_bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.pause_reading()
        bound = transport.get_extra_info("socket")
        with suppress(OSError):
            # Where heartbeats are switched off, nothing else tells that a peer is gone.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, number in _KEEPALIVE.items():
                bound.setsockopt(socket.IPPROTO_TCP, option, number)
        self.outlet = Outlet(self.transport)
        admit, self.admit = self.admit, None
        if admit is not None and not admit():
            self.is_lost = True
            transport.close()
        else:
            self._owner.made(self)

    def join(self, scanner: FrameScanner, other: ConnectionSide) -> None:
        """Begin to read: what comes is scanned, and goes to the other side."""
        self._scanner = scanner
        self._other = other
        early, self._early, self._early_space = self._early, b"", None
        if early:
            scanner.buffer()[: len(early)] = early
            self.buffer_updated(len(early))
        self.read_on()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Return where the next bytes go. They are scanned before any other side asks for it."""
        if self._scanner is None:
            # uvloop begins to read once `connection_made` has returned, although reading was paused in it.
            self._early_space = bytearray(EARLY_BYTES)
            return memoryview(self._early_space)
        return self._scanner.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Scan what was read."""
        if self._scanner is None:
            assert self._early_space is not None
            self._early += self._early_space[:nbytes]
            self.transport.pause_reading()
            return
        self.read_bytes += nbytes
        try:
            self._scanner.scan(nbytes)
        except FrameTooLargeError as err:
            self._owner.broken(self, Code.FRAME_TOO_LARGE, str(err))
        except BadFrameError as err:
            self._owner.broken(self, Code.UNKNOWN_FRAME, str(err))
        except Exception:  # noqa: BLE001  one connection's defect must not end the others
            _LOG.exception("a frame could not be dealt with")
            self._owner.broken(self, Code.INTERNAL_ERROR, "internal error")

    def eof_received(self) -> bool:
        """Close the socket, too, once what is to be written is written."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever has both sides."""
        self.outlet.end()
        # Let go of, or a connection would stay in memory until the garbage collector finds the circle.
        self._scanner = self._other = None
        if not self.is_lost:
            self.is_lost = True
            self._owner.lost(self, exc)

    def pause_writing(self) -> None:
        """Stop reading on the other side: what it sends finds no place here."""
        self.outlet.pause()
        if self._other is not None and not self._other.transport.is_closing():
            self._other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read on, on the other side."""
        self.outlet.resume()
        if self._other is not None:
            self._other.read_on()

    def read_on(self) -> None:
        """Read, unless the other side is full."""
        if not self.transport.is_closing() and self._other is not None and not self._other.outlet.is_paused:
            self.transport.resume_reading()
