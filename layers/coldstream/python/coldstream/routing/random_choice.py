"""x-random: any of the destinations, each as often as the others, whatever the message is.

Nothing else is promised: not the order of a key's messages, nor that two brokers choose alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from coldstream.errors import NoRouteError
from coldstream.routing.message import Binding, Destination, RoutedMessage


class RandomRouter:
    """An exchange of type x-random. `random` is for tests that want the same choice again."""

    def __init__(self, bindings: Sequence[Binding], random: Random | None = None) -> None:
        self._destinations = [binding.destination for binding in bindings]
        self._random = random or Random()  # noqa: S311  no secret hangs on it

    def destinations(self, message: RoutedMessage) -> tuple[Destination, ...]:
        """Return one of the destinations. Raises NoRouteError if nothing is bound."""
        if not self._destinations:
            raise NoRouteError(message.routing_key)
        return (self._random.choice(self._destinations),)
