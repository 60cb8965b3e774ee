"""What the bucket itself refuses to everybody, and what it expires."""

from __future__ import annotations

from typing import Any

import pytest

from coldstream.manifest.stream import Incarnation
from coldstream.store.keys import Keys
from coldstream.units import Offset
from tests.support.cloudformation import EVERYTHING, Stack
from tests.support.iam import Request, is_denied

INCARNATION = Incarnation("__orders_1763700000000000000")
TLS = {"aws:SecureTransport": "true"}
MAKES_AN_OBJECT = {**TLS, "s3:ObjectCreationOperation": "true"}
MAKES_NONE = {**TLS, "s3:ObjectCreationOperation": "false"}
IF_NONE_MATCH = {"s3:if-none-match": "*"}


def denies(stack: Stack, action: str, key: str, context: dict[str, str]) -> bool:
    statements = stack.properties("BucketPolicy")["PolicyDocument"]["Statement"]
    assert all(statement["Principal"] == "*" for statement in statements)
    return is_denied(statements, Request(action, f"{stack.arn('Bucket')}{key}", context))


def keys(stack: Stack) -> Keys:
    return Keys(stack.parameters["Prefix"])


@pytest.fixture(params=["", EVERYTHING["Prefix"]], ids=["no prefix", "a prefix"])
def prefixed(request: pytest.FixtureRequest) -> Stack:
    return Stack(Prefix=request.param)


@pytest.fixture(params=["fragment", "compacted fragment", "staged segment"])
def key(request: pytest.FixtureRequest, prefixed: Stack) -> str:
    made = {
        "fragment": keys(prefixed).fragment(INCARNATION, Offset(7)),
        "compacted fragment": keys(prefixed).fragment(INCARNATION, Offset(7), 3),
        "staged segment": keys(prefixed).staged(INCARNATION, Offset(7), Offset(9)),
    }
    return f"/{made[request.param]}"


def test_a_put_and_a_completion_that_may_overwrite_are_refused(prefixed: Stack, key: str) -> None:
    assert denies(prefixed, "s3:PutObject", key, MAKES_AN_OBJECT)


def test_a_copy_has_no_such_header_and_is_refused_over_a_fragment(prefixed: Stack, key: str) -> None:
    assert denies(prefixed, "s3:PutObject", key, {**MAKES_AN_OBJECT, "s3:x-amz-copy-source": "theirs/key"})


def test_what_is_put_under_the_condition_that_nothing_is_there_passes(prefixed: Stack, key: str) -> None:
    assert not denies(prefixed, "s3:PutObject", key, MAKES_AN_OBJECT | IF_NONE_MATCH)


def test_an_upload_may_begin_and_get_its_parts(prefixed: Stack, key: str) -> None:
    assert not denies(prefixed, "s3:PutObject", key, MAKES_NONE)


def test_a_part_may_be_copied_from_a_fragment(prefixed: Stack, key: str) -> None:
    assert not denies(prefixed, "s3:PutObject", key, {**MAKES_NONE, "s3:x-amz-copy-source": "ours/fragment"})


def test_a_fragment_may_be_deleted(prefixed: Stack, key: str) -> None:
    assert not denies(prefixed, "s3:DeleteObject", key, TLS)


def test_quarantine_takes_copies(prefixed: Stack) -> None:
    quarantined = f"/{keys(prefixed).quarantined(INCARNATION, Offset(7), 'etag')}"
    assert not denies(prefixed, "s3:PutObject", quarantined, MAKES_AN_OBJECT)


