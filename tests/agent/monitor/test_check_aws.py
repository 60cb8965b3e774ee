"""Each right at AWS is tried by itself, and nothing is left behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import boto3
import pytest
from moto import settings as moto_settings

from coldstream.agent.monitor.check import Check, CheckOutcome
from coldstream.agent.monitor.check_aws import check_aws
from coldstream.ingest import bus as bus_module
from coldstream.ingest.bus import EventBridgeBus
from coldstream.store import bucket as bucket_module
from coldstream.store import table as table_module
from coldstream.store.objects import S3Objects

RIGHTS = (
    "s3:ListBucket",
    "s3:ListBucketMultipartUploads",
    "s3:GetObject",
    "s3:PutObject",
    "s3:ListMultipartUploadParts",
    "s3:AbortMultipartUpload",
    "dynamodb:GetItem",
    "dynamodb:Query",
    "events:PutEvents",
)


@pytest.fixture
def archive(moto_endpoint: str, table_name: str, s3_objects: S3Objects) -> dict[str, str]:
    """What COLDSTREAM_* name: a bucket, a table and a bus that are there."""
    bus = f"bus-{uuid4().hex}"
    boto3.client("events").create_event_bus(Name=bus)
    return {
        "COLDSTREAM_BUCKET": s3_objects.bucket,
        "COLDSTREAM_TABLE": table_name,
        "COLDSTREAM_EVENT_BUS": bus,
        "COLDSTREAM_PREFIX": "some/prefix/",
    }


@pytest.fixture
def user(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[tuple[str, ...]], None]]:
    """Makes a user with some rights, whose credentials the SDK finds, of an AWS that looks at them."""
    iam = boto3.client("iam")
    name = f"agent-{uuid4().hex}"
    iam.create_user(UserName=name)

    def with_rights(actions: tuple[str, ...]) -> None:
        statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_user_policy(UserName=name, PolicyName="agent", PolicyDocument=document)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
        monkeypatch.setattr(moto_settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)

    yield with_rights
    monkeypatch.undo()


def by_name(checks: list[Check]) -> dict[str, CheckOutcome]:
    return {check.what: check.outcome for check in checks}


def left_behind(archive: dict[str, str]) -> tuple[Any, ...]:
    s3 = boto3.client("s3")
    items = boto3.client("dynamodb").scan(TableName=archive["COLDSTREAM_TABLE"])["Count"]
    objects = s3.list_objects_v2(Bucket=archive["COLDSTREAM_BUCKET"])["KeyCount"]
    return items, objects, s3.list_multipart_uploads(Bucket=archive["COLDSTREAM_BUCKET"]).get("Uploads", [])


def test_all_rights_are_tried_and_nothing_is_left_behind(archive):
    checks = check_aws(archive)
    assert by_name(checks) == dict.fromkeys(RIGHTS, CheckOutcome.OK)
    assert left_behind(archive) == (0, 0, [])


LOG_RIGHTS = ("s3:PutObject", "s3:GetObject", "s3:DeleteObject")


def test_the_rights_on_a_recovery_log_are_tried_where_there_is_one(archive):
    checks = by_name(check_aws(archive | {"COLDSTREAM_CLUSTER": "north"}, has_recovery_log=True))
    assert checks == dict.fromkeys((*RIGHTS, *(f"{right}, recovery log" for right in LOG_RIGHTS)), CheckOutcome.OK)
    assert left_behind(archive) == (0, 0, [])


def test_a_stack_of_before_the_recovery_log_is_told(archive, user):
    user(("dynamodb:*", "events:*", "s3:ListBucket"))
    checks = {check.what: check for check in check_aws(archive, has_recovery_log=True)}
    for right in LOG_RIGHTS:
        check = checks[f"{right}, recovery log"]
        assert check.outcome is CheckOutcome.FAILED
        assert "up-to-date stack" in str(check.advice)


def test_what_is_tried_is_what_an_agent_of_the_cluster_does(archive, monkeypatch):
    """Its role lets it stage and announce for its cluster alone."""
    sources: list[str] = []
    put = bus_module.EventBridgeBus.check

    def check(self: EventBridgeBus, *, source: str, detail_type: str) -> None:
        sources.append(source)
        put(self, source=source, detail_type=detail_type)

    monkeypatch.setattr(bus_module.EventBridgeBus, "check", check)
    checks = {check.what: check for check in check_aws(archive | {"COLDSTREAM_CLUSTER": "north"})}
    assert "some/prefix/staging/north/__coldstream-agent-check_" in checks["s3:PutObject"].finding
    assert sources == ["coldstream.agent.north"]


@pytest.mark.parametrize(
    "missing",
    [{"s3:GetObject", "dynamodb:Query", "s3:AbortMultipartUpload"}, {"s3:ListBucket", "dynamodb:GetItem"}, set(RIGHTS)],
    ids=["some", "others", "all"],
)
def test_rights_that_are_missing_are_named(archive, user, missing):
    user(tuple(right for right in RIGHTS if right not in missing) or ("s3:Nothing",))
    checks = check_aws(archive)
    wrong = {check.what: check for check in checks if check.outcome is not CheckOutcome.OK}
    assert set(wrong) == missing
    # moto refuses an event by XML, which AWS does not.
    told = {what: check for what, check in wrong.items() if what != "events:PutEvents"}
    assert all("AgentPolicy" in str(check.advice) for check in told.values() if check.outcome is CheckOutcome.FAILED)


def test_what_is_not_there_is_named(archive):
    names = {"COLDSTREAM_BUCKET": "no-such-bucket-here", "COLDSTREAM_TABLE": "no-such-table"}
    wrong = {check.what: check for check in check_aws(archive | names) if check.outcome is CheckOutcome.FAILED}
    assert set(wrong) == {"s3:ListBucket", "dynamodb:GetItem"}
    assert all("stack's output" in str(check.advice) for check in wrong.values())


@pytest.mark.parametrize("missing", ["COLDSTREAM_BUCKET", "COLDSTREAM_TABLE", "COLDSTREAM_EVENT_BUS"])
def test_a_setting_that_is_missing_is_named(archive, missing):
    ((check),) = check_aws({name: value for name, value in archive.items() if name != missing})
    assert check.outcome is CheckOutcome.FAILED
    assert missing in check.finding


def test_a_service_that_does_not_answer_is_not_asked_for_each_right(archive, monkeypatch):
    for module in (bus_module, bucket_module, table_module):
        monkeypatch.setattr(module, "ATTEMPTS", 1, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    checks = check_aws(archive)
    assert by_name(checks) == dict.fromkeys(
        ("s3:ListBucket", "dynamodb:GetItem", "events:PutEvents"), CheckOutcome.FAILED
    )
    assert all("AWS_DEFAULT_REGION" in str(check.advice) for check in checks)
