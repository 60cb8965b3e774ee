"""What is remembered of a transaction that was written, and for how long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from werkzeug.test import Client, TestResponse

from coldstream.local.transaction_tokens import HELD_FOR_S, TransactionTokens


@dataclass
class FakeDynamoDB:
    """A WSGI application that counts its requests; its clock is `now`."""

    status: str = "200 OK"
    requests: list[str] = field(default_factory=list)
    now: float = 0.0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.requests.append(environ["wsgi.input"].read().decode())
        start_response(self.status, [("Content-Type", "application/x-amz-json-1.0"), ("x-amz-crc32", "1")])
        return [b"{}"]

    def send(self, **request: Any) -> TestResponse:
        return self.client.post("/", json=request, headers={"X-Amz-Target": "DynamoDB_20120810.TransactWriteItems"})

    def __post_init__(self) -> None:
        self.client = Client(TransactionTokens(self, clock=lambda: self.now))


@pytest.fixture
def dynamodb() -> FakeDynamoDB:
    return FakeDynamoDB()


def test_a_transaction_is_remembered_for_ten_minutes(dynamodb: FakeDynamoDB) -> None:
    for dynamodb.now, sent in ((0.0, 1), (HELD_FOR_S - 1, 1), (HELD_FOR_S, 2)):
        assert dynamodb.send(TransactItems=[1], ClientRequestToken="a").status_code == 200
        assert len(dynamodb.requests) == sent


def test_a_refused_transaction_is_not_remembered(dynamodb: FakeDynamoDB) -> None:
    dynamodb.status = "400 Bad Request"
    for _ in range(2):
        assert dynamodb.send(TransactItems=[1], ClientRequestToken="a").status_code == 400
    assert len(dynamodb.requests) == 2


def test_without_a_token_each_transaction_is_a_new_one(dynamodb: FakeDynamoDB) -> None:
    for _ in range(2):
        dynamodb.send(TransactItems=[1])
    assert dynamodb.requests == ['{"TransactItems": [1]}'] * 2


def test_other_requests_pass(dynamodb: FakeDynamoDB) -> None:
    for _ in range(2):
        dynamodb.client.post("/", data=b"anything", headers={"X-Amz-Target": "DynamoDB_20120810.PutItem"})
    assert dynamodb.requests == ["anything"] * 2