@pytest.mark.parametrize("action", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"])
def test_nothing_is_done_without_tls(prefixed: Stack, key: str, action: str) -> None:
    plain = {**MAKES_AN_OBJECT, **IF_NONE_MATCH, "aws:SecureTransport": "false"}
    assert denies(prefixed, action, key, plain)
    assert not denies(prefixed, action, key, {**plain, **TLS})


def test_the_bucket_is_not_listed_without_tls(stack: Stack) -> None:
    assert denies(stack, "s3:ListBucket", "", {"aws:SecureTransport": "false"})


def test_nobody_else_sees_it(stack: Stack) -> None:
    properties = stack.properties("Bucket")
    assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
    assert len(properties["PublicAccessBlockConfiguration"]) == 4
    assert properties["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]


def test_objects_are_encrypted_by_s3s_key_or_the_customers(stack: Stack, whole: Stack) -> None:
    def encryption(stack: Stack) -> Any:
        (rule,) = stack.properties("Bucket")["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        return rule

    assert encryption(stack) == {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    assert encryption(whole) == {
        "BucketKeyEnabled": True,
        "ServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": EVERYTHING["KmsKeyArn"]},
    }


def test_nothing_expires_but_what_is_staged_long_after_its_dead_letter(prefixed: Stack) -> None:
    rules = prefixed.properties("Bucket")["LifecycleConfiguration"]["Rules"]
    expiring = [rule for rule in rules if set(rule) & {"ExpirationInDays", "ExpirationDate", "Transitions"}]
    (rule,) = expiring
    staged = keys(prefixed).staged(INCARNATION, Offset(0), Offset(1))
    assert rule["Prefix"] == staged[: staged.index(INCARNATION)]
    dead_letter_days = prefixed.properties("DeadLetterQueue")["MessageRetentionPeriod"] / 86_400
    assert rule["ExpirationInDays"] >= dead_letter_days + 1 + 30, "a day of EventBridge's own tries, a month to act"


def rules_of(stack: Stack) -> dict[str, dict[str, Any]]:
    return {rule["Id"]: rule for rule in stack.properties("Bucket")["LifecycleConfiguration"]["Rules"]}


def test_what_is_deleted_can_be_brought_back_for_as_long_as_the_operator_says(prefixed: Stack) -> None:
    assert prefixed.properties("Bucket")["VersioningConfiguration"] == {"Status": "Enabled"}
    rule = rules_of(Stack(KeepDeletedDays="30"))["deleted-objects"]
    assert rule == {
        "Id": "deleted-objects",
        "Status": "Enabled",
        "ExpiredObjectDeleteMarker": True,
        "NoncurrentVersionExpiration": {"NoncurrentDays": "30"},
    }


def test_without_versions_those_that_are_left_of_before_end_too() -> None:
    stack = Stack(KeepDeletedDays="0")
    assert stack.properties("Bucket")["VersioningConfiguration"] == {"Status": "Suspended"}
    assert rules_of(stack)["deleted-objects"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 1}


def test_staged_segments_which_are_deleted_once_they_are_archived_are_kept_for_a_day_alone(prefixed: Stack) -> None:
    rule = rules_of(prefixed)["forgotten-segments"]
    assert rule["Prefix"] == f"{prefixed.parameters['Prefix']}staging/"
    assert rule["NoncurrentVersionExpiration"] == {"NoncurrentDays": 1}


def test_s3_logs_the_requests_to_a_bucket_of_the_operators_and_nowhere_else(stack: Stack, whole: Stack) -> None:
    assert "LoggingConfiguration" not in stack.properties("Bucket")
    assert whole.properties("Bucket")["LoggingConfiguration"] == {
        "DestinationBucketName": EVERYTHING["AccessLogsBucket"],
        "LogFilePrefix": "coldstream/",
    }


@pytest.mark.parametrize("other", ["spark/jobs/data/compact.py", "staging/a/data/b", "elsewhere/data/1.fragment"])
def test_what_is_no_fragment_is_not_taken_for_one(prefixed: Stack, other: str) -> None:
    found = denies(prefixed, "s3:PutObject", f"/{keys(prefixed).prefix}{other}", MAKES_AN_OBJECT)
    assert found == other.startswith("staging/")


def test_unfinished_uploads_end_wherever_they_are(stack: Stack) -> None:
    (rule,) = (
        rule
        for rule in stack.properties("Bucket")["LifecycleConfiguration"]["Rules"]
        if "AbortIncompleteMultipartUpload" in rule
    )
    assert rule.keys() == {"Id", "Status", "AbortIncompleteMultipartUpload"}
    assert rule["Status"] == "Enabled"
    assert rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] == 7
