"""The emulated AWS: tables as template.yaml declares them, and buckets.

COLDSTREAM_CONFORMANCE says which: `moto`, as without it; `localstack`, with DynamoDB Local for the table; or
`endpoints`, those of AWS_ENDPOINT_URL and AWS_ENDPOINT_URL_DYNAMODB.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest

from coldstream.local.deployment import table_parameters
from coldstream.local.template import load_template
from coldstream.store.environment import AwsEnvironment
from coldstream.store.fast_reads import FastTable
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable

TEMPLATE = Path(__file__).parents[2] / "template.yaml"


def cloud() -> str:
    """Return the name of the emulated AWS that was asked for."""
    return os.environ.get("COLDSTREAM_CONFORMANCE", "moto")


@pytest.fixture(scope="session")
def aws(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the emulated AWS, which the SDK finds by its environment for the rest of the run."""
    name = cloud()
    with pytest.MonkeyPatch.context() as patch:
        if name == "moto":
            request.getfixturevalue("moto_endpoint")
        elif name == "localstack":
            localstack, dynamodb_local = map(request.getfixturevalue, ("localstack", "dynamodb_local"))
            for variable, value in localstack.environment_of_clients(dynamodb_local.url).items():
                patch.setenv(variable, value)
            patch.delenv("AWS_PROFILE", raising=False)
            patch.delenv("AWS_SESSION_TOKEN", raising=False)
        elif name != "endpoints":
            pytest.fail(f"COLDSTREAM_CONFORMANCE is {name!r}, not moto, localstack or endpoints")
        yield name


@pytest.fixture(scope="session")
def dynamodb(aws: str) -> Any:
    """A DynamoDB client."""
    return boto3.session.Session().client("dynamodb")


@pytest.fixture(scope="session")
def s3(aws: str) -> Any:
    """An S3 client."""
    return boto3.session.Session().client("s3")


@pytest.fixture(scope="session")
def create_table(dynamodb: Any) -> Callable[[], str]:
    """Creates tables as template.yaml declares them, and returns their names."""
    parameters = table_parameters(load_template(TEMPLATE).body["Resources"]["Table"])

    def create() -> str:
        name = f"manifest-{uuid4()}"
        dynamodb.create_table(TableName=name, **parameters)
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


class FastManifest(FastTable):
    """The manifest, read without the SDK: a whole `ports.ManifestTable` by PynamoDB's writes."""

    def __init__(self, name: str, aws: AwsEnvironment) -> None:
        super().__init__(name, aws)
        writes = DynamoTable(name)
        self.apply, self.bind_cluster = writes.apply, writes.bind_cluster
        self.put_grant, self.delete_grant = writes.put_grant, writes.delete_grant
        self.put_policy, self.delete_policy = writes.put_policy, writes.delete_policy
        self.put_cursor, self.delete_cursor = writes.put_cursor, writes.delete_cursor
        self.put_state, self.add_state, self.delete_state = writes.put_state, writes.add_state, writes.delete_state


@pytest.fixture
def fast_table(table_name: str) -> FastManifest:
    """The manifest in an empty table, read without the SDK."""
    aws = AwsEnvironment(
        region=os.environ["AWS_DEFAULT_REGION"],
        access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
        secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        session_token=None,
        dynamodb_endpoint=os.environ.get("AWS_ENDPOINT_URL_DYNAMODB", os.environ.get("AWS_ENDPOINT_URL")),
    )
    return FastManifest(table_name, aws)


@pytest.fixture
def s3_objects(s3: Any) -> S3Objects:
    """An empty bucket."""
    return _bucket(s3)


@pytest.fixture
def s3_versioned(s3: Any) -> S3Objects:
    """An empty bucket that keeps versions."""
    objects = _bucket(s3)
    s3.put_bucket_versioning(Bucket=objects.bucket, VersioningConfiguration={"Status": "Enabled"})
    return objects


@pytest.fixture
def s3_locking(s3: Any) -> S3Objects:
    """An empty bucket with Object Lock, and so with versions."""
    return _bucket(s3, ObjectLockEnabledForBucket=True)


def _bucket(s3: Any, **options: Any) -> S3Objects:
    name = f"archive-{uuid4()}"
    where = {"LocationConstraint": s3.meta.region_name}
    s3.create_bucket(Bucket=name, CreateBucketConfiguration=where, **options)
    return S3Objects(name)


@pytest.fixture(scope="session")
def sqs(aws: str) -> Any:
    """An SQS client."""
    return boto3.session.Session().client("sqs")
