"""The sample events have the form that AWS sends, and content that the code understands."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

from coldstream.archive.events import event_of
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.local.function_protocol import QueueConfig
from coldstream.local.http_api import Request, http_event
from coldstream.local.poller import sqs_event
from coldstream.store.keys import Keys
from tests.support.cloudformation import TEMPLATE, Stack

ROOT = TEMPLATE.parent


def test_the_sample_of_an_upload_event_is_an_event_that_announces_a_segment() -> None:
    (record,) = json.loads((ROOT / "events/upload.json").read_text())["Records"]
    segment = event_of(record["body"])
    assert isinstance(segment, SegmentRolled)
    stream = segment.stream
    assert segment.staged_key == Keys().staged(stream.incarnation, segment.first_offset, segment.next_offset)
    of_the_form_that_the_poller_makes(record)


def test_the_sample_of_a_loss_is_an_event_that_announces_one() -> None:
    (record,) = json.loads((ROOT / "events/lost.json").read_text())["Records"]
    assert isinstance(event_of(record["body"]), SegmentLost)
    of_the_form_that_the_poller_makes(record)


def of_the_form_that_the_poller_makes(record: dict[str, Any]) -> None:
    message = {"MessageId": "1", "ReceiptHandle": "r", "Body": "b", "MD5OfBody": "m", "Attributes": {}}
    (ours,) = sqs_event([message], QueueConfig("url", record["eventSourceARN"], 1, reports_failures=True))["Records"]
    assert set(record) == set(ours)
    assert record["awsRegion"] == ours["awsRegion"]


def test_the_sample_of_a_resolver_event_is_of_the_form_that_the_local_api_makes() -> None:
    event = json.loads((ROOT / "events/resolver.json").read_text())
    target = f"{event['rawPath']}?{event['rawQueryString']}"
    ours = http_event(Request("GET", target, tuple(event["headers"].items()), b"", "192.0.2.1"))
    assert set(event) == set(ours)
    assert set(event["requestContext"]) == {*ours["requestContext"], "authorizer"}  # which the local API has none of
    assert event["queryStringParameters"] == ours["queryStringParameters"] == dict(parse_qsl(event["rawQueryString"]))


def test_the_sample_of_a_scheduled_event_is_what_the_scheduler_sends_where_no_input_is_declared() -> None:
    event = json.loads((ROOT / "events/scheduled.json").read_text())
    assert (event["source"], event["detail-type"], event["detail"]) == ("aws.scheduler", "Scheduled Event", "{}")
    for name, function in Stack().of_type("AWS::Serverless::Function").items():
        schedules = [one for one in function["Events"].values() if one["Type"] == "ScheduleV2"]
        assert not any("Input" in one["Properties"] for one in schedules), name
