"""The emulated AWS: tables as template.yaml declares them, and buckets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest

from coldstream.local.template import load_template
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable

TEMPLATE = Path(__file__).parents[2] / "template.yaml"


@pytest.fixture(scope="session")
def dynamodb(moto_endpoint: str) -> Any:
    """A DynamoDB client."""
    return boto3.session.Session().client("dynamodb")


@pytest.fixture(scope="session")
def s3(moto_endpoint: str) -> Any:
    """An S3 client."""
    return boto3.session.Session().client("s3")


@pytest.fixture(scope="session")
def create_table(dynamodb: Any) -> Callable[[], str]:
    """Creates tables as template.yaml declares them, and returns their names."""
    properties = load_template(TEMPLATE).body["Resources"]["Table"]["Properties"]

    def create() -> str:
        name = f"manifest-{uuid4()}"
        dynamodb.create_table(TableName=name, **properties)
        return name

    return create


@pytest.fixture
def table_name(create_table: Callable[[], str]) -> str:
    """The name of an empty table."""
    return create_table()


@pytest.fixture
def dynamo_table(table_name: str) -> DynamoTable:
    """The manifest in an empty table."""
    return DynamoTable(table_name)


@pytest.fixture
def s3_objects(s3: Any) -> S3Objects:
    """An empty bucket."""
    name = f"archive-{uuid4()}"
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": s3.meta.region_name})
    return S3Objects(name)
