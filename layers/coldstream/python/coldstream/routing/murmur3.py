"""The hash of the clients of super streams: 32-bit murmur3 of the routing key as UTF-8, modulo the partitions.

RabbitMQ's stream clients for Java, Go, .NET and Rust all choose the partition so, with the same seed, and take the
remainder of the hash as an unsigned number. rstream does not: see `detect.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import mmh3

from coldstream.errors import NoRouteError
from coldstream.routing.message import Binding, Destination, RoutedMessage

SEED = 104729


def murmur3(key: str) -> int:
    """Return the hash of a routing key, an unsigned number of 32 bits."""
    return mmh3.hash(key.encode(), SEED, signed=False)


def partition_of(key: str, partitions: int) -> int:
    """Return the number of the partition of a routing key."""
    return murmur3(key) % partitions


class Murmur3Router:
    """A super stream whose producers hash. The bindings are in the order of `x-stream-partition-order`."""

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self._partitions = [binding.destination for binding in bindings]

    def destinations(self, message: RoutedMessage) -> tuple[Destination, ...]:
        """Return the one partition of a message. Raises NoRouteError if there are none."""
        if not self._partitions:
            raise NoRouteError(message.routing_key)
        return (self._partitions[partition_of(message.routing_key, len(self._partitions))],)
