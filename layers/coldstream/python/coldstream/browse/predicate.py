"""What a search looks for: conditions on a message, all of which must hold.

    body ~ "error"                      the body contains this text
    body = "ok"                         the body is this text
    properties.message_id = "id-1"      a standard property; `properties.to ~ "eu"` contains, `properties.to exists`
    app.region = "eu"                   an application property; names with other characters in quotes: app."a b"
    annotation.x-exchange exists        a message annotation
    json:/user/id = 7                   a value in a JSON body, by JSON pointer (RFC 6901); pointers may be quoted, too
    size > 1000   offset >= 5           the message's bytes, its offset,
    time < 2026-01-31T09:30:00Z         the time of its chunk

Conditions are joined by `and`. Comparisons are `=`, `!=`, `~` (contains), `<`, `<=`, `>`, `>=` and `exists`. There are
no regular expressions: one of a few characters can take for ever. What a condition asks of a message that has no such
value does not hold, `!=` included.

`str` of a predicate is its one text, which `predicate_text.parse_predicate` reads back.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum

from coldstream.units import TimestampMs, format_timestamp

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_PLAIN_POINTER = re.compile(r"(/([A-Za-z0-9_.-]|~[01])*)+")
_WORDS = frozenset({"and", "exists"})


class Comparison(StrEnum):
    """How a condition compares."""

    EQUALS = "="
    DIFFERS = "!="
    CONTAINS = "~"
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="
    EXISTS = "exists"


Literal = str | int | float | bool | None
"""What a condition compares with."""


class FieldSection(StrEnum):
    """A section with named values, by its word in a predicate."""

    PROPERTIES = "properties"
    APPLICATION = "app"
    ANNOTATION = "annotation"


class MeasuredField(StrEnum):
    """What of a message is a number."""

    SIZE = "size"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class BodyCondition:
    """The body contains `text`, or is that text."""

    comparison: Comparison
    text: str

    def __str__(self) -> str:
        return f"body {self.comparison} {_literal(self.text)}"


@dataclass(frozen=True, slots=True)
class ValueCondition:
    """A value of a section compares with `value`; None with EXISTS."""

    section: FieldSection
    name: str
    comparison: Comparison
    value: Literal = None

    def __str__(self) -> str:
        return f"{self.section}.{_name(self.name)} {_compared(self.comparison, self.value)}"


@dataclass(frozen=True, slots=True)
class JsonCondition:
    """The value at a JSON pointer in the body compares with `value`."""

    pointer: str
    comparison: Comparison
    value: Literal = None

    def __str__(self) -> str:
        pointer = self.pointer if _PLAIN_POINTER.fullmatch(self.pointer) else _literal(self.pointer)
        return f"json:{pointer} {_compared(self.comparison, self.value)}"


@dataclass(frozen=True, slots=True)
class NumberCondition:
    """Size in bytes, offset or time in ms compares with a number."""

    field: MeasuredField
    comparison: Comparison
    number: int

    def __str__(self) -> str:
        is_time = self.field is MeasuredField.TIME
        shown = format_timestamp(TimestampMs(self.number)) if is_time else str(self.number)
        return f"{self.field} {self.comparison} {shown}"


Condition = BodyCondition | ValueCondition | JsonCondition | NumberCondition


@dataclass(frozen=True, slots=True)
class Predicate:
    """Conditions, all of which must hold; none of them is true of every message."""

    conditions: tuple[Condition, ...] = ()

    def __str__(self) -> str:
        return " and ".join(map(str, self.conditions))


def _compared(comparison: Comparison, value: Literal) -> str:
    return "exists" if comparison is Comparison.EXISTS else f"{comparison} {_literal(value)}"


def _literal(value: Literal) -> str:
    return json.dumps(value, ensure_ascii=False)


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) and name not in _WORDS else _literal(name)
