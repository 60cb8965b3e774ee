"""Fields: a value of a message, named by its section and its name in it, as in `properties.message_id`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from coldstream.errors import BadMagicError, InvalidQueryError
from coldstream.format.amqp.json import to_json
from coldstream.format.amqp.message import Message
from coldstream.format.amqp.sections import Properties
from coldstream.format.amqp.types import Value

_SECTIONS = ("properties", "application_properties", "message_annotations")


@dataclass(frozen=True, slots=True)
class MessageField:
    """A section that has named values, and a name in it."""

    section: str
    name: str

    @classmethod
    def parse(cls, text: str, what: str = "field") -> Self:
        """Parse `SECTION.NAME`; names of properties may have dashes. Raises InvalidQueryError, about `what`."""
        section, _, name = text.partition(".")
        if section == "properties":
            name = name.replace("-", "_")
        if section not in _SECTIONS or not name or (section == "properties" and name not in Properties._fields):
            raise InvalidQueryError(
                what,
                f"must be {' or '.join(f'{each}.NAME' for each in _SECTIONS)}, such as properties.message_id",
            )
        return cls(section, name)

    def __str__(self) -> str:
        return f"{self.section}.{self.name}"

    def find(self, message: Message) -> str | None:
        """Return the value as text, or None if the message has none or is not AMQP. Raises CorruptionError."""
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
        return str(to_json(found))
