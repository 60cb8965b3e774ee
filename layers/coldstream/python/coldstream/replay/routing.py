"""Routing: the key of a message, and its partition of a super stream.

RabbitMQ's stream clients for Java, Go, .NET and Rust choose the partition in the same way: 32-bit murmur3 of the key as
UTF-8, with their seed, modulo the number of partitions. rstream 1.1.1 uses another hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import mmh3

from coldstream.errors import BadMagicError, InvalidInputError, InvalidQueryError
from coldstream.format.amqp.json import to_json
from coldstream.format.amqp.message import Message
from coldstream.format.amqp.sections import Properties
from coldstream.format.amqp.types import Value

SEED = 104729

_SECTIONS = ("properties", "application_properties", "message_annotations")


def partition_of(key: str, partitions: int) -> int:
    """Return the number of the partition of a routing key."""
    return mmh3.hash(key.encode(), SEED, signed=False) % partitions


@dataclass(frozen=True, slots=True)
class RoutingKey:
    """Where a message has its routing key: a section and a name in it, as in `properties.message_id`."""

    section: str = "properties"
    name: str = "message_id"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `SECTION.NAME`; names of properties may have dashes. Raises InvalidQueryError."""
        section, _, name = text.partition(".")
        if section == "properties":
            name = name.replace("-", "_")
        if section not in _SECTIONS or not name or (section == "properties" and name not in Properties._fields):
            raise InvalidQueryError(
                "routing key",
                f"must be {' or '.join(f'{each}.NAME' for each in _SECTIONS)}, such as properties.message_id",
            )
        return cls(section, name)

    def __str__(self) -> str:
        return f"{self.section}.{self.name}"

    def find(self, message: Message) -> str | None:
        """Return the key of a message as text, or None if it has none or is not AMQP. Raises CorruptionError."""
        found: Value = None
        try:
            section = getattr(message, self.section)
        except BadMagicError:
            return None
        if self.section == "properties":
            found = None if section is None else getattr(section, self.name)
        elif section is not None:
            found = section.get(self.name)
        if found is None or isinstance(found, str):
            return found
        text = to_json(found)
        return text if isinstance(text, str) else str(text)

    def of(self, message: Message) -> str:
        """Return the key of a message. Raises InvalidInputError if it has none."""
        key = self.find(message)
        if key is None:
            raise InvalidInputError("routing key", f"the message at offset {message.offset} has no {self}")
        return key
