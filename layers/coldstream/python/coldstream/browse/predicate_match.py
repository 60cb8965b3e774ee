"""Whether a predicate holds for a message. Each of its parts is decoded once, and only if a condition needs it."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from coldstream.browse.body_view import BodyView
from coldstream.browse.placed import PlacedMessage
from coldstream.browse.predicate import (
    BodyCondition,
    Comparison,
    Condition,
    FieldSection,
    JsonCondition,
    Literal,
    MeasuredField,
    NumberCondition,
    Predicate,
    ValueCondition,
)
from coldstream.browse.sections_view import MAX_DECODED_BYTES, whole_body
from coldstream.errors import BadLengthError, BadMagicError
from coldstream.format.amqp.sections import (
    APPLICATION_PROPERTIES,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    Sections,
    locate,
    read_section,
)
from coldstream.units import MIB, TimestampMs

MAX_JSON_BYTES = MIB
"""A larger body is not parsed as JSON: no condition on it holds."""

_CODES = {
    FieldSection.PROPERTIES: PROPERTIES,
    FieldSection.APPLICATION: APPLICATION_PROPERTIES,
    FieldSection.ANNOTATION: MESSAGE_ANNOTATIONS,
}

_ABSENT: Any = object()
"""In place of a value that a message does not have: null is a value."""

_CHEAP_FIRST = (NumberCondition, ValueCondition, BodyCondition, JsonCondition)


class PredicateMatcher:
    """Applies one predicate to many messages."""

    def __init__(self, predicate: Predicate) -> None:
        self._conditions = sorted(predicate.conditions, key=lambda one: _CHEAP_FIRST.index(type(one)))

    def matches(self, message: PlacedMessage, timestamp: TimestampMs) -> bool:
        """Tell whether all conditions hold. Raises CorruptionError if one needs a part that is damaged."""
        facts = _MessageFacts(message, timestamp)
        return all(facts.holds(condition) for condition in self._conditions)


class _MessageFacts:
    """A message, decoded as far as conditions asked for it."""

    __slots__ = ("_body", "_json", "_message", "_raw", "_sections", "_timestamp", "_values")

    def __init__(self, message: PlacedMessage, timestamp: TimestampMs) -> None:
        self._message = message
        self._timestamp = timestamp
        self._raw = b""
        self._sections: Sections | None = None
        self._values: dict[FieldSection, Any] = {}
        self._body: bytes | None = None
        self._json: Any = _ABSENT

    def holds(self, condition: Condition) -> bool:
        match condition:
            case NumberCondition(field, comparison, number):
                return _compares(comparison, self._measured(field), number)
            case ValueCondition(section, name, comparison, value):
                return _compares(comparison, self._value(section, name), value)
            case BodyCondition(Comparison.CONTAINS, text):
                return text.encode() in self._body_bytes()
            case BodyCondition(_, text):
                return text.encode() == self._body_bytes()
            case JsonCondition(pointer, comparison, value):
                return _compares(comparison, self._at_pointer(pointer), value)

    def _measured(self, field: MeasuredField) -> int:
        match field:
            case MeasuredField.SIZE:
                return len(self._message.raw)
            case MeasuredField.OFFSET:
                return self._message.offset
            case MeasuredField.TIME:
                return self._timestamp

    def _located(self) -> Sections:
        if self._sections is None:
            self._raw = bytes(self._message.raw)
            try:
                self._sections = locate(self._raw, source=self._source)
            except BadMagicError:
                self._sections = {}
                self._body = self._raw  # as the view has it: all bytes of what is not AMQP
        return self._sections

    def _value(self, section: FieldSection, name: str) -> Any:
        sections = self._located()
        if section not in self._values:
            self._check_size(sections.get(_CODES[section], ()))
            self._values[section] = read_section(self._raw, sections, _CODES[section], source=self._source)
        found = self._values[section]
        if found is None:
            return _ABSENT
        if section is FieldSection.PROPERTIES:
            value = getattr(found, name)
            return _ABSENT if value is None else value
        return found.get(name, _ABSENT)

    def _check_size(self, spans: tuple[int, ...]) -> None:
        """Refuse a section whose decoded values would fill the memory; the search counts its message as unreadable."""
        size = sum(spans[1::2]) - sum(spans[::2])
        if size > MAX_DECODED_BYTES:
            raise BadLengthError(
                self._source, spans[0], "a section too large to look into", expected=MAX_DECODED_BYTES, found=size
            )

    def _body_bytes(self) -> bytes:
        sections = self._located()
        if self._body is None:
            body: BodyView | None = whole_body(self._raw, sections, source=self._source)
            self._body = b"" if body is None else body.data
        return self._body

    def _at_pointer(self, pointer: str) -> Any:
        if self._json is _ABSENT:
            body = self._body_bytes()
            self._json = _NO_JSON
            if len(body) <= MAX_JSON_BYTES:
                with suppress(ValueError, RecursionError):
                    self._json = json.loads(body)
        return _ABSENT if self._json is _NO_JSON else _pointed_at(self._json, pointer)

    @property
    def _source(self) -> str:
        return f"message at offset {self._message.offset}"


_NO_JSON: Any = object()


def _pointed_at(value: Any, pointer: str) -> Any:
    """Follow a JSON pointer (RFC 6901)."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(name, _ABSENT)
        elif isinstance(value, list) and name.isascii() and name.isdigit() and str(int(name[:10])) == name:
            value = value[int(name)] if int(name) < len(value) else _ABSENT
        else:
            return _ABSENT
    return value


def _compares(comparison: Comparison, found: Any, wanted: Literal) -> bool:
    """Tell whether a value compares so; nothing compares with what is not there."""
    if found is _ABSENT or comparison is Comparison.EXISTS:
        return found is not _ABSENT
    if comparison in {Comparison.EQUALS, Comparison.DIFFERS}:
        return _equals(found, wanted) is (comparison is Comparison.EQUALS)
    if comparison is Comparison.CONTAINS:
        text = _text(found)
        return text is not None and isinstance(wanted, str) and wanted in text
    are_numbers = isinstance(found, int | float) and isinstance(wanted, int | float) and not isinstance(found, bool)
    return are_numbers and bool(_ORDER[comparison](found, wanted))


_ORDER: Mapping[Comparison, Callable[[Any, Any], bool]] = {
    Comparison.LESS: operator.lt,
    Comparison.AT_MOST: operator.le,
    Comparison.GREATER: operator.gt,
    Comparison.AT_LEAST: operator.ge,
}


def _equals(found: Any, wanted: Literal) -> bool:
    if isinstance(wanted, str):
        return _text(found) == wanted
    if wanted is None or isinstance(wanted, bool) or isinstance(found, bool):
        # Python takes True for 1; no publisher does.
        return found is wanted
    return isinstance(found, int | float) and bool(found == wanted)


def _text(found: Any) -> str | None:
    """Return a value as the text that it is, None for what is none."""
    match found:
        case str():
            return str(found)
        case UUID():
            return str(found)
        case bytes():
            try:
                return found.decode()
            except UnicodeDecodeError:
                return None
    return None
