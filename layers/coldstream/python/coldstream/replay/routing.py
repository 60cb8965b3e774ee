"""Routing: the key of a message, and its partition of a super stream.

RabbitMQ's stream clients for Java, Go, .NET and Rust choose the partition in the same way: 32-bit murmur3 of the key as
UTF-8, with their seed, modulo the number of partitions. rstream 1.1.1 uses another hash.
"""

from __future__ import annotations

from dataclasses import dataclass

import mmh3

from coldstream.errors import InvalidInputError
from coldstream.format.amqp.field import MessageField
from coldstream.format.amqp.message import Message

SEED = 104729


def partition_of(key: str, partitions: int) -> int:
    """Return the number of the partition of a routing key."""
    return mmh3.hash(key.encode(), SEED, signed=False) % partitions


@dataclass(frozen=True, slots=True)
class RoutingKey(MessageField):
    """Where a message has its routing key."""

    section: str = "properties"
    name: str = "message_id"

    def of(self, message: Message) -> str:
        """Return the key of a message. Raises InvalidInputError if it has none."""
        key = self.find(message)
        if key is None:
            raise InvalidInputError("routing key", f"the message at offset {message.offset} has no {self}")
        return key
