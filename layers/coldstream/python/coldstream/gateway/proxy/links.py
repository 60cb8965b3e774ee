"""The two ends of a connection, as whoever takes over subscriptions has them."""

from __future__ import annotations

from collections.abc import Callable

from coldstream.gateway.frames.answers import CodeAnswer
from coldstream.gateway.frames.frame import StreamFrame
from coldstream.gateway.frames.keys import Code, Key
from coldstream.gateway.ports import AnswerFrame
from coldstream.gateway.proxy.outlet import Outlet
from coldstream.gateway.proxy.own_requests import OwnRequests
from coldstream.gateway.proxy.session import Session


class ClientSocketLink:
    """A `ClientLink` by an outlet."""

    __slots__ = ("_close", "_outlet", "drained", "send", "session")

    def __init__(self, session: Session, outlet: Outlet, close: Callable[[Code, str], None]) -> None:
        self.session = session
        self._outlet = outlet
        self._close = close
        self.send = outlet.send
        self.drained = outlet.drained

    @property
    def peer(self) -> str:
        """The client's address."""
        return self.session.peer

    @property
    def is_full(self) -> bool:
        """Tell whether more is queued than the client takes."""
        return self._outlet.is_full

    def close(self, code: Code, reason: str) -> None:
        """End the connection as a broker does."""
        self._close(code, reason)


class BrokerSocketLink:
    """A `BrokerLink` by an outlet."""

    __slots__ = ("_outlet", "_own", "_session")

    def __init__(self, session: Session, outlet: Outlet, own: OwnRequests) -> None:
        self._session = session
        self._outlet = outlet
        self._own = own

    def send(self, frame: bytes) -> None:
        """Queue a frame."""
        self._outlet.send(frame)

    async def request(self, make: Callable[[int], StreamFrame], answer: type[AnswerFrame]) -> AnswerFrame | CodeAnswer:
        """Send a request of the gateway's own, and return its answer. Raises UnavailableError, ClosedLinkError."""
        return await self._own.request(make, answer)

    def supports(self, key: Key, version: int = 1) -> bool:
        """Tell whether the broker knows a key in a version."""
        return self._session.broker_abilities.has(key, version)

    @property
    def vhost(self) -> str:
        """The vhost that the client has opened."""
        return self._session.vhost
