"""Queries and scans: a page of items, and where the next one begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any
from zlib import crc32

from coldstream.local.dynamodb.answers import invalid
from coldstream.local.dynamodb.evaluation import holds, projected
from coldstream.local.dynamodb.expressions import (
    Call,
    Combine,
    Compare,
    Condition,
    Constant,
    Path,
    Substitutes,
    condition_of,
    paths_of,
)
from coldstream.local.dynamodb.items import KeyNames, PartitionPart, StoredItems, TableKeys, key_of
from coldstream.local.dynamodb.values import item_bytes, kind_of

PAGE_BYTES = 1024 * 1024


def query(request: Mapping[str, Any], table: TableKeys, items: StoredItems) -> dict[str, Any]:
    """Answer a Query. Raises DynamoError."""
    if "KeyConditionExpression" not in request:
        raise invalid("Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.")
    substitutes = Substitutes.of(request)
    names = _names(request, table)
    part = _part_of(condition_of(request["KeyConditionExpression"], substitutes), names)
    return _page(request, table, items, replace(part, is_forward=request.get("ScanIndexForward", True)), substitutes)


def scan(request: Mapping[str, Any], table: TableKeys, items: StoredItems) -> dict[str, Any]:
    """Answer a Scan, or a segment of one. Raises DynamoError."""
    return _page(request, table, items, PartitionPart(), Substitutes.of(request))


def _names(request: Mapping[str, Any], table: TableKeys) -> KeyNames:
    index = request.get("IndexName")
    if index is None:
        return table.own
    if index not in table.indexes:
        raise invalid(f"The table does not have the specified index: {index}")
    if request.get("ConsistentRead"):
        raise invalid("Consistent reads are not supported on global secondary indexes")
    return table.indexes[index]


def _page(
    request: Mapping[str, Any], table: TableKeys, items: StoredItems, part: PartitionPart, substitutes: Substitutes
) -> dict[str, Any]:
    for legacy in ("KeyConditions", "QueryFilter", "ScanFilter", "AttributesToGet", "ConditionalOperator"):
        if legacy in request:
            raise invalid(f"{legacy} is not emulated: use expressions")
    names, index = _names(request, table), request.get("IndexName")
    text = request.get("FilterExpression")
    condition = None if text is None else condition_of(text, substitutes)
    text = request.get("ProjectionExpression")
    paths = None if text is None else paths_of(text, substitutes)
    substitutes.check_used()
    limit = request.get("Limit")
    if limit is not None and limit < 1:
        raise invalid("Limit must be greater than or equal to 1")
    start = request.get("ExclusiveStartKey")
    if start is not None:
        after = key_of(table.own, start)
        part = replace(part, after=after if index is None else (*key_of(names, start), *after))
    found: list[Mapping[str, Any]] = []
    scanned = size = 0
    last: dict[str, Any] | None = None
    for item in _of_segment(request, table, items.within(table, part, index)):
        if scanned == limit or size > PAGE_BYTES:
            break
        last = {**table.own.of(item), **names.of(item)}
        scanned += 1
        size += item_bytes(item)
        if condition is None or holds(condition, item):
            found.append(item if paths is None else projected(item, paths))
    else:
        # A page that its limit ended says where, though nothing may follow; one that ended by itself does not.
        last = last if scanned == limit else None
    answer: dict[str, Any] = {"Count": len(found), "ScannedCount": scanned}
    if request.get("Select") != "COUNT":
        answer["Items"] = found
    return answer if last is None else {**answer, "LastEvaluatedKey": last}


def _of_segment(
    request: Mapping[str, Any], table: TableKeys, found: Iterator[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    total = request.get("TotalSegments")
    if total is None:
        return found
    return (item for item in found if crc32(key_of(table.own, item)[0]) % total == request["Segment"])


def _part_of(condition: Condition, names: KeyNames) -> PartitionPart:
    part: PartitionPart | None = None
    order: Condition | None = None
    for one in _conjuncts(condition):
        name = _name(one)
        if name == names.hash and isinstance(one, Compare) and one.operator == "=":
            part = PartitionPart(_key_bytes(one.operands[1]))
        elif name == names.range and order is None:
            order = one
        else:
            raise invalid("Query key condition not supported")
    if part is None:
        raise invalid(f"Query condition missed key schema element: {names.hash}")
    return part if order is None else _ordered_part(part, order)


def _ordered_part(part: PartitionPart, order: Condition) -> PartitionPart:
    if isinstance(order, Combine):
        raise invalid("Query key condition not supported")
    how = order.name if isinstance(order, Call) else order.operator
    bounds = [_key_bytes(one) for one in order.operands[1:]]
    ways: Mapping[str, Mapping[str, bytes]] = {
        "=": {"first": bounds[0], "last": bounds[-1]},
        "BETWEEN": {"first": bounds[0], "last": bounds[-1]},
        ">=": {"first": bounds[0]},
        "<=": {"last": bounds[0]},
        ">": {"first": bounds[0] + b"\0"},  # the least key above it
        "<": {"below": bounds[0]},
        "begins_with": {"prefix": bounds[0]},
    }
    if how not in ways:
        raise invalid("Query key condition not supported")
    return replace(part, **ways[how])  # type: ignore[arg-type]  # fields of bytes alone


def _conjuncts(condition: Condition) -> Iterator[Condition]:
    if isinstance(condition, Combine) and condition.operator == "AND":
        return chain.from_iterable(_conjuncts(one) for one in condition.conditions)
    return iter((condition,))


def _name(condition: Condition) -> str:
    operands = () if isinstance(condition, Combine) else condition.operands
    first = operands[0] if operands else None
    if not isinstance(first, Path) or len(first.steps) > 1:
        raise invalid("Query key condition not supported")
    return str(first.steps[0])


def _key_bytes(operand: Any) -> bytes:
    if not isinstance(operand, Constant) or kind_of(operand.value)[0] != "S":
        raise invalid("One or more parameter values were invalid: Condition parameter type does not match schema type")
    text: str = kind_of(operand.value)[1]
    return text.encode()
