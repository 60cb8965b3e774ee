"""Alarms and dashboard look at metrics that there are, and alarms go somewhere."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cloudformation import EVERYTHING, PSEUDO, TEMPLATE, Stack

OF_AWS = {
    "AWS/SQS": {
        "ApproximateAgeOfOldestMessage",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesVisible",
    },
    "AWS/Lambda": {"ConcurrentExecutions", "Duration", "Errors", "Throttles"},
    "AWS/ApiGateway": {"4xx", "5xx", "Count"},
    "AWS/DynamoDB": {"ConsumedReadCapacityUnits", "ConsumedWriteCapacityUnits"},
}

ELSEWHERE = {"resolver": (TEMPLATE.parent / "layers/coldstream/python/coldstream/runtime/resolving.py",)}
"""Code of a function that counts, and is not in its directory."""


def emitted() -> set[tuple[str, str]]:
    """Return what the functions count, all in the namespace that they are told: service, name."""
    found = set()
    for path in (TEMPLATE.parent / "functions").glob("*/app.py"):
        code = (path, *ELSEWHERE.get(path.parent.name, ()))
        nodes = (node for part in code for node in ast.walk(ast.parse(part.read_text())))
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        (made,) = (call for call in calls if getattr(call.func, "id", "") == "Metrics")
        given = {keyword.arg: keyword.value for keyword in made.keywords}
        assert ast.unparse(given["namespace"]) == "METRICS_NAMESPACE"
        service = ast.literal_eval(given["service"])
        for call in calls:
            if getattr(call.func, "attr", "") == "add_metric":
                found.add((service, ast.literal_eval(call.args[0])))
    return found


def looked_at(stack: Stack) -> Iterator[tuple[str, str, str, str]]:
    """Yield what alarms and dashboard look at: namespace, name, dimension and its value."""
    for alarm in stack.of_type("AWS::CloudWatch::Alarm").values():
        (dimension,) = alarm["Dimensions"]
        yield alarm["Namespace"], alarm["MetricName"], dimension["Name"], dimension["Value"]
    for widget in dashboard(stack)["widgets"]:
        for namespace, metric, name, value, *_ in widget["properties"].get("metrics", []):
            yield namespace, metric, name, value


def dashboard(stack: Stack) -> Any:
    return json.loads(stack.properties("Dashboard")["DashboardBody"])


def test_every_metric_is_one_that_the_functions_count_or_aws_does_for_a_resource_of_the_stack(stack: Stack) -> None:
    names = {stack.ref(name) for name in ("UploadFunction", "ResolverFunction", "ResolverApi", "Table")}
    names |= {stack.ref("UploadQueue"), stack.ref("DeadLetterQueue")}
    ours = emitted()
    for namespace, metric, dimension, value in looked_at(stack):
        if namespace in OF_AWS:
            assert metric in OF_AWS[namespace]
            assert value in names
        else:
            assert dimension == "service"
            assert (value, metric) in ours
            assert namespace == PSEUDO["AWS::StackName"]


def test_two_stacks_of_an_account_do_not_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PSEUDO, "AWS::StackName", "another")
    stack = Stack(**EVERYTHING)
    assert {namespace for namespace, *_ in looked_at(stack)} - OF_AWS.keys() == {"another"}
    told = stack.document["Globals"]["Function"]["Environment"]["Variables"]["POWERTOOLS_METRICS_NAMESPACE"]
    assert told == {"Ref": "AWS::StackName"}


def test_what_loses_or_delays_data_is_alarmed(stack: Stack) -> None:
    watched = {
        (alarm["MetricName"], alarm["Dimensions"][0]["Value"])
        for alarm in stack.of_type("AWS::CloudWatch::Alarm").values()
    }
    upload, resolver = stack.ref("UploadFunction"), stack.ref("ResolverFunction")
    assert watched == {
        ("ApproximateNumberOfMessagesVisible", stack.ref("DeadLetterQueue")),
        ("ApproximateAgeOfOldestMessage", stack.ref("UploadQueue")),
        ("SegmentsQuarantined", "upload"),
        ("SegmentsLost", "upload"),
        ("SegmentsFailed", "upload"),
        ("Errors", upload),
        ("Throttles", upload),
        ("Failures", "resolver"),
        ("Errors", resolver),
        ("Throttles", resolver),
    }


def test_an_event_that_failed_once_raises_no_alarm_by_its_age(stack: Stack) -> None:
    threshold = stack.properties("OldestEventAlarm")["Threshold"]
    assert threshold > stack.properties("UploadQueue")["VisibilityTimeout"]


def test_every_alarm_goes_to_the_topic_says_what_it_means_and_ends_without_data(stack: Stack) -> None:
    topic = [stack.outputs["AlarmTopic"]]
    for alarm in stack.of_type("AWS::CloudWatch::Alarm").values():
        assert alarm["AlarmActions"] == alarm["OKActions"] == topic
        assert alarm["AlarmDescription"]
        assert alarm["TreatMissingData"] == "notBreaching"


def test_alarms_are_mailed_to_whom_the_operator_names_and_to_nobody_else(stack: Stack, whole: Stack) -> None:
    assert stack.of_type("AWS::SNS::Subscription") == {}
    (mail,) = whole.of_type("AWS::SNS::Subscription").values()
    assert mail == {"TopicArn": whole.arn("AlarmTopic"), "Protocol": "email", "Endpoint": EVERYTHING["AlarmEmail"]}


def test_the_dashboard_shows_every_alarm_and_its_widgets_do_not_overlap(stack: Stack) -> None:
    widgets = dashboard(stack)["widgets"]
    (alarms,) = (widget for widget in widgets if widget["type"] == "alarm")
    assert set(alarms["properties"]["alarms"]) == {stack.arn(name) for name in stack.of_type("AWS::CloudWatch::Alarm")}
    cells = [
        (x, y)
        for widget in widgets
        for x in range(widget["x"], widget["x"] + widget["width"])
        for y in range(widget["y"], widget["y"] + widget["height"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
