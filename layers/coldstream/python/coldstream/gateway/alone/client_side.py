"""A client's socket without a broker's behind it: every frame is taken whole, and it can be left unread."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from coldstream.gateway.frames.frame import LENGTH_BYTES
from coldstream.gateway.frames.keys import Code
from coldstream.gateway.ports import Verdict
from coldstream.gateway.proxy.outlet import Outlet
from coldstream.gateway.proxy.side import ConnectionSide, SideOwner

FrameBody = memoryview
"""What follows the length of a frame. It may be kept."""


class HoldReason(Enum):
    """Why a client is not read from."""

    QUESTIONS = auto()
    """More than are answered at a time."""
    PUBLISHING = auto()
    """More is published and not confirmed than may be."""
    GOODBYE = auto()
    """What is published is to be confirmed before the end."""


class FrameReceiver(Protocol):
    """Takes the frames of a client."""

    def frame(self, body: FrameBody) -> None:
        """Take a frame. Never waits."""
        ...


class ClientSide(ConnectionSide):
    """The socket. Nothing is read while anybody holds it, or while it takes no more of what is sent to it.

    `join` it to itself: so who does not take answers is not asked for questions, and these do not pile up.
    """

    __slots__ = ("_holders",)

    def __init__(self, owner: SideOwner) -> None:
        super().__init__(owner)
        # Several may have reasons at a time, and none must end another's.
        self._holders: frozenset[HoldReason] = frozenset()

    @property
    def is_held(self) -> bool:
        """Tell whether anybody holds it."""
        return bool(self._holders)

    def read_on(self) -> None:
        """Read, unless it is held or full."""
        if not self.is_held:
            super().read_on()

    def hold(self, reason: HoldReason) -> None:
        """Read nothing until `let_go`. What was read already may still come."""
        self._holders |= {reason}
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def let_go(self, *reasons: HoldReason) -> None:
        """Read again, unless it is held for another reason."""
        self._holders -= set(reasons)
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

    def pause(self, reason: HoldReason) -> None:
        """Read nothing until `resume` with this reason."""
        self._side.hold(reason)

    def resume(self, *reasons: HoldReason) -> None:
        """Read again, unless there is another reason not to."""
        self._side.let_go(*reasons)
