"""What EventBridge makes of an announcement, and delivers to SQS."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import boto3
import pytest

from coldstream.archive.envelope import DETAIL_TYPE, LOST_DETAIL_TYPE, SOURCE, source_of
from coldstream.archive.events import detail_of, event_of
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.ingest.bus import EventBridgeBus
from coldstream.manifest.cluster import Cluster
from coldstream.units import Offset
from tests.support.segments import STREAM

SEGMENT = SegmentRolled(STREAM, Offset(0), Offset(40960), 500_000_123, "archive", "staging/заказы", None)
UUID = r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}"


@pytest.fixture
def bus(aws: str, sqs: Any) -> Iterator[tuple[str, str]]:
    """A bus of the test's own, and the queue that the rule of template.yaml fills: name and URL."""
    events = boto3.session.Session().client("events")
    name = f"bus-{uuid4()}"
    queue = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.create_event_bus(Name=name)
    pattern = {"source": [SOURCE, {"prefix": f"{SOURCE}."}], "detail-type": [DETAIL_TYPE, LOST_DETAIL_TYPE]}
    events.put_rule(Name=name, EventBusName=name, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=name, EventBusName=name, Targets=[{"Id": "queue", "Arn": arn}])
    yield name, queue
    events.remove_targets(Rule=name, EventBusName=name, Ids=["queue"])
    events.delete_rule(Name=name, EventBusName=name)
    events.delete_event_bus(Name=name)
    sqs.delete_queue(QueueUrl=queue)


def receive(sqs: Any, queue: str) -> list[str]:
    found = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=2)
    return [message["Body"] for message in found.get("Messages", [])]


def test_an_announcement_arrives_in_the_envelope_of_eventbridge(bus, sqs):
    name, queue = bus
    EventBridgeBus(name).put(source=SOURCE, detail_type=DETAIL_TYPE, detail=detail_of(SEGMENT))
    (body,) = receive(sqs, queue)
    envelope = json.loads(body)
    others = {"version", "id", "detail-type", "source", "time", "region", "resources", "detail"}
    assert envelope.keys() - {"account"} == others
    assert (envelope["version"], envelope["source"], envelope["detail-type"]) == ("0", SOURCE, DETAIL_TYPE)
    assert re.fullmatch(UUID, envelope["id"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", envelope["time"])
    assert (envelope["region"], envelope["resources"]) == (sqs.meta.region_name, [])
    assert event_of(body) == SEGMENT


def test_the_envelope_names_the_account(bus, sqs):
    name, queue = bus
    EventBridgeBus(name).put(source=SOURCE, detail_type=DETAIL_TYPE, detail=detail_of(SEGMENT))
    (body,) = receive(sqs, queue)
    assert re.fullmatch(r"[0-9]{12}", json.loads(body).get("account", ""))


def test_an_announcement_of_a_cluster_arrives_too(bus, sqs):
    name, queue = bus
    segment = replace(SEGMENT, cluster=Cluster("eu-1"), etag='"0a-2"')
    EventBridgeBus(name).put(source=source_of(segment.cluster), detail_type=DETAIL_TYPE, detail=detail_of(segment))
    (body,) = receive(sqs, queue)
    assert event_of(body) == segment


@pytest.mark.parametrize(
    ("source", "detail_type"),
    [("another", DETAIL_TYPE), (f"{SOURCE}s", DETAIL_TYPE), (SOURCE, "Segment Compacted")],
)
def test_an_event_of_anybody_else_does_not_arrive(bus, sqs, source, detail_type):
    name, queue = bus
    EventBridgeBus(name).put(source=source, detail_type=detail_type, detail="{}")
    EventBridgeBus(name).put(source=SOURCE, detail_type=DETAIL_TYPE, detail=detail_of(SEGMENT))
    assert [json.loads(body)["detail-type"] for body in receive(sqs, queue)] == [DETAIL_TYPE]
