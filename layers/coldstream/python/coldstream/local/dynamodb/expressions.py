"""DynamoDB's expressions, parsed: conditions, updates, keys and projections.

Upstream: "Condition and filter expressions, operators, and functions" and "Using update expressions" in DynamoDB's
developer guide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from coldstream.local.dynamodb.answers import DynamoError, invalid
from coldstream.local.dynamodb.values import Value

_TOKEN = re.compile(r"\s*(?:(<>|<=|>=|[=<>(),.+\-\[\]])|([#:]?[A-Za-z0-9_]+))")
_FUNCTIONS = {
    "attribute_exists": 1,
    "attribute_not_exists": 1,
    "attribute_type": 2,
    "begins_with": 2,
    "contains": 2,
}
_WORDS = {"AND", "OR", "NOT", "BETWEEN", "IN", "SET", "REMOVE", "ADD", "DELETE"}
_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True, slots=True)
class Path:
    """A place in an item: names and positions in lists."""

    steps: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """A value of the request."""

    value: Value


@dataclass(frozen=True, slots=True)
class Call:
    """A function of operands: `size`, `if_not_exists`, `list_append`, `+`, `-`, or one that is a condition."""

    name: str
    operands: tuple[Operand, ...]


Operand = Path | Constant | Call


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison: `=`, `<>`, `<`, `<=`, `>`, `>=`, `BETWEEN` of three operands, or `IN` of two and more."""

    operator: str
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Combine:
    """Conditions that are combined."""

    operator: Literal["AND", "OR", "NOT"]
    conditions: tuple[Condition, ...]


Condition = Compare | Combine | Call


@dataclass(frozen=True, slots=True)
class AttributeChange:
    """A change of an attribute. `operand` is None of `REMOVE`."""

    action: Literal["SET", "REMOVE", "ADD", "DELETE"]
    path: Path
    operand: Operand | None


@dataclass(slots=True)
class Substitutes:
    """The names and values of a request, and which of them its expressions use."""

    names: Mapping[str, str]
    values: Mapping[str, Value]
    used: set[str]

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Substitutes:
        """Return those of a request."""
        return cls(request.get("ExpressionAttributeNames") or {}, request.get("ExpressionAttributeValues") or {}, set())

    def check_used(self) -> None:
        """Raise DynamoError if something was given that no expression uses."""
        for what, given in (("Names", self.names), ("Values", self.values)):
            unused = sorted(set(given) - self.used)
            if unused:
                listed = ", ".join(unused)
                raise invalid(f"Value provided in ExpressionAttribute{what} unused in expressions: keys: {{{listed}}}")


def condition_of(text: str, substitutes: Substitutes) -> Condition:
    """Return a condition. Raises DynamoError if it cannot be read."""
    return _whole(text, substitutes, _Parser.condition)


def changes_of(text: str, substitutes: Substitutes) -> tuple[AttributeChange, ...]:
    """Return what an update changes. Raises DynamoError if it cannot be read."""
    return _whole(text, substitutes, _Parser.changes)


def paths_of(text: str, substitutes: Substitutes) -> tuple[Path, ...]:
    """Return the paths of a projection. Raises DynamoError if it cannot be read."""
    return _whole(text, substitutes, _Parser.paths)


def _whole(text: str, substitutes: Substitutes, read: Callable[[_Parser], _Parsed]) -> _Parsed:
    parser = _Parser(text, substitutes)
    found = read(parser)
    if parser.at is not None:
        raise parser.failed()
    return found


