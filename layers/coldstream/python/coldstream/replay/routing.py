"""Routing keys: where a message has its own. `coldstream.routing` tells the partition that a key leads to."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import InvalidInputError
from coldstream.format.amqp.field import MessageField
from coldstream.format.amqp.message import Message


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
