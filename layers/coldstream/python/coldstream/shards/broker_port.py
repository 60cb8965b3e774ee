"""What sharding asks of a broker: its nodes, and the exchanges, bindings, queues and publishers of a vhost.

Every method may raise UnavailableError, AccessDeniedError and BrokerRefusedError; each waits a bounded time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from coldstream.units import Offset, TimestampMs

Arguments = Mapping[str, str | int | bool]


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A node of the cluster, such as `rabbit@a`."""

    name: str
    is_running: bool


@dataclass(frozen=True, slots=True)
class BrokerExchange:
    """An exchange: its type, such as `direct` or `x-modulus-hash`."""

    name: str
    type: str
    is_durable: bool = True
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerBinding:
    """A binding of an exchange to a queue, or to another exchange."""

    destination: str
    routing_key: str
    arguments: Arguments = field(default_factory=dict)
    destination_type: Literal["queue", "exchange"] = "queue"


@dataclass(frozen=True, slots=True)
class BrokerQueue:
    """A queue or stream as it is declared, and what it holds. `node` is that of its leader, None if it has none now.

    The broker counts `messages`, unacknowledged ones among them, every few seconds. None: it has not counted yet.
    """

    name: str
    type: Literal["classic", "quorum", "stream"]
    node: str | None = None
    arguments: Arguments = field(default_factory=dict)
    members: tuple[str, ...] = ()
    messages: int | None = 0
    consumers: int = 0


@dataclass(frozen=True, slots=True)
class StreamPublisher:
    """A publisher of the stream protocol: its stream, and the connection that it is on.

    `connection` names one connection, and no later one; `client` is what a program that connects again has in common
    with itself: user, peer host and the name it gives its connections. `connected_at` is by the node's clock.
    """

    stream: str
    connection: str
    client: str
    connected_at: TimestampMs
    reference: str = ""


class ShardBroker(Protocol):
    """One vhost of a broker."""

    def nodes(self) -> tuple[BrokerNode, ...]:
        """Return the nodes of the cluster, by name."""
        ...

    def exchange(self, name: str) -> BrokerExchange | None:
        """Return an exchange, None if there is none."""
        ...

    def bindings(self, exchange: str) -> tuple[BrokerBinding, ...]:
        """Return the bindings of which an exchange is the source."""
        ...

    def queues(self, names: Iterable[str]) -> Mapping[str, BrokerQueue]:
        """Return those of these queues and streams that exist."""
        ...

    def declare_exchange(self, exchange: BrokerExchange) -> None:
        """Declare an exchange; one that is there as it is to be stays. Raises BrokerRefusedError if it differs."""
        ...

    def delete_exchange(self, name: str) -> None:
        """Delete an exchange, if it is there."""
        ...

    def declare_queue(self, queue: BrokerQueue) -> None:
        """Declare a queue or stream on `queue.node`, or where the broker likes if that is None.

        One that is there as it is to be stays. Raises BrokerRefusedError if it differs.
        """
        ...

    def delete_queue(self, name: str, *, only_empty: bool = False) -> None:
        """Delete a queue or stream, if it is there. `only_empty`: raises BrokerRefusedError if a queue has messages."""
        ...

    def bind(self, exchange: str, bindings: Sequence[BrokerBinding]) -> None:
        """Make bindings, in order and in one burst: clients that ask meanwhile see a part of them."""
        ...

    def unbind(self, exchange: str, bindings: Sequence[BrokerBinding]) -> None:
        """Remove bindings, in order and in one burst."""
        ...

    def publishers(self) -> tuple[StreamPublisher, ...]:
        """Return the publishers of all streams of the vhost, by the stream protocol."""
        ...

    def connections(self) -> frozenset[str]:
        """Return the connections of the stream protocol in the vhost, named as in `StreamPublisher`."""
        ...

    def end(self, stream: str) -> Offset:
        """Return the offset after the last message that is committed in a stream, 0 if it has none.

        Tracking chunks after that message do not count. Raises StreamNotFoundError.
        """
        ...
