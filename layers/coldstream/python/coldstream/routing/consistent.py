"""x-consistent-hash: buckets, as many for each destination as its binding key says, and a jump among them.

Buckets are numbered in the order of binding. A destination that is unbound takes its buckets with it, and those after
them move down. A second binding of a destination that has buckets adds none. That order lasts on RabbitMQ 4.3. A broker
that keeps its bindings in Mnesia numbers the buckets anew when it starts: 4.0 in the order of `sorted_bindings`, 3.10
in an order of its tables that cannot be foretold from here.

What is hashed is the first routing key, a header, or a property. Up to RabbitMQ 3.12 a header is hashed with its type;
message containers (3.13 and later) leave the bare value, of which an integer is a seed as it is, and a timestamp is in
milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from coldstream.errors import InvalidInputError, NoRouteError
from coldstream.routing.jump import jump
from coldstream.routing.message import Binding, Destination, RoutedMessage
from coldstream.routing.phash2 import UNDEFINED, Term

MESSAGE_CONTAINERS = (3, 13)


class HashProperty(StrEnum):
    """The properties that the plugin can hash."""

    CORRELATION_ID = "correlation_id"
    MESSAGE_ID = "message_id"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class HashOn:
    """What an exchange hashes: its argument `hash-header` or `hash-property`, or neither for the routing key."""

    header: str | None = None
    property: HashProperty | None = None

    def __post_init__(self) -> None:
        if self.header is not None and self.property is not None:
            raise InvalidInputError("hash-header", "and hash-property exclude each other")

    def term(self, message: RoutedMessage, version: tuple[int, int]) -> Term:
        """Return what a broker of a version hashes of a message, UNDEFINED where the message has none."""
        if self.header is not None:
            return _header(message, self.header, version)
        if self.property is HashProperty.TIMESTAMP:
            return UNDEFINED if message.timestamp is None else str(message.timestamp).encode()
        if self.property is not None:
            found: bytes | None = getattr(message, self.property.value)
            return UNDEFINED if found is None else found
        return message.routing_key.encode()


def _header(message: RoutedMessage, name: str, version: tuple[int, int]) -> Term:
    found = message.headers.get(name)
    if found is None:
        return UNDEFINED
    if version < MESSAGE_CONTAINERS:
        return (found.type, found.value)
    if found.type == "timestamp" and isinstance(found.value, int):
        return found.value * 1000
    return found.value


class ConsistentRouter:
    """An exchange of type x-consistent-hash on a broker of `version`, its bindings in the order of binding."""

    def __init__(
        self, bindings: Sequence[Binding], hash_on: HashOn | None = None, *, version: tuple[int, int] = (4, 3)
    ) -> None:
        self._hash_on = hash_on or HashOn()
        self._version = version
        self._buckets = buckets(bindings)

    def destinations(self, message: RoutedMessage) -> tuple[Destination, ...]:
        """Return the one destination of a message. Raises NoRouteError if nothing is bound."""
        if not self._buckets:
            raise NoRouteError(message.routing_key)
        return (self._buckets[jump(self._hash_on.term(message, self._version), len(self._buckets))],)


def buckets(bindings: Iterable[Binding]) -> list[Destination]:
    """Return the destination of each bucket. Raises InvalidInputError for a binding key that is no positive integer."""
    found: list[Destination] = []
    for binding in bindings:
        if not binding.key.isdecimal() or int(binding.key) < 1:
            raise InvalidInputError("weight", f"{binding.key!r} of {binding.destination.name} is no positive integer")
        if binding.destination not in found:
            found += [binding.destination] * int(binding.key)
    return found


def sorted_bindings(bindings: Iterable[Binding]) -> list[Binding]:
    """Return bindings in the order in which RabbitMQ 4.0 with Mnesia has them after a start: the key is text there."""
    return sorted(bindings, key=lambda binding: binding.order)
