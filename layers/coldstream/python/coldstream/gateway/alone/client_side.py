"""A client's socket without a broker's behind it: every frame is taken whole, and it can be left unread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from coldstream.gateway.frames.frame import LENGTH_BYTES
from coldstream.gateway.frames.keys import Code
from coldstream.gateway.ports import Verdict
from coldstream.gateway.proxy.outlet import Outlet
from coldstream.gateway.proxy.side import ConnectionSide, SideOwner

FrameBody = memoryview
"""What follows the length of a frame. It may be kept."""


class FrameReceiver(Protocol):
    """Takes the frames of a client."""

    def frame(self, body: FrameBody) -> None:
        """Take a frame. Never waits."""
        ...


class ClientSide(ConnectionSide):
    """The socket. Nothing is read while it is held, or while it takes no more of what is sent to it.

    `join` it to itself: so who does not take answers is not asked for questions, and these do not pile up.
    """

    __slots__ = ("is_held",)

    def __init__(self, owner: SideOwner) -> None:
        super().__init__(owner)
        self.is_held = False

    def read_on(self) -> None:
        """Read, unless it is held or full."""
        if not self.is_held:
            super().read_on()

    def hold(self) -> None:
        """Read nothing until `let_go`. What was read already may still come."""
        self.is_held = True
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def let_go(self) -> None:
        """Read again."""
        self.is_held = False
        self.read_on()


class _AllKeys(frozenset[int]):
    """Holds every key."""

    def __contains__(self, key: object) -> bool:
        return True


class EveryFrame:
    """Has a scanner give every frame to a receiver, and pass none on."""

    __slots__ = ("_receiver",)
    keys = _AllKeys()

    def __init__(self, receiver: FrameReceiver) -> None:
        self._receiver = receiver

    def take(self, key: int, frame: bytes) -> bool:  # noqa: ARG002  whatever it is
        """See FrameTaker."""
        self._receiver.frame(memoryview(frame)[LENGTH_BYTES:])
        return True

    def deliver(self, subscription_id: int, version: int, head: memoryview) -> Verdict:
        """See FrameTaker. Clients deliver nothing."""
        raise NotImplementedError

    def kept(self, subscription_id: int, version: int, frame: bytes) -> None:
        """See FrameTaker."""
        raise NotImplementedError


class AloneLink:
    """The way to the client, for what answers it."""

    __slots__ = ("_close", "_outlet", "_side", "drained", "peer", "send")

    def __init__(self, side: ClientSide, peer: str, close: Callable[[Code, str], None]) -> None:
        self.peer = peer
        self._side = side
        self._outlet: Outlet = side.outlet
        self._close = close
        self.send = side.outlet.send
        self.drained = side.outlet.drained

    @property
    def is_full(self) -> bool:
        """Tell whether more is queued than the client takes."""
        return self._outlet.is_full

    def close(self, code: Code, reason: str) -> None:
        """End the connection as a broker does."""
        self._close(code, reason)

    def pause(self) -> None:
        """Read nothing until `resume`."""
        self._side.hold()

    def resume(self) -> None:
        """Read again."""
        self._side.let_go()
