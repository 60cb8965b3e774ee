"""What DynamoDB Local, which is AWS's own, answers to requests by chance, the laptop's tables answer, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError

from coldstream.local.emulator import EmbeddedAws
from coldstream.local.environment import aws_environment, client
from tests.local.dynamodb.random_requests import TABLE, TABLE_DEFINITION, RequestMaker
from tests.support.dynamodb_local import DynamoDBLocal, find_dynamodb_local
from tests.support.fixtures import do_without

SEEDS, REQUESTS = 5, 200

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def theirs() -> Iterator[Any]:
    if find_dynamodb_local() is None:
        do_without("DynamoDB Local", "make emulators")
    with DynamoDBLocal() as server:
        yield client("dynamodb", aws_environment({}, server.url))


@pytest.fixture(scope="module")
def ours() -> Iterator[Any]:
    with EmbeddedAws() as aws:
        yield client("dynamodb", aws_environment({}, aws.url))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_requests_by_chance_are_answered_alike(ours: Any, theirs: Any, seed: int) -> None:
    for dynamodb in (ours, theirs):
        with suppress(ClientError):
            dynamodb.delete_table(TableName=TABLE)
        dynamodb.create_table(**TABLE_DEFINITION)
    maker = RequestMaker(seed)
    kinds = set()
    for number in range(REQUESTS):
        method, request = maker.request()
        answers = [answer(dynamodb, method, request) for dynamodb in (ours, theirs)]
        if "LastEvaluatedKey" not in answers[1]:
            answers[0].pop(
                "LastEvaluatedKey", None
            )  # Whether a page that its limit ended is the last, none has to know.
        assert answers[0] == answers[1], f"request {number}: {method} {request}; {answers[0]} is not {answers[1]}"
        kinds.add((method, "error" in answers[0]))
    assert {(method, True) for method in ("put_item", "update_item", "transact_write_items")} <= kinds
    assert len(kinds) > 12


def answer(dynamodb: Any, method: str, request: dict[str, Any]) -> Any:
    """Return an answer, without what is by chance or in no order, or the error's code and reasons."""
    try:
        found = getattr(dynamodb, method)(**request)
    except ClientError as err:
        reasons = [
            {name: value for name, value in one.items() if name != "Message"}
            for one in err.response.get("CancellationReasons", ())
        ]
        return {"error": err.response["Error"]["Code"], "reasons": plain(reasons), "item": err.response.get("Item")}
    found.pop("ResponseMetadata")
    found.pop("ConsumedCapacity", None)  # told though nobody asked, of deletions alone
    has_no_order = method == "scan" or "IndexName" in request
    for items in (found.get("Items") if has_no_order else None, found.get("Responses", {}).get(TABLE)):
        if items is not None:
            items.sort(key=lambda item: (item["hash"]["S"], item["range"]["S"]))
    return plain(found)


def plain(value: Any) -> Any:
    """Return an answer without the order of sets, and numbers as they compare."""
    if isinstance(value, dict):
        if len(value) == 1:
            ((kind, content),) = value.items()
            if kind == "N":
                return {kind: Decimal(content)}
            if kind in {"SS", "NS", "BS"}:
                return {kind: sorted(content)}
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value
