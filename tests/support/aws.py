"""An empty table and an empty bucket in the emulated AWS."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import boto3
import pytest

from coldstream.local.template import load_template
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable

TEMPLATE = Path(__file__).parents[2] / "template.yaml"


@pytest.fixture
def table_name(moto_endpoint: str) -> str:
    """An empty table as template.yaml declares it."""
    name = f"manifest-{uuid4()}"
    client = boto3.session.Session().client("dynamodb")
    client.create_table(TableName=name, **load_template(TEMPLATE).body["Resources"]["Table"]["Properties"])
    return name


@pytest.fixture
def dynamo_table(table_name: str) -> DynamoTable:
    """The manifest in an empty table."""
    return DynamoTable(table_name)


@pytest.fixture
def s3_objects(moto_endpoint: str) -> S3Objects:
    """An empty bucket."""
    name = f"archive-{uuid4()}"
    client = boto3.session.Session().client("s3")
    client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": client.meta.region_name})
    return S3Objects(name)
