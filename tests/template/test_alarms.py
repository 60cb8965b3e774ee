"""Alarms and dashboard use metrics that exist, and alarms go somewhere."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from coldstream.store.reads import Operation
from tests.support.cloudformation import ACCOUNT, EVERYTHING, PSEUDO, TEMPLATE, Stack
from tests.support.iam import Request, is_allowed, is_denied

OF_AWS = {
    "AWS/SQS": {
        "ApproximateAgeOfOldestMessage",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesVisible",
    },
    "AWS/Lambda": {"ConcurrentExecutions", "Duration", "Errors", "Throttles"},
    "AWS/ApiGateway": {"4xx", "5xx", "Count"},
    "AWS/DynamoDB": {
        "ConsumedReadCapacityUnits",
        "ConsumedWriteCapacityUnits",
        "SystemErrors",
        "ThrottledRequests",
    },
}

UPKEEP = ("Retention", "Sweep", "Garbage", "Scrub", "Erase")

PACKAGE = TEMPLATE.parent / "layers/coldstream/python/coldstream"
ELSEWHERE = {"resolver": (PACKAGE / "runtime/resolving.py",), "api": (PACKAGE / "api/serving.py",)}
"""Code that counts for a function outside of its directory."""


def emitted() -> set[tuple[str, str]]:
    """Return what the functions count, all in the namespace of their setting: service, name."""
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
    """Yield the metrics of alarms and dashboard: namespace, name, dimension and its value."""
    for alarm in alarms(stack).values():
        for metric in metrics_of(alarm):
            dimension = metric["Dimensions"][0]
            yield metric["Namespace"], metric["MetricName"], dimension["Name"], dimension["Value"]
    for widget in dashboard(stack)["widgets"]:
        for namespace, metric, name, value, *_ in widget["properties"].get("metrics", []):
            yield namespace, metric, name, value


def alarms(stack: Stack) -> dict[str, dict[str, Any]]:
    return stack.of_type("AWS::CloudWatch::Alarm")


def metrics_of(alarm: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the metrics of an alarm, whether on one metric or on an expression."""
    return [metric["MetricStat"]["Metric"] for metric in alarm.get("Metrics", []) if "MetricStat" in metric] or [alarm]


def dashboard(stack: Stack) -> Any:
    return json.loads(stack.properties("Dashboard")["DashboardBody"])


def test_every_metric_is_one_that_the_functions_count_or_aws_does_for_a_resource_of_the_stack(stack: Stack) -> None:
    names = {stack.ref(name) for name in (*stack.of_type("AWS::Serverless::Function"), "ResolverApi", "Table")}
    names |= {stack.ref(name) for name in ("UploadQueue", "DeadLetterQueue", "JobsDeadLetterQueue")}
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


def test_everything_that_loses_or_delays_data_rings_an_alarm(stack: Stack) -> None:
    watched = {
        (metric["MetricName"], metric["Dimensions"][0]["Value"])
        for alarm in alarms(stack).values()
        for metric in metrics_of(alarm)
    }
    upload, resolver, table = (stack.ref(name) for name in ("UploadFunction", "ResolverFunction", "Table"))
    assert watched == {
        ("ApproximateNumberOfMessagesVisible", stack.ref("DeadLetterQueue")),
        ("ApproximateAgeOfOldestMessage", stack.ref("UploadQueue")),
        ("SegmentsQuarantined", "upload"),
        ("SegmentsLost", "upload"),
        ("SegmentsFailed", "upload"),
        ("FragmentsCommitted", "upload"),
        ("Errors", upload),
        ("Throttles", upload),
        ("Failures", "resolver"),
        ("Errors", resolver),
        ("Throttles", resolver),
        ("Failures", "api"),
        ("Errors", stack.ref("ApiFunction")),
        ("SystemErrors", table),
        ("ThrottledRequests", table),
        ("Damages", "scrub"),
        ("ApproximateNumberOfMessagesVisible", stack.ref("JobsDeadLetterQueue")),
        ("JobFailures", "jobs"),
        *(("Errors", stack.ref(f"{name}Function")) for name in ("JobRunner", "JobTick")),
        *(("Errors", stack.ref(f"{name}Function")) for name in UPKEEP),
    }


@pytest.mark.parametrize("name", ["TableErrorsAlarm", "TableThrottlesAlarm"])
def test_every_operation_on_the_manifest_is_watched_and_counts_as_none_where_nothing_is_counted(
    stack: Stack, name: str
) -> None:
    alarm = stack.properties(name)
    watched = [{each["Name"]: each["Value"] for each in metric["Dimensions"]} for metric in metrics_of(alarm)]
    assert {each["Operation"] for each in watched} == {*get_args(Operation), "TransactWriteItems"}
    assert {each["TableName"] for each in watched} == {stack.ref("Table")}
    assert filled(alarm) == {metric["Id"] for metric in alarm["Metrics"] if "MetricStat" in metric}


def filled(alarm: dict[str, Any]) -> set[str]:
    """Return the metrics of an alarm's expression that are 0 if CloudWatch has no data."""
    (expression,) = (metric["Expression"] for metric in alarm["Metrics"] if "Expression" in metric)
    return set(re.findall(r"FILL\((\w+), 0\)", expression))