class _Parser:
    """A parser by recursive descent, one function for each rule of the grammar."""

    def __init__(self, text: str, substitutes: Substitutes) -> None:
        self._text, self._substitutes, self._position = text, substitutes, 0
        self.at: str | None = None
        self._advance()

    def failed(self) -> DynamoError:
        """Return the error at the token at hand."""
        return invalid(f'Invalid expression: Syntax error; token: "{self.at or "<EOF>"}", near: "{self._text}"')

    def _advance(self) -> None:
        rest = self._text[self._position :]
        match = _TOKEN.match(rest)
        if match is None:
            self.at = None
            if rest.strip():
                self.at = rest.strip()[0]
                raise self.failed()
            return
        self.at = match[1] or match[2]
        self._position += match.end()

    def _word(self) -> str:
        return (self.at or "").upper()

    def _takes(self, wanted: str) -> bool:
        if self._word() != wanted:
            return False
        self._advance()
        return True

    def _expect(self, wanted: str) -> None:
        if not self._takes(wanted):
            raise self.failed()

    def _listed(self, read: Callable[[], _Parsed]) -> tuple[_Parsed, ...]:
        found = [read()]
        while self._takes(","):
            found.append(read())
        return tuple(found)

    def condition(self) -> Condition:
        return self._combined("OR", lambda: self._combined("AND", self._negated))

    def _combined(self, operator: Literal["AND", "OR"], read: Callable[[], Condition]) -> Condition:
        found = [read()]
        while self._takes(operator):
            found.append(read())
        return found[0] if len(found) == 1 else Combine(operator, tuple(found))

    def _negated(self) -> Condition:
        return Combine("NOT", (self._negated(),)) if self._takes("NOT") else self._primary()

    def _primary(self) -> Condition:
        if self.at == "(":
            self._advance()
            if self.at == "(" and self._is_wrapped_again():
                raise invalid("Invalid expression: The expression has redundant parentheses;")
            found = self.condition()
            self._expect(")")
            return found
        if self.at in _FUNCTIONS:
            return self._call(self.at, _FUNCTIONS[self.at])
        left = self._operand()
        operator = self._word()
        if operator == "BETWEEN":
            self._advance()
            low = self._operand()
            self._expect("AND")
            return Compare(operator, (left, low, self._operand()))
        if operator == "IN":
            self._advance()
            self._expect("(")
            among = self._listed(self._operand)
            self._expect(")")
            return Compare(operator, (left, *among))
        if operator not in {"=", "<>", "<", "<=", ">", ">="}:
            raise self.failed()
        self._advance()
        return Compare(operator, (left, self._operand()))

    def _is_wrapped_again(self) -> bool:
        """Tell whether the parenthesis at hand ends right before the one around it does."""
        depth = 1
        for at, character in enumerate(self._text[self._position :], self._position):
            depth += {"(": 1, ")": -1}.get(character, 0)
            if depth == 0:
                return self._text[at + 1 :].lstrip().startswith(")")
        return False

    def _call(self, name: str, operands: int) -> Call:
        self._advance()
        self._expect("(")
        found = self._listed(self._operand)
        self._expect(")")
        if len(found) != operands:
            raise invalid(f"Incorrect number of operands for operator or function; operator or function: {name}")
        return Call(name, found)

    def _operand(self) -> Operand:
        if self.at == "size":
            return self._call("size", 1)
        if self.at is not None and self.at.startswith(":"):
            return self._constant()
        return self.path()

    def _constant(self) -> Constant:
        token = self.at or ""
        if token not in self._substitutes.values:
            raise invalid(f"An expression attribute value used in expression is not defined; attribute value: {token}")
        self._substitutes.used.add(token)
        self._advance()
        return Constant(self._substitutes.values[token])

    def path(self) -> Path:
        steps: list[str | int] = [self._name()]
        while self.at in {".", "["}:
            if self._takes("."):
                steps.append(self._name())
            else:
                self._advance()
                if not (self.at or "").isdigit():
                    raise self.failed()
                steps.append(int(self.at or ""))
                self._advance()
                self._expect("]")
        return Path(tuple(steps))

    def _name(self) -> str:
        token = self.at or ""
        if token.startswith("#"):
            if token not in self._substitutes.names:
                raise invalid(f"An expression attribute name used in the document path is not defined; {token}")
            self._substitutes.used.add(token)
            self._advance()
            return self._substitutes.names[token]
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", token) or token.upper() in _WORDS:
            raise self.failed()
        self._advance()
        return token

    def paths(self) -> tuple[Path, ...]:
        return self._listed(self.path)

    def changes(self) -> tuple[AttributeChange, ...]:
        found: list[AttributeChange] = []
        seen: set[str] = set()
        while self.at is not None:
            action = self._word()
            if action in seen or action not in {"SET", "REMOVE", "ADD", "DELETE"}:
                raise self.failed()
            seen.add(action)
            self._advance()
            found += self._listed(self._readers()[action])
        if not found:
            raise invalid("Invalid UpdateExpression: The expression can not be empty;")
        return tuple(found)

    def _readers(self) -> Mapping[str, Callable[[], AttributeChange]]:
        return {
            "SET": self._set,
            "REMOVE": lambda: AttributeChange("REMOVE", self.path(), None),
            "ADD": lambda: AttributeChange("ADD", self.path(), self._constant()),
            "DELETE": lambda: AttributeChange("DELETE", self.path(), self._constant()),
        }

    def _set(self) -> AttributeChange:
        path = self.path()
        self._expect("=")
        left = self._set_operand()
        if self.at in {"+", "-"}:
            operator = self.at
            self._advance()
            left = Call(operator, (left, self._set_operand()))
        return AttributeChange("SET", path, left)

    def _set_operand(self) -> Operand:
        if self.at == "(":
            self._advance()
            found = self._set_operand()
            self._expect(")")
            return found
        if self.at in {"if_not_exists", "list_append"}:
            name = self.at
            self._advance()
            self._expect("(")
            found_all: Sequence[Operand] = self._listed(self._set_operand)
            self._expect(")")
            if len(found_all) != 2:  # noqa: PLR2004  both take two
                raise invalid(f"Incorrect number of operands for operator or function; operator or function: {name}")
            return Call(name, tuple(found_all))
        return self._operand()
