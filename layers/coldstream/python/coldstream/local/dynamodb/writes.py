"""Writes of one item, and of several at once: what DynamoDB checks before, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coldstream.local.dynamodb.answers import ConditionFailedError, DynamoError, cancelled, invalid
from coldstream.local.dynamodb.evaluation import holds, updated
from coldstream.local.dynamodb.expressions import AttributeChange, Substitutes, changes_of, condition_of
from coldstream.local.dynamodb.items import Key, StoredItems, TableKeys, key_of
from coldstream.local.dynamodb.values import Item, check_item, item_bytes

MAX_ACTIONS = 100
MAX_TRANSACTION_BYTES = 4 * 1024 * 1024
_CHANGING = {"UPDATED_NEW", "UPDATED_OLD"}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A write that may be made: the item before and after, None if there is none."""

    table: TableKeys
    key: Key
    before: dict[str, Any] | None
    after: Item | None
    changes: tuple[AttributeChange, ...] = ()

    def write(self, items: StoredItems) -> None:
        """Make it."""
        if self.after is None:
            items.delete(self.table, self.key)
        else:
            items.put(self.table, self.key, self.after)

    def answer(self, wanted: str) -> dict[str, Any]:
        """Return what a request wants back."""
        if wanted == "NONE":
            return {}
        found = self.before if wanted.endswith("OLD") else self.after
        if wanted in _CHANGING:
            names = {str(change.path.steps[0]) for change in self.changes}
            found = {name: value for name, value in (found or {}).items() if name in names}
        return {"Attributes": dict(found)} if found else {}


def prepare(kind: str, request: Mapping[str, Any], table: TableKeys, items: StoredItems) -> Prepared:
    """Check a `Put`, `Delete`, `Update` or `ConditionCheck`. Raises DynamoError."""
    for legacy in ("Expected", "AttributeUpdates", "ConditionalOperator"):
        if legacy in request:
            raise invalid(f"{legacy} is not emulated: use expressions")
    named = request["Item" if kind == "Put" else "Key"]
    if kind != "Put":
        _check_is_key(table, named)
    key = key_of(table.own, named)
    before = items.get(table, key)
    substitutes = Substitutes.of(request)
    condition = condition_of(request["ConditionExpression"], substitutes) if "ConditionExpression" in request else None
    changes = changes_of(request["UpdateExpression"], substitutes) if "UpdateExpression" in request else ()
    _check_changes(table, changes)
    substitutes.check_used()
    if condition is not None and not holds(condition, before or {}):
        wants_it = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
        raise ConditionFailedError(before if wants_it else None)
    after: Mapping[str, Item | None] = {
        "ConditionCheck": before,
        "Delete": None,
        "Put": named,
        "Update": updated(before or named, changes),
    }
    prepared = Prepared(table, key, before, after[kind], changes)
    _check_after(table, prepared.after)
    return prepared


def _check_after(table: TableKeys, item: Item | None) -> None:
    if item is None:
        return
    check_item(item)
    for names in table.indexes.values():
        if names.hash in item and (names.range is None or names.range in item):
            key_of(names, item)


def write_all(actions: Sequence[tuple[str, Mapping[str, Any], TableKeys]], items: StoredItems) -> None:
    """Make all writes of a transaction, or none. Raises DynamoError, with a reason for each."""
    if len(actions) > MAX_ACTIONS:
        raise invalid(f"Member must have length less than or equal to {MAX_ACTIONS}")
    prepared: list[Prepared] = []
    reasons: list[DynamoError | None] = []
    seen: set[tuple[str, Key]] = set()
    size = 0
    for kind, request, table in actions:
        named = request["Item"] if kind == "Put" else request["Key"]
        place = table.place, key_of(table.own, named)
        if place in seen:
            raise invalid("Transaction request cannot include multiple operations on one item")
        seen.add(place)
        try:
            prepared.append(prepare(kind, request, table, items))
        except ConditionFailedError as err:
            reasons.append(err)
        else:
            reasons.append(None)
            size += item_bytes(prepared[-1].after or prepared[-1].before or {})
    if size > MAX_TRANSACTION_BYTES:
        raise invalid("Collection size limit exceeded: the items of a transaction may have 4 MB")
    if any(reasons):
        raise cancelled(reasons)
    for one in prepared:
        one.write(items)


def _check_is_key(table: TableKeys, named: Item) -> None:
    if set(named) != {name for name in (table.own.hash, table.own.range) if name is not None}:
        raise invalid("The provided key element does not match the schema")


def _check_changes(table: TableKeys, changes: Sequence[AttributeChange]) -> None:
    paths = [change.path.steps for change in changes]
    for path in paths:
        if path[0] in {table.own.hash, table.own.range}:
            raise invalid(
                f"One or more parameter values were invalid: Cannot update attribute {path[0]}. This attribute is part"
                " of the key"
            )
        if any(other is not path and other[: len(path)] == path for other in paths):
            raise invalid("Invalid UpdateExpression: Two document paths overlap with each other;")
