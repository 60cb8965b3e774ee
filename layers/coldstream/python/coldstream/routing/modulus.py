"""x-modulus-hash: the hash of the list of a message's routing keys, modulo the destinations.

Binding keys do not choose, but up to RabbitMQ 4.2 they order: destinations are sorted by binding key, then exchanges
before queues, then by name. From 4.3 on, they are sorted without the binding key. With one binding key on all bindings,
as the sharding plugin and `coldstream shards` make them, both orders are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.errors import NoRouteError
from coldstream.routing.message import Binding, Destination, RoutedMessage
from coldstream.routing.phash2 import phash2

SORTS_DESTINATIONS = (4, 3)


def modulus_hash(*routing_keys: str) -> int:
    """Return the hash of a message's routing keys, 0 up to, not including, 2^27."""
    return phash2([key.encode() for key in routing_keys])


class ModulusRouter:
    """An exchange of type x-modulus-hash on a broker of `version`."""

    def __init__(self, bindings: Sequence[Binding], *, version: tuple[int, int] = SORTS_DESTINATIONS) -> None:
        if version >= SORTS_DESTINATIONS:
            self._destinations = sorted((one.destination for one in bindings), key=lambda one: one.order)
        else:
            self._destinations = [one.destination for one in sorted(bindings, key=lambda one: one.order)]

    def destinations(self, message: RoutedMessage) -> tuple[Destination, ...]:
        """Return the one destination of a message. Raises NoRouteError if nothing is bound."""
        if not self._destinations:
            raise NoRouteError(message.routing_key)
        return (self._destinations[modulus_hash(*message.routing_keys) % len(self._destinations)],)
