"""What expressions make of an item: whether a condition holds, and the item after an update."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from coldstream.local.dynamodb.answers import invalid
from coldstream.local.dynamodb.expressions import AttributeChange, Call, Combine, Condition, Constant, Operand, Path
from coldstream.local.dynamodb.values import Item, Value, item_bytes, kind_of, normal, number, number_value, ordered

_SETS = {"SS", "NS", "BS"}


def holds(condition: Condition, item: Item) -> bool:
    """Tell whether a condition holds for an item; one that is not there is empty."""
    if isinstance(condition, Combine):
        parts = (holds(one, item) for one in condition.conditions)
        if condition.operator == "NOT":
            return not next(parts)
        return all(parts) if condition.operator == "AND" else any(parts)
    values = [value_of(one, item) for one in condition.operands]
    if isinstance(condition, Call):
        return _FUNCTIONS[condition.name](*values)
    return _compared(condition.operator, values)


def _compared(how: str, values: Sequence[Value | None]) -> bool:
    found = [one for one in values if one is not None]
    if len(found) < len(values):
        return how == "<>" and bool(found)
    if how in {"=", "<>", "IN"}:
        return any(normal(found[0]) == normal(one) for one in found[1:]) != (how == "<>")
    keys = [one for one in map(ordered, found) if one is not None]
    if len(keys) < len(found) or len({kind for kind, _ in keys}) > 1:
        return False
    return _ORDERS[how](*(key for _, key in keys))


_ORDERS: Mapping[str, Callable[..., bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "BETWEEN": lambda between, low, high: low <= between <= high,
}


def _begins_with(value: Value | None, prefix: Value | None) -> bool:
    if (
        value is None
        or prefix is None
        or kind_of(value)[0] not in {"S", "B"}
        or kind_of(value)[0] != kind_of(prefix)[0]
    ):
        return False
    found: bool = normal(value)[1].startswith(normal(prefix)[1])
    return found


def _contains(value: Value | None, part: Value | None) -> bool:
    if value is None or part is None:
        return False
    kind, content = normal(value)
    if kind in {"S", "B"}:
        return normal(part)[0] == kind and normal(part)[1] in content
    if kind in _SETS:
        return normal(part)[0] == kind[0] and normal(part)[1] in content
    return kind == "L" and normal(part) in content


_FUNCTIONS: Mapping[str, Callable[..., bool]] = {
    "attribute_exists": lambda value: value is not None,
    "attribute_not_exists": lambda value: value is None,
    "attribute_type": lambda value, kind: value is not None and kind_of(value)[0] == kind_of(kind)[1],
    "begins_with": _begins_with,
    "contains": _contains,
}


def value_of(operand: Operand, item: Item) -> Value | None:
    """Return the value of an operand, None if the item has none there."""
    if isinstance(operand, Constant):
        return operand.value
    if isinstance(operand, Path):
        return look_up(operand, item)
    if operand.name == "size":
        found = value_of(operand.operands[0], item)
        return None if found is None else {"N": str(_size(found))}
    first, second = operand.operands
    if operand.name == "if_not_exists":
        found = value_of(first, item)
        return found if found is not None else value_of(second, item)
    left, right = _wanted(first, item), _wanted(second, item)
    if operand.name == "list_append":
        return {"L": [*_content("L", left), *_content("L", right)]}
    difference = number(_content("N", right)) * (Decimal(-1) if operand.name == "-" else Decimal(1))
    return number_value(number(_content("N", left)) + difference)


def look_up(path: Path, item: Item) -> Value | None:
    """Return what is at a path."""
    found: Any = {"M": item}
    for step in path.steps:
        kind, content = kind_of(found)
        if isinstance(step, int):
            if kind != "L" or step >= len(content):
                return None
            found = content[step]
        elif kind != "M" or step not in content:
            return None
        else:
            found = content[step]
    value: Value = found
    return value


def projected(item: Item, paths: tuple[Path, ...]) -> Item:
    """Return an item with what is at some paths alone; lists keep the elements that are there."""
    found: dict[str, Any] = {}
    for path in paths:
        value = look_up(path, item)
        if value is None:
            continue
        if len(path.steps) > 1:
            raise invalid("projections of nested attributes are not emulated")
        found[str(path.steps[0])] = value
    return found


def updated(item: Item, changes: tuple[AttributeChange, ...]) -> dict[str, Any]:
    """Return an item after an update: each operand is read from the item as it was."""
    after: dict[str, Any] = copy.deepcopy(dict(item))
    removed: list[Path] = []
    for change in changes:
        if change.action == "REMOVE":
            removed.append(change.path)
            continue
        assert change.operand is not None
        given = _wanted(change.operand, item)
        before = look_up(change.path, item)
        value = given if change.action == "SET" else _merged(change.action, before, given)
        if value is None:
            removed.append(change.path)
        else:
            _put(after, change.path, value)
    for path in sorted(removed, key=lambda path: [str(step) for step in path.steps], reverse=True):
        _remove(after, path)
    return after


def _merged(action: str, before: Value | None, given: Value) -> Value | None:
    """Return a set or number after ADD or DELETE, None if nothing is left."""
    kind, content = kind_of(given)
    if action == "ADD" and kind == "N":
        return number_value((number(_content("N", before)) if before else Decimal(0)) + number(content))
    if kind not in _SETS:
        raise invalid(f"Incorrect operand type for operator or function; operator: {action}, operand type: {kind}")
    if before is None:
        return given if action == "ADD" else None
    own = list(_content(kind, before))
    if action == "ADD":
        return {kind: [*own, *(one for one in content if one not in own)]}
    left = [one for one in own if one not in content]
    return {kind: left} if left else None


def _put(item: dict[str, Any], path: Path, value: Value) -> None:
    *parents, last = path.steps
    found: Any = {"M": item}
    for step in parents:
        found = _inside(found, step)
    kind, content = kind_of(found)
    if isinstance(last, int) and kind == "L":
        if last < len(content):
            content[last] = value
        else:
            content.append(value)
    elif isinstance(last, str) and kind == "M":
        content[last] = value
    else:
        raise _no_place()


def _remove(item: dict[str, Any], path: Path) -> None:
    *parents, last = path.steps
    found: Any = {"M": item}
    for step in parents:
        found = _inside(found, step)
    kind, content = kind_of(found)
    if kind == "M":
        content.pop(last, None)
    elif kind == "L" and isinstance(last, int) and last < len(content):
        del content[last]


def _inside(found: Any, step: str | int) -> Any:
    kind, content = kind_of(found)
    if isinstance(step, int):
        if kind != "L" or step >= len(content):
            raise _no_place()
    elif kind != "M" or step not in content:
        raise _no_place()
    return content[step]


def _no_place() -> Exception:
    return invalid("The document path provided in the update expression is invalid for update")


def _wanted(operand: Operand, item: Item) -> Value:
    found = value_of(operand, item)
    if found is None:
        raise invalid("The provided expression refers to an attribute that does not exist in the item")
    return found


def _content(wanted: str, value: Value) -> Any:
    kind, content = kind_of(value)
    if kind != wanted:
        raise invalid(f"An operand in the update expression has an incorrect data type: {kind} is not {wanted}")
    return content


def _size(value: Value) -> int:
    kind, content = kind_of(value)
    if kind == "S":
        return len(content)
    if kind == "B":
        return len(normal(value)[1])
    if kind in {*_SETS, "L", "M"}:
        return len(content)
    return item_bytes({"": value})
