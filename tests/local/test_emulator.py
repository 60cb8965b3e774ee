"""The embedded AWS loses nothing that it acknowledged, however many write at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError

from coldstream.local.emulator import EmbeddedAws
from coldstream.local.environment import aws_environment, client

WRITERS = 6
TRANSACTIONS = 25


@pytest.fixture(scope="module", autouse=True)
def threads_that_meet() -> Iterator[None]:
    """Let threads take turns so often that they meet wherever they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(0.000_02)
    yield
    sys.setswitchinterval(usual)


@pytest.fixture(scope="module")
def environment() -> Iterator[Mapping[str, str]]:
    with EmbeddedAws() as aws:
        yield aws_environment({}, aws.url)


@pytest.fixture(scope="module")
def dynamodb(environment: Mapping[str, str]) -> Any:
    return client("dynamodb", environment)


@pytest.fixture
def table(dynamodb: Any) -> str:
    name = f"table-{uuid4()}"
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
    )
    return name


def put(table: str, key: str, **more: Any) -> Any:
    return {"Put": {"TableName": table, "Item": {"key": {"S": key}, **more}}}


def put_new(table: str, key: str) -> Any:
    return {
        "Put": {
            **put(table, key)["Put"],
            "ConditionExpression": "attribute_not_exists(#key)",
            "ExpressionAttributeNames": {"#key": "key"},
        }
    }


def keys(dynamodb: Any, table: str) -> set[str]:
    pages = dynamodb.get_paginator("scan").paginate(TableName=table)
    return {item["key"]["S"] for page in pages for item in page["Items"]}


def test_a_cancelled_transaction_does_not_undo_the_writes_of_others(dynamodb: Any, table: str) -> None:
    dynamodb.transact_write_items(TransactItems=[put(table, "taken")])

    def write(writer: int) -> set[str]:
        """Write single items, transactions, and transactions that are cancelled, in turn."""
        acknowledged = set()
        for number in range(TRANSACTIONS):
            key = f"{writer}-{number}"
            if number % 2:
                with pytest.raises(ClientError, match="TransactionCanceled"):
                    dynamodb.transact_write_items(TransactItems=[put(table, f"never-{key}"), put_new(table, "taken")])
            else:
                dynamodb.transact_write_items(TransactItems=[put_new(table, key), put_new(table, f"{key}-too")])
                dynamodb.put_item(TableName=table, Item={"key": {"S": f"{key}-alone"}})
                acknowledged |= {key, f"{key}-too", f"{key}-alone"}
        return acknowledged

    with ThreadPoolExecutor(WRITERS) as pool:
        acknowledged = set().union(*pool.map(write, range(WRITERS)))
    assert keys(dynamodb, table) == acknowledged | {"taken"}


def test_a_reader_sees_all_of_a_transaction_or_nothing(dynamodb: Any, table: str) -> None:
    names = [f"item-{number}" for number in range(8)]

    def write(value: int) -> None:
        dynamodb.transact_write_items(TransactItems=[put(table, name, value={"N": str(value)}) for name in names])

    write(0)
    with ThreadPoolExecutor(WRITERS) as pool:
        writing = [pool.submit(write, value) for value in range(1, TRANSACTIONS)]
        while not all(done.done() for done in writing):
            items = dynamodb.scan(TableName=table, ConsistentRead=True)["Items"]
            assert len({item["value"]["N"] for item in items}) == 1
        for done in writing:
            done.result()


def test_one_of_several_writers_of_a_new_item_wins(dynamodb: Any, table: str) -> None:
    def write(key: int) -> bool:
        try:
            dynamodb.transact_write_items(TransactItems=[put_new(table, str(key // WRITERS))])
        except ClientError:
            return False
        return True

    with ThreadPoolExecutor(WRITERS) as pool:
        assert sum(pool.map(write, range(10 * WRITERS))) == 10


def test_one_of_several_conditional_puts_wins(environment: Mapping[str, str]) -> None:
    s3, bucket = client("s3", environment), f"bucket-{uuid4()}"
    s3.create_bucket(Bucket=bucket)

    def write(number: int) -> bool:
        key, body = str(number // WRITERS), bytes([number]) * 10_000
        try:
            s3.put_object(Bucket=bucket, Key=key, Body=body, IfNoneMatch="*")
        except ClientError:
            return False
        return True

    with ThreadPoolExecutor(WRITERS) as pool:
        assert sum(pool.map(write, range(30 * WRITERS))) == 30


def test_a_transaction_that_is_sent_again_with_its_token_is_written_once(dynamodb: Any, table: str) -> None:
    for _ in range(2):
        dynamodb.transact_write_items(TransactItems=[put_new(table, "one")], ClientRequestToken="sent again")
    assert keys(dynamodb, table) == {"one"}


def test_a_token_with_another_transaction_is_refused(dynamodb: Any, table: str) -> None:
    dynamodb.transact_write_items(TransactItems=[put_new(table, "one")], ClientRequestToken="used twice")
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        dynamodb.transact_write_items(TransactItems=[put_new(table, "two")], ClientRequestToken="used twice")
    assert keys(dynamodb, table) == {"one"}


def test_a_cancelled_transaction_is_tried_again_whatever_its_token(dynamodb: Any, table: str) -> None:
    again = {"TransactItems": [put_new(table, "one")], "ClientRequestToken": "cancelled first"}
    dynamodb.put_item(TableName=table, Item={"key": {"S": "one"}})
    with pytest.raises(ClientError, match="TransactionCanceled"):
        dynamodb.transact_write_items(**again)
    dynamodb.delete_item(TableName=table, Key={"key": {"S": "one"}})
    dynamodb.transact_write_items(**again)
    assert keys(dynamodb, table) == {"one"}
