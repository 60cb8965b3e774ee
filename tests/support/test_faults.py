from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError

from tests.support.faults import Faults, FaultyAws

BODY = os.urandom(300_000)
Clients = Callable[..., Any]


@pytest.fixture
def faulty(moto_endpoint: str) -> Iterator[FaultyAws]:
    with FaultyAws(moto_endpoint, seed=7) as running:
        yield running


@pytest.fixture
def client(faulty: FaultyAws) -> Iterator[Clients]:
    made = []

    def make(service: str, *, attempts: int = 1) -> Any:
        config = Config(retries={"total_max_attempts": attempts}, read_timeout=10)
        made.append(boto3.session.Session().client(service, endpoint_url=faulty.url, config=config))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def bucket(s3: Any) -> str:
    name = f"faults-{uuid.uuid4()}"
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": s3.meta.region_name})
    return name


def test_objects_go_through_it_unchanged(client: Clients, bucket: str) -> None:
    s3 = client("s3")
    s3.put_object(Bucket=bucket, Key="größe/1", Body=BODY)
    answer = s3.get_object(Bucket=bucket, Key="größe/1", Range="bytes=1000-250999")
    assert answer["Body"].read() == BODY[1000:251000]
    assert s3.head_object(Bucket=bucket, Key="größe/1")["ContentLength"] == len(BODY)
    part = s3.create_multipart_upload(Bucket=bucket, Key="2")["UploadId"]
    s3.upload_part(Bucket=bucket, Key="2", UploadId=part, PartNumber=1, Body=b"")
    s3.abort_multipart_upload(Bucket=bucket, Key="2", UploadId=part)
    s3.delete_object(Bucket=bucket, Key="größe/1")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_the_other_services_go_through_it_too(client: Clients, table_name: str) -> None:
    table = client("dynamodb")
    table.put_item(TableName=table_name, Item={"stream": {"S": "a"}, "item": {"S": "b"}})
    assert (
        table.query(
            TableName=table_name,
            KeyConditionExpression="#s = :s",
            ExpressionAttributeNames={"#s": "stream"},
            ExpressionAttributeValues={":s": {"S": "a"}},
        )["Count"]
        == 1
    )
    sqs = client("sqs")
    url = sqs.create_queue(QueueName=f"q-{uuid.uuid4()}")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="hello")
    assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "hello"
    events = client("events")
    bus = f"bus-{uuid.uuid4()}"
    events.create_event_bus(Name=bus)
    entry = {"EventBusName": bus, "Source": "tests", "DetailType": "Test", "Detail": "{}"}
    assert events.put_events(Entries=[entry])["FailedEntryCount"] == 0


def test_a_connection_serves_many_requests(faulty: FaultyAws, client: Clients, bucket: str) -> None:
    s3 = client("s3")
    for number in range(20):
        s3.put_object(Bucket=bucket, Key=f"{number}", Body=b"x" * number)
        assert s3.get_object(Bucket=bucket, Key=f"{number}")["Body"].read() == b"x" * number
    assert faulty.counts == {"passed": 40}


@pytest.mark.parametrize("service", ["s3", "dynamodb", "sqs", "events"])
def test_errors_are_those_of_the_service(faulty: FaultyAws, client: Clients, service: str) -> None:
    faulty.faults = Faults(error_rate=1)
    seen, asked = set(), client(service)
    for _ in range(60):
        with pytest.raises(ClientError) as raised:
            ask(service, asked)
        answer = raised.value.response
        seen.add((answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]))
    assert seen == {(500, "InternalError"), (503, "SlowDown"), (429, "ThrottlingException")}


@pytest.mark.parametrize("service", ["s3", "dynamodb", "sqs", "events"])
def test_expired_credentials_are_refused_until_there_are_others(
    faulty: FaultyAws, client: Clients, service: str
) -> None:
    asked = client(service)
    faulty.faults = Faults(expired="another")
    ask(service, asked)
    faulty.faults = Faults(expired="test")
    with pytest.raises(ClientError, match="ExpiredToken"):
        ask(service, asked)
    faulty.faults = Faults()
    ask(service, asked)


def test_an_outage_refuses_connections_and_ends(faulty: FaultyAws, client: Clients) -> None:
    s3 = client("s3")
    ask("s3", s3)
    faulty.faults = Faults(is_out=True)
    for _ in range(3):
        with pytest.raises(EndpointConnectionError):
            ask("s3", s3)
    faulty.faults = Faults()
    ask("s3", s3)


def test_dropped_connections_lose_requests_and_answers(
    faulty: FaultyAws, client: Clients, bucket: str, s3: Any
) -> None:
    faulty.faults = Faults(drop_rate=1)
    asked = client("s3")
    for number in range(20):
        with pytest.raises((BotoCoreError, ClientError)):
            asked.put_object(Bucket=bucket, Key=f"{number}", Body=BODY)
    carried_out = s3.list_objects_v2(Bucket=bucket)["KeyCount"]
    assert 0 < carried_out < 20
    assert faulty.counts == {"dropped": 20}


def test_retries_get_over_what_goes_wrong_now_and_then(faulty: FaultyAws, client: Clients, bucket: str) -> None:
    faulty.faults = Faults(error_rate=0.1, drop_rate=0.1, latency_s=0.002)
    s3 = client("s3", attempts=10)
    for number in range(20):
        s3.put_object(Bucket=bucket, Key=f"{number}", Body=BODY)
        assert s3.head_object(Bucket=bucket, Key=f"{number}")["ContentLength"] == len(BODY)
    assert faulty.counts["refused"] > 0
    assert faulty.counts["dropped"] > 0


def ask(service: str, asked: Any) -> None:
    match service:
        case "s3":
            asked.list_buckets()
        case "dynamodb":
            asked.list_tables()
        case "sqs":
            asked.list_queues()
        case "events":
            asked.list_event_buses()
