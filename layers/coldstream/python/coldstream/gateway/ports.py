"""What a connection's two ends and whoever takes over its subscriptions are to each other.

The proxy owns the sockets and what passes through. An `Interceptor` is told of the frames that may be taken over, and
answers by the links. All of it runs in one event loop, and no call but `drained` and `request` waits.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol, TypeVar

from coldstream.gateway.frames.answers import CodeAnswer
from coldstream.gateway.frames.frame import StreamFrame
from coldstream.gateway.frames.keys import Code, Key

AnswerFrame = TypeVar("AnswerFrame", bound=StreamFrame)


class ClientLink(Protocol):
    """The way to the client."""

    def send(self, *pieces: bytes) -> None:
        """Queue whole frames, in order with what passes through. After the end of the connection, do nothing."""
        ...

    @property
    def peer(self) -> str:
        """The client's address, for people."""
        ...

    @property
    def is_full(self) -> bool:
        """Tell whether more is queued than the client takes: whoever can wait is to wait for `drained`."""
        ...

    async def drained(self) -> None:
        """Wait until the client has taken most of what is queued. Raises ClosedLinkError if it goes."""
        ...

    def close(self, code: Code, reason: str) -> None:
        """End the connection as a broker does: a Close frame, a short wait for its answer, then the socket."""
        ...


class BrokerLink(Protocol):
    """The way to the broker, by the client's own upstream connection."""

    def send(self, frame: bytes) -> None:
        """Queue a frame. After the end of the connection, do nothing."""
        ...

    async def request(self, make: Callable[[int], StreamFrame], answer: type[AnswerFrame]) -> AnswerFrame | CodeAnswer:
        """Send a request of the gateway's own, made with a correlation id, and return its answer.

        An answer whose code is not OK comes as a `CodeAnswer`. Waits 10 s at most. Raises UnavailableError if none
        comes, ClosedLinkError if the connection ends.
        """
        ...

    def supports(self, key: Key, version: int = 1) -> bool:
        """Tell whether the broker knows a key in a version: by what it told, or else by its own version."""
        ...

    @property
    def vhost(self) -> str:
        """The vhost that the client has opened; empty before."""
        ...


class Verdict(Enum):
    """What becomes of a delivered chunk."""

    PASS = auto()
    """It streams on to the client as it is."""

    DROP = auto()
    """Nobody gets it."""

    KEEP = auto()
    """It is collected, and given to `kept`."""


class Interceptor(Protocol):
    """Takes over what the archive has to answer, for one client's connection. Called by the proxy; never waits."""

    def from_client(self, key: int, frame: bytes) -> bool:
        """Take a frame, with its length: True if it is taken over, False if it is to be passed on.

        Called for SUBSCRIBE, CREDIT, UNSUBSCRIBE, QUERY_OFFSET, STORE_OFFSET, STREAM_STATS, RESOLVE_OFFSET_SPEC, and
        the answer to CONSUMER_UPDATE.
        """
        ...

    def from_broker(self, key: int, frame: bytes) -> bool:
        """Take a frame, with its length: True if it is taken over, False if it is to be passed on.

        Called for CONSUMER_UPDATE, METADATA_UPDATE, CREDIT's answer, and answers to requests of the client of the keys
        above that were passed on.
        """
        ...

    def deliver(self, subscription_id: int, version: int, head: memoryview) -> Verdict:
        """Decide about a chunk by its header, of 48 bytes, which is valid during the call alone."""
        ...

    def kept(self, subscription_id: int, version: int, frame: bytes) -> None:
        """Take a Deliver that was kept, whole, with its length."""
        ...

    def closed(self) -> None:
        """End everything: the connection is over."""
        ...


MakeInterceptor = Callable[[ClientLink, BrokerLink], Interceptor]
