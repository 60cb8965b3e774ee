"""What a request consumed, for whoever asks: by the sizes of what it wrote, or of what it answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from coldstream.local.dynamodb.values import item_bytes

READ_UNIT_BYTES = 4096
WRITE_UNIT_BYTES = 1024


def consumed(name: str, request: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return `ConsumedCapacity` as an answer has it, by name; nothing if it was not asked for."""
    if request.get("ReturnConsumedCapacity", "NONE") == "NONE":
        return {}
    match name:
        case "GetItem" | "Query" | "Scan":
            found = [answer["Item"]] if "Item" in answer else answer.get("Items", [])
            units = _reads(found, 1 if request.get("ConsistentRead") else 0.5)
            return {"ConsumedCapacity": {"TableName": request["TableName"], "CapacityUnits": units}}
        case "PutItem" | "UpdateItem" | "DeleteItem":
            units = _writes(request.get("Item"))
            return {"ConsumedCapacity": {"TableName": request["TableName"], "CapacityUnits": units}}
        case "TransactWriteItems":
            by_table = Counter[str]()
            for one in request["TransactItems"]:
                for document in one.values():
                    by_table[document["TableName"]] += int(2 * _writes(document.get("Item")))
        case "TransactGetItems":
            by_table = Counter[str]()
            for one, found in zip(request["TransactItems"], answer["Responses"], strict=True):
                by_table[one["Get"]["TableName"]] += int(_reads(found.values(), 2))
        case _:
            return {}
    return {
        "ConsumedCapacity": [{"TableName": table, "CapacityUnits": float(units)} for table, units in by_table.items()]
    }


def _reads(items: Iterable[Mapping[str, Any]], each: float) -> float:
    return max(1, -(-sum(map(item_bytes, items)) // READ_UNIT_BYTES)) * each


def _writes(item: Mapping[str, Any] | None) -> float:
    return 1.0 if item is None else float(-(-item_bytes(item) // WRITE_UNIT_BYTES))
