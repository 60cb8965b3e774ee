"""A super stream by binding keys: the streams bound with exactly the routing key, as a direct exchange does."""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.errors import NoRouteError
from coldstream.routing.message import Binding, Destination, RoutedMessage


class BindingKeyRouter:
    """A direct exchange: each destination gets a message once, in the order of the bindings."""

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self._by_key: dict[str, dict[Destination, None]] = {}
        for binding in bindings:
            self._by_key.setdefault(binding.key, {})[binding.destination] = None

    def destinations(self, message: RoutedMessage) -> tuple[Destination, ...]:
        """Return all destinations of the message's keys. Raises NoRouteError if no binding has any of them."""
        found: dict[Destination, None] = {}
        for key in message.routing_keys:
            found |= self._by_key.get(key, {})
        if not found:
            raise NoRouteError(message.routing_key)
        return tuple(found)
