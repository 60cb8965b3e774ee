"""Read the text of a predicate, such as `body ~ "error" and app.region = "eu"`; `predicate` has its grammar."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

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
from coldstream.errors import PredicateError
from coldstream.format.amqp.sections import Properties
from coldstream.units import MAX_TIMESTAMP_MS, parse_size, parse_timestamp

MAX_CHARACTERS = 2000
MAX_CONDITIONS = 16

_SPACE = re.compile(r"[ \t\r\n]*")
_WORD = re.compile(r"[A-Za-z]+")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_POINTER = re.compile(r"(?:/(?:[A-Za-z0-9_.-]|~[01])*)+")
_ANY_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?(?![A-Za-z0-9_.])")
_BARE = re.compile(r"[^ \t\r\n\"]+")
_COMPARISON = re.compile(r"!=|<=|>=|=|~|<|>|exists\b")
_WORDS: dict[str, Literal] = {"true": True, "false": False, "null": None}
_ORDERED = frozenset({Comparison.LESS, Comparison.AT_MOST, Comparison.GREATER, Comparison.AT_LEAST})
_EXPECTED = "body, properties.NAME, app.NAME, annotation.NAME, json:/POINTER, size, offset or time"


def parse_predicate(text: str) -> Predicate:
    """Read a predicate of at least one condition. Raises PredicateError, which tells the character."""
    if len(text) > MAX_CHARACTERS:
        raise PredicateError(MAX_CHARACTERS, f"the text has {len(text)} characters, of {MAX_CHARACTERS} at most")
    return _PredicateText(text).parse()


@dataclass(slots=True)
class _PredicateText:
    """A text, and the character that is read next."""

    text: str
    at: int = 0

    def parse(self) -> Predicate:
        conditions: list[Condition] = []
        self._skip_space()
        while True:
            began = self.at
            conditions.append(self._condition())
            if len(conditions) > MAX_CONDITIONS:
                raise PredicateError(began, f"there are more than {MAX_CONDITIONS} conditions")
            self._skip_space()
            if self.at == len(self.text):
                return Predicate(tuple(conditions))
            began = self.at
            if self._take(_WORD) != "and":
                raise PredicateError(began, "expected `and`, or the end")
            self._skip_space()

    def _condition(self) -> Condition:
        began = self.at
        word = self._take(_WORD)
        if word == "body":
            return self._body()
        if word == "json" and self.text.startswith(":", self.at):
            self.at += 1
            return self._json()
        if word in set(FieldSection) and self.text.startswith(".", self.at):
            self.at += 1
            return self._value_of(FieldSection(word))
        if word in set(MeasuredField):
            return self._number(MeasuredField(word))
        raise PredicateError(began, f"expected {_EXPECTED}")

    def _body(self) -> BodyCondition:
        comparison, began = self._comparison()
        if comparison not in {Comparison.CONTAINS, Comparison.EQUALS}:
            raise PredicateError(began, "a body is compared by `~` (contains) or `=`")
        return BodyCondition(comparison, self._string())

    def _json(self) -> JsonCondition:
        began = self.at
        pointer = self._string() if self.text.startswith('"', self.at) else self._take(_POINTER)
        if pointer is None or not _ANY_POINTER.fullmatch(pointer):
            raise PredicateError(began, "expected a JSON pointer, such as /user/id; other characters need quotes")
        return JsonCondition(pointer, *self._compared())

    def _value_of(self, section: FieldSection) -> ValueCondition:
        began = self.at
        name = self._string() if self.text.startswith('"', self.at) else self._take(_NAME)
        if not name:
            raise PredicateError(
                began, "expected a name; one with other characters than A-Z a-z 0-9 _ . - needs quotes"
            )
        if section is FieldSection.PROPERTIES:
            name = name.replace("-", "_")
            if name not in Properties._fields:
                raise PredicateError(began, f"no such property: there are {', '.join(Properties._fields)}")
        return ValueCondition(section, name, *self._compared())

    def _number(self, field: MeasuredField) -> NumberCondition:
        comparison, began = self._comparison()
        if comparison in {Comparison.CONTAINS, Comparison.EXISTS}:
            raise PredicateError(began, f"{field} is compared by =, !=, <, <=, > or >=")
        self._skip_space()
        began = self.at
        bare = self._string() if self.text.startswith('"', self.at) else self._take(_BARE)
        try:
            number = _read_number(field, bare or "")
        except ValueError as err:
            raise PredicateError(began, str(err)) from err
        return NumberCondition(field, comparison, number)

    def _compared(self) -> tuple[Comparison, Literal]:
        comparison, _ = self._comparison()
        if comparison is Comparison.EXISTS:
            return comparison, None
        self._skip_space()
        began = self.at
        value = self._literal()
        if comparison is Comparison.CONTAINS and not isinstance(value, str):
            raise PredicateError(began, "`~` (contains) takes a text in double quotes")
        if comparison in _ORDERED and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise PredicateError(began, f"`{comparison}` takes a number")
        return comparison, value

    def _comparison(self) -> tuple[Comparison, int]:
        self._skip_space()
        began = self.at
        found = self._take(_COMPARISON)
        if found is None:
            raise PredicateError(began, "expected =, !=, ~, <, <=, >, >= or exists")
        return Comparison(found), began

    def _literal(self) -> Literal:
        if self.text.startswith('"', self.at):
            return self._string()
        began = self.at
        if (number := self._take(_NUMBER)) is not None:
            value = int(number) if number.lstrip("-").isdigit() else float(number)
            if not math.isfinite(value):
                raise PredicateError(began, "the number is too large")
            return value
        word = self._take(_WORD)
        if word not in _WORDS:
            raise PredicateError(began, "expected a text in double quotes, a number, true, false or null")
        return _WORDS[word]

    def _string(self) -> str:
        """Read a text in double quotes, with JSON's escapes."""
        self._skip_space()
        if not self.text.startswith('"', self.at):
            raise PredicateError(self.at, "expected a text in double quotes")
        try:
            value, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
        except json.JSONDecodeError as err:
            raise PredicateError(min(err.pos, len(self.text)), f"in a text: {err.msg}") from err
        found = str(value)
        try:
            found.encode()
        except UnicodeEncodeError as err:
            raise PredicateError(self.at, "a text has half of a surrogate pair") from err
        return found

    def _skip_space(self) -> None:
        self._take(_SPACE)

    def _take(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        return match[0]


def _read_number(field: MeasuredField, bare: str) -> int:
    match field:
        case MeasuredField.TIME:
            return parse_timestamp(bare)
        case MeasuredField.SIZE:
            return min(parse_size(bare), MAX_TIMESTAMP_MS)
        case MeasuredField.OFFSET:
            if not (bare.isascii() and bare.isdigit() and len(bare) <= 20):  # noqa: PLR2004  digits of 2^64
                raise ValueError(f"{bare[:40]!r} is not an offset")
            return int(bare)
