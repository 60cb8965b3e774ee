"""What a router looks at: of a message its keys, headers and properties; of an exchange its bindings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from coldstream.errors import InvalidInputError
from coldstream.routing.phash2 import Term

MAX_KEY_BYTES = 255


@dataclass(frozen=True, slots=True)
class HeaderValue:
    """A header of AMQP 0.9.1: the broker's name of its type, such as `longstr` or `long`, and its value.

    A void is UNDEFINED, a timestamp is in seconds, a boolean is a bool.
    """

    type: str
    value: Term


@dataclass(frozen=True, slots=True)
class RoutedMessage:
    """A message on its way. `more_keys` are those of its headers CC and BCC; `timestamp` is in seconds."""

    routing_key: str
    more_keys: tuple[str, ...] = ()
    headers: Mapping[str, HeaderValue] = field(default_factory=dict)
    message_id: bytes | None = None
    correlation_id: bytes | None = None
    timestamp: int | None = None

    def __post_init__(self) -> None:
        if any(len(key.encode()) > MAX_KEY_BYTES for key in (self.routing_key, *self.more_keys)):
            raise InvalidInputError("routing key", f"is longer than {MAX_KEY_BYTES} bytes")

    @property
    def routing_keys(self) -> tuple[str, ...]:
        """All of its keys, in the order in which the broker has them."""
        return (self.routing_key, *self.more_keys)


class DestinationKind(StrEnum):
    """What a binding leads to; in the order in which the broker sorts them."""

    EXCHANGE = "exchange"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class Destination:
    """A queue, a stream (which is a queue to an exchange), or another exchange."""

    name: str
    kind: DestinationKind = DestinationKind.QUEUE

    @property
    def order(self) -> tuple[str, bytes]:
        """What the broker sorts destinations of one vhost by: exchanges before queues, then bytes of the name."""
        return self.kind.value, self.name.encode()


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding of an exchange, or a place in the list of a super stream's partitions."""

    destination: Destination
    key: str = ""

    @property
    def order(self) -> tuple[bytes, str, bytes]:
        """What the broker sorts bindings by: the key's bytes, then the destination."""
        return self.key.encode(), *self.destination.order


class Router(Protocol):
    """An exchange, or the clients of a super stream: where a message goes."""

    def destinations(self, message: RoutedMessage) -> tuple[Destination, ...]:
        """Return where a message goes: one destination, of binding keys maybe several. Raises NoRouteError for none."""
        ...