def test_an_archive_that_gets_nothing_raises_an_alarm_after_as_many_hours_as_the_operator_says() -> None:
    alarm = Stack(QuietHours="5").properties("QuietAlarm")
    (metric,) = (each for each in alarm["Metrics"] if "MetricStat" in each)
    assert (metric["MetricStat"]["Period"], alarm["EvaluationPeriods"]) == (3600, "5")
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanOrEqualToThreshold", 0)
    assert filled(alarm) == {metric["Id"]}


def test_an_archive_that_may_be_quiet_has_no_such_alarm(stack: Stack) -> None:
    without = Stack(QuietHours="0")
    assert alarms(stack).keys() - alarms(without).keys() == {"QuietAlarm"}
    shown = json.loads(without.properties("Dashboard")["DashboardBody"])["widgets"][0]["properties"]["alarms"]
    assert set(shown) == {without.arn(name) for name in alarms(without)}


def test_a_job_of_spark_that_failed_or_ran_out_of_time_is_told_where_alarms_go(whole: Stack) -> None:
    rule = whole.properties("SparkFailuresRule")
    assert rule["EventPattern"] == {
        "source": ["aws.emr-serverless"],
        "detail-type": ["EMR Serverless Job Run State Change"],
        "detail": {"applicationId": [whole.ref("SparkApplication")], "state": ["FAILED", "CANCELLED"]},
    }
    (target,) = rule["Targets"]
    assert (target["Arn"], target["RoleArn"]) == (whole.arn("AlarmTopic"), whole.arn("SparkFailuresRole"))
    told = target["InputTransformer"]
    assert set(re.findall(r"<(\w+)>", told["InputTemplate"])) == told["InputPathsMap"].keys()
    assert isinstance(json.loads(re.sub(r"<\w+>", "x", told["InputTemplate"])), str)


def test_only_alarms_of_the_account_may_publish_and_only_by_tls(stack: Stack) -> None:
    topic, statements = stack.arn("AlarmTopic"), stack.properties("AlarmTopicPolicy")["PolicyDocument"]["Statement"]
    alarm = {"aws:SourceAccount": ACCOUNT, "aws:SourceArn": stack.arn("LossAlarm"), "aws:SecureTransport": "true"}
    assert is_allowed(statements, Request("sns:Publish", topic, alarm))
    assert not is_allowed(statements, Request("sns:Subscribe", topic, alarm))
    assert not is_allowed(statements, Request("sns:Publish", topic, {**alarm, "aws:SourceAccount": "210987654321"}))
    assert is_denied(statements, Request("sns:Publish", topic, {**alarm, "aws:SecureTransport": "false"}))
    allowed = [statement["Principal"] for statement in statements if statement["Effect"] == "Allow"]
    assert allowed == [{"Service": "cloudwatch.amazonaws.com"}]


def test_alarms_are_encrypted_by_the_customers_key(stack: Stack, whole: Stack) -> None:
    assert "KmsMasterKeyId" not in stack.properties("AlarmTopic")
    assert whole.properties("AlarmTopic")["KmsMasterKeyId"] == EVERYTHING["KmsKeyArn"]


def test_an_event_that_failed_once_raises_no_alarm_by_its_age(stack: Stack) -> None:
    threshold = stack.properties("OldestEventAlarm")["Threshold"]
    assert threshold > stack.properties("UploadQueue")["VisibilityTimeout"]


def test_every_alarm_goes_to_the_topic_and_says_what_it_means(stack: Stack) -> None:
    topic = [stack.outputs["AlarmTopic"]]
    for alarm in alarms(stack).values():
        assert alarm["AlarmActions"] == alarm["OKActions"] == topic
        assert alarm["AlarmDescription"]


def test_an_alarm_ends_when_nothing_is_counted_any_more_but_those_that_stand_for_what_still_waits(stack: Stack) -> None:
    missing: dict[str, set[str]] = {}
    for name, alarm in alarms(stack).items():
        missing.setdefault(alarm["TreatMissingData"], set()).add(name)
    of_queues = {name for name, alarm in alarms(stack).items() if alarm.get("Namespace") == "AWS/SQS"}
    assert missing.pop("ignore") == of_queues == {"DeadLettersAlarm", "OldestEventAlarm", "JobDeadLettersAlarm"}
    assert missing.pop("breaching") == {"QuietAlarm"}
    assert missing.keys() == {"notBreaching"}


def test_alarms_are_mailed_to_whom_the_operator_names_and_to_nobody_else(stack: Stack, whole: Stack) -> None:
    assert stack.of_type("AWS::SNS::Subscription") == {}
    (mail,) = whole.of_type("AWS::SNS::Subscription").values()
    assert mail == {"TopicArn": whole.arn("AlarmTopic"), "Protocol": "email", "Endpoint": EVERYTHING["AlarmEmail"]}


def test_the_dashboard_shows_every_alarm_and_its_widgets_do_not_overlap(stack: Stack) -> None:
    widgets = dashboard(stack)["widgets"]
    (shown,) = (widget for widget in widgets if widget["type"] == "alarm")
    assert set(shown["properties"]["alarms"]) == {stack.arn(name) for name in alarms(stack)}
    cells = [
        (x, y)
        for widget in widgets
        for x in range(widget["x"], widget["x"] + widget["width"])
        for y in range(widget["y"], widget["y"] + widget["height"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
