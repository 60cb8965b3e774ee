"""IAM's evaluation of policies, as far as template.yaml uses it: an explicit Deny, then any Allow, then nothing.

An operator that is not known here is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

Statement = Mapping[str, Any]

_VARIABLE = re.compile(r"\$\{([^}]+)\}")


@dataclass(frozen=True)
class Request:
    """One action on one resource; `context` has the condition keys that AWS would fill in, some with several values."""

    action: str
    resource: str
    context: Mapping[str, str | list[str]] = field(default_factory=dict)


def is_allowed(statements: Iterable[Statement], request: Request) -> bool:
    """Tell whether an identity's statements allow a request."""
    matching = [statement["Effect"] for statement in statements if _matches(statement, request)]
    return "Deny" not in matching and "Allow" in matching


def is_denied(statements: Iterable[Statement], request: Request) -> bool:
    """Tell whether statements, such as those of a bucket, deny a request whatever else allows it."""
    return any(statement["Effect"] == "Deny" and _matches(statement, request) for statement in statements)


def _matches(statement: Statement, request: Request) -> bool:
    unknown = statement.keys() - {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}
    assert not unknown, f"{unknown} is not known here"
    return (
        any(_like(action.lower(), request.action.lower()) for action in _list(statement["Action"]))
        and any(_like(one, request.resource) for one in _values(statement["Resource"], request))
        and all(
            _holds(operator, key, _values(wanted, request), request.context.get(key))
            for operator, keys in statement.get("Condition", {}).items()
            for key, wanted in keys.items()
        )
    )


def _values(wanted: str | list[str], request: Request) -> list[str]:
    """Fill in policy variables. What names one that the request does not have is nothing, and so matches nothing."""
    values = []
    for value in _list(wanted):
        names = _VARIABLE.findall(value)
        if all(name in request.context for name in names):
            values.append(_VARIABLE.sub(lambda found: _escaped(request.context[found[1]]), value))
    return values


def _escaped(value: str | list[str]) -> str:
    assert isinstance(value, str)
    assert not set(value) & set("*?$"), "a variable's value with a wildcard is not known here"
    return value


def _holds(operator: str, key: str, wanted: list[str], found: str | list[str] | None) -> bool:
    if operator == "Null":
        return [str(found is None).lower()] == wanted
    if operator == "ForAllValues:StringEquals":
        return all(value in wanted for value in _list(found or []))
    if operator == "ForAllValues:StringLike":
        return all(any(_like(each, value) for each in wanted) for value in _list(found or []))
    assert not isinstance(found, list), f"{key} has several values"
    assert operator in {"ArnEquals", "ArnLike", "Bool", "StringEquals", "StringLike"}, f"{operator} is not known here"
    if found is None:
        return False
    if operator in {"Bool", "StringEquals"}:
        return found in wanted
    return any(_like(each, found) for each in wanted)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


def _like(pattern: str, text: str) -> bool:
    return _pattern(pattern).fullmatch(text) is not None


def _list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
