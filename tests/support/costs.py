"""The tables of costs in docs/deploy.md, and the requests of a piece of code, counted as AWS charges for them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.client import BaseClient

from tests.support.cloudformation import TEMPLATE

PAGE = (TEMPLATE.parent / "docs/deploy.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table with this first heading."""
    (table,) = re.findall(rf"^\| {re.escape(heading)} \|[^\n]*\n\|[-:|]+\|\n((?:\|[^\n]*\n)+)", PAGE, re.MULTILINE)
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table.splitlines()]


def number(text: str) -> float:
    return float(text.split(maxsplit=1)[0].replace(",", ""))


def price(text: str) -> float:
    """Return the cost of one, in millionths."""
    return number(text) * {"thousand": 1e3, "million": 1.0}.get(text.rsplit(maxsplit=1)[-1], 1e6)


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the requests of the block by operation, and the units that DynamoDB reports.

    `units by size` are those of transactions by AWS's own rule: two for each begun kilobyte of an item, and one more in
    the index by time. What the emulator reports of a transaction is that of its largest item.
    """
    counts: Counter[str] = Counter()
    original = BaseClient._make_api_call  # type: ignore[attr-defined]  # botocore has no hook that gets the answer

    def call(client: BaseClient, operation: str, parameters: dict[str, Any]) -> Any:
        counts[operation] += 1
        if client.meta.service_model.service_name != "dynamodb":
            return original(client, operation, parameters)
        for write in parameters.get("TransactItems", []) if operation == "TransactWriteItems" else []:
            ((_, one),) = write.items()
            item = one.get("Item")
            if item is None:
                key = {"TableName": one["TableName"], "Key": one["Key"]}
                item = original(client, "GetItem", key).get("Item", {})
            counts["units by size"] += (3 if "time" in item else 2) * -(-_size(item) // 1024)
        answer = original(client, operation, {**parameters, "ReturnConsumedCapacity": "TOTAL"})
        taken = answer["ConsumedCapacity"]
        is_write = operation in {"TransactWriteItems", "PutItem", "DeleteItem"}
        kind = "write units" if is_write else "read units"
        counts[kind] += sum(each["CapacityUnits"] for each in (taken if isinstance(taken, list) else [taken]))
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseClient, "_make_api_call", call)
        yield counts


def _size(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Return about what DynamoDB takes an item's size to be."""
    return sum(len(name) + len(next(iter(value.values()))) for name, value in item.items())
