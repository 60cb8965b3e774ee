"""The selection of an erasure: which messages it takes, as a value and as the text that the manifest keeps.

    {"offsets": [10, 20],
     "filter_value": {"salt": "…", "sha256": "…"},
     "key": {"salt": "…", "sha256": "…"},
     "properties": [{"field": "properties.user_id", "salt": "…", "sha256": "…"}],
     "function": "module:function"}

A message is taken if all conditions that are there take it; a selection has at least one. Values are personal data
themselves. So the text has salted digests of them, and so has the selection in memory: whoever finds the text can
continue the erasure, but cannot read the values from it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from coldstream.erase.value_digest import ValueDigest
from coldstream.errors import CorruptionError, InvalidInputError, InvalidQueryError, InvalidSettingError
from coldstream.format.amqp.field import MessageField
from coldstream.format.amqp.message import Message
from coldstream.plain_json import read_json
from coldstream.units import MAX_OFFSET, Offset

Predicate = Callable[[Message], bool]
"""A user's function: tells whether to erase a message. It must always answer the same for the same message."""

FILTER_VALUE_FIELDS = (
    MessageField("message_annotations", "x-stream-filter-value"),
    MessageField("application_properties", "x-stream-filter-value"),
)
"""Where brokers keep the filter value of what came by AMQP. The stream protocol carries it beside the message, and the
broker keeps it in the chunk's bloom filter alone."""

KEY_FIELDS = (
    MessageField("message_annotations", "x-routing-key"),
    MessageField("properties", "message_id"),
)
"""What super streams route by: the routing key of what came by AMQP 0.9.1, and the message id, which stream clients
commonly hash."""


@dataclass(frozen=True, slots=True)
class FieldCondition:
    """Takes a message if one of these fields has the value of the digest."""

    fields: tuple[MessageField, ...]
    value: ValueDigest

    def takes(self, message: Message) -> bool:
        """Tell whether a field matches. Raises CorruptionError for damaged AMQP."""
        values = (field.find(message) for field in self.fields)
        return any(value is not None and self.value.matches(value) for value in values)


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions, which a message must all meet; `next_offset` None means up to the tail.

    `function` names the user's function, and `predicate` is it: None while nobody has loaded it.
    """

    first_offset: Offset = Offset(0)  # noqa: RUF009  a NewType is its value
    next_offset: Offset | None = None
    filter_value: ValueDigest | None = None
    key: ValueDigest | None = None
    properties: tuple[tuple[MessageField, ValueDigest], ...] = ()
    function: str | None = None
    predicate: Predicate | None = None

    def __post_init__(self) -> None:
        if self.next_offset is not None and not 0 <= self.first_offset < self.next_offset <= MAX_OFFSET:
            raise InvalidQueryError("offsets", f"must rise, from 0 on: {self.first_offset}:{self.next_offset}")
        if self.next_offset is None and not self.needs_content:
            raise InvalidQueryError("selection", "name offsets, a filter value, a key, a property or a function")

    @property
    def needs_content(self) -> bool:
        """Whether messages must be looked into; else offsets alone decide."""
        return bool(self.filter_value or self.key or self.properties or self.function)

    def takes(self, message: Message) -> bool:
        """Tell whether all conditions but the offsets take a message.

        Raises CorruptionError for damaged AMQP, InvalidSettingError if the user's function fails or is not loaded.
        """
        return all(condition.takes(message) for condition in self._conditions()) and self._asked(message)

    def has_filter_value(self, message: Message) -> bool:
        """Tell whether a message itself says its filter value. Raises CorruptionError for damaged AMQP."""
        return any(field.find(message) is not None for field in FILTER_VALUE_FIELDS)

    def _conditions(self) -> Iterator[FieldCondition]:
        if self.filter_value is not None:
            yield FieldCondition(FILTER_VALUE_FIELDS, self.filter_value)
        if self.key is not None:
            yield FieldCondition(KEY_FIELDS, self.key)
        for field, value in self.properties:
            yield FieldCondition((field,), value)

    def _asked(self, message: Message) -> bool:
        if self.function is None:
            return True
        if self.predicate is None:
            raise InvalidSettingError("where", f"the function {self.function} must be loaded to go on")
        try:
            return bool(self.predicate(message))
        except CorruptionError:
            raise
        except Exception as err:
            # What the function says of a message may be personal data: the error has its type and the offset alone.
            problem = f"{self.function} raised {type(err).__name__} for the message at offset {message.offset}"
            raise InvalidSettingError("where", problem) from err

    def with_predicate(self, predicate: Predicate) -> Self:
        """Return the selection with its function loaded."""
        return replace(self, predicate=predicate)

    def to_text(self) -> str:
        """Encode as the manifest keeps it; the inverse of `from_text`, but for the loaded function."""
        parts: dict[str, Any] = {}
        if self.next_offset is not None:
            parts["offsets"] = [self.first_offset, self.next_offset]
        if self.filter_value is not None:
            parts["filter_value"] = self.filter_value.to_json()
        if self.key is not None:
            parts["key"] = self.key.to_json()
        if self.properties:
            parts["properties"] = [{"field": str(field), **value.to_json()} for field, value in self.properties]
        if self.function is not None:
            parts["function"] = self.function
        return json.dumps(parts, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str, *, source: str) -> Self:
        """Decode. Raises CorruptionError, naming `source`, unless `text` is a selection."""
        try:
            parts = read_json(text)
            first_offset, next_offset = parts.pop("offsets", (0, None))
            found = cls(
                first_offset=Offset(first_offset),
                next_offset=None if next_offset is None else Offset(next_offset),
                filter_value=_digest(parts.pop("filter_value", None)),
                key=_digest(parts.pop("key", None)),
                properties=tuple(
                    (MessageField.parse(one["field"]), ValueDigest(one["salt"], one["sha256"]))
                    for one in parts.pop("properties", ())
                ),
                function=parts.pop("function", None),
            )
        except (ValueError, KeyError, TypeError, AttributeError, InvalidInputError) as err:
            raise CorruptionError(source, 0, f"not the selection of an erasure: {err}") from err
        if parts:
            # A condition that this release does not know would be one that is not met: too much would be erased.
            raise CorruptionError(source, 0, f"a selection with unknown conditions: {', '.join(sorted(parts))}")
        return found


def _digest(parts: dict[str, str] | None) -> ValueDigest | None:
    return None if parts is None else ValueDigest(parts["salt"], parts["sha256"])
