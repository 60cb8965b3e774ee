"""Values as DynamoDB's API has them, such as `{"N": "1"}`: checked, compared, and measured.

Upstream: "Supported data types and naming rules" and "Item sizes and formats" in DynamoDB's developer guide.
"""

from __future__ import annotations

import base64
from binascii import Error as Base64Error
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from coldstream.local.dynamodb.answers import DynamoError, invalid

Value = Mapping[str, Any]
Item = Mapping[str, Value]

MAX_ITEM_BYTES = 400 * 1024
_SETS = {"SS": "S", "NS": "N", "BS": "B"}
_NESTED_BYTES, _ELEMENT_BYTES = 3, 1
MAX_DIGITS = 38


def check_item(item: Item) -> None:
    """Raise DynamoError if an item has an impossible value, or is too large."""
    for name, value in item.items():
        check_value(value)
        if not name:
            raise invalid("an attribute's name may not be empty")
    if item_bytes(item) > MAX_ITEM_BYTES:
        raise invalid("Item size has exceeded the maximum allowed size")


def check_value(value: Any) -> None:
    """Raise DynamoError if this is no value."""
    kind, content = kind_of(value)
    if kind in _SETS:
        _check_set(kind, content)
    elif kind in {"L", "M"}:
        for one in content if kind == "L" else content.values():
            check_value(one)
    elif kind not in {"S", "N", "B", "BOOL", "NULL"} or not isinstance(content, bool if len(kind) > 1 else str):
        raise _serialization(kind)
    else:
        normal(value)


def _check_set(kind: str, content: Any) -> None:
    if not isinstance(content, list):
        raise _serialization(kind)
    for one in content:
        check_value({_SETS[kind]: one})
    if not content:
        raise invalid("One or more parameter values were invalid: An set may not be empty")
    if len(normal({kind: content})[1]) != len(content):
        raise invalid("One or more parameter values were invalid: Input collection contains duplicates")


def kind_of(value: Any) -> tuple[str, Any]:
    """Return a value's type and content. Raises DynamoError if it has not exactly one."""
    if not isinstance(value, Mapping) or len(value) != 1:
        raise invalid("Supplied AttributeValue is empty, must contain exactly one of the supported datatypes")
    ((kind, content),) = value.items()
    return kind, content


def number(text: Any) -> Decimal:
    """Return a number. Raises DynamoError if it is none, or has more than 38 digits."""
    try:
        found = Decimal(text)
    except (InvalidOperation, TypeError, ValueError):
        raise invalid("The parameter cannot be converted to a numeric value") from None
    if not found.is_finite() or len(found.normalize().as_tuple().digits) > MAX_DIGITS:
        raise invalid("Attempting to store more than 38 significant digits in a Number")
    return found


def number_value(found: Decimal) -> Value:
    """Return the value of a number, as DynamoDB writes it: without an exponent or zeros at its end."""
    text = format(found.normalize(), "f")
    return {"N": "0" if text in {"-0", "0"} else text}


def normal(value: Value) -> tuple[str, Any]:
    """Return what two equal values have in common."""
    kind, content = kind_of(value)
    if kind == "N":
        return kind, number(content)
    if kind == "B":
        return kind, _bytes(content)
    if kind in _SETS:
        return kind, frozenset(normal({_SETS[kind]: one})[1] for one in content)
    if kind == "L":
        return kind, tuple(normal(one) for one in content)
    if kind == "M":
        return kind, frozenset((name, normal(one)) for name, one in content.items())
    return kind, content


def stored(value: Value) -> Value:
    """Return a value as it is kept: numbers have no exponent, and no zeros at their ends."""
    kind, content = kind_of(value)
    if kind == "N":
        return number_value(number(content))
    if kind == "NS":
        return {kind: [number_value(number(one))["N"] for one in content]}
    if kind == "L":
        return {kind: [stored(one) for one in content]}
    if kind == "M":
        return {kind: {name: stored(one) for name, one in content.items()}}
    return value


def ordered(value: Value) -> tuple[str, Any] | None:
    """Return a value's type, and what decides the order among values of it; None for a type that has no order."""
    kind, content = normal(value)
    if kind not in {"S", "N", "B"}:
        return None
    return kind, content.encode() if kind == "S" else content


def item_bytes(item: Item) -> int:
    """Return the size of an item, which DynamoDB bounds and bills by."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Value) -> int:
    kind, content = kind_of(value)
    if kind in _SETS:
        return sum(_value_bytes({_SETS[kind]: one}) for one in content)
    if kind == "L":
        return _NESTED_BYTES + sum(_ELEMENT_BYTES + _value_bytes(one) for one in content)
    if kind == "M":
        return _NESTED_BYTES + len(content) * _ELEMENT_BYTES + item_bytes(content)
    if kind == "N":
        return (len(number(content).normalize().as_tuple().digits) + 1) // 2 + 1
    return {"S": lambda: len(content.encode()), "B": lambda: len(_bytes(content))}.get(kind, lambda: 1)()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except Base64Error:
        raise invalid("Invalid attribute value type") from None


def _serialization(kind: str) -> DynamoError:
    return DynamoError("SerializationException", f"a value of type {kind}", "com.amazon.coral.service#")
