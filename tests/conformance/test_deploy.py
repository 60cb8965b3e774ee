"""What `sam deploy` creates on LocalStack is what template.yaml says, as far as its open edition goes."""

from __future__ import annotations

import json
import os
from typing import Any

import boto3
import pytest

from coldstream.local.deployment import table_parameters
from coldstream.local.template import load_template
from tests.support.aws import TEMPLATE, cloud
from tests.support.fixtures import do_without
from tests.support.sam import find_sam
from tests.support.sam_deploy import IGNORED, LEFT_OUT, Deployed, sam_deploy

pytestmark = pytest.mark.skipif(cloud() != "localstack", reason="runs where COLDSTREAM_CONFORMANCE is localstack")


@pytest.fixture(scope="module")
def deployed(aws: str, tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    if find_sam() is None:
        do_without("SAM CLI", "make sam")
    return sam_deploy(tmp_path_factory.mktemp("deploy"), os.environ)


def client(service: str) -> Any:
    return boto3.session.Session().client(service)


def attributes_of(deployed: Deployed, queue: str) -> dict[str, Any]:
    found = client("sqs").get_queue_attributes(QueueUrl=deployed.id(queue), AttributeNames=["All"])
    return found["Attributes"]


def test_everything_is_created_but_what_is_named(deployed):
    wanted = {name: made["Type"] for name, made in deployed.template.resources.items()}
    created = {name for name, status in deployed.statuses.items() if status == "CREATE_COMPLETE"}
    layers = {name for name, kind in wanted.items() if kind == "AWS::Serverless::LayerVersion"}
    assert {name for name, kind in wanted.items() if kind not in LEFT_OUT} - layers <= created
    assert "AWS::Lambda::LayerVersion" in deployed.types.values()
    assert {deployed.id(name) for name, kind in wanted.items() if kind in IGNORED} == {"unknown"}


def test_the_bucket_is_private_encrypted_and_owned(deployed, s3):
    bucket = deployed.id("Bucket")
    block = s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"]
    assert block == deployed.expected("Bucket", "PublicAccessBlockConfiguration")
    (rule,) = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
    owner = s3.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"]["Rules"]
    assert owner == deployed.expected("Bucket", "OwnershipControls", "Rules")


def test_the_bucket_keeps_versions(deployed, s3):
    assert s3.get_bucket_versioning(Bucket=deployed.id("Bucket"))["Status"] == "Enabled"


def test_the_bucket_forgets_what_nobody_comes_for(deployed, s3):
    rules = s3.get_bucket_lifecycle_configuration(Bucket=deployed.id("Bucket"))["Rules"]
    found = {rule["ID"]: (rule.get("Expiration"), rule.get("AbortIncompleteMultipartUpload")) for rule in rules}
    wanted = {
        rule["Id"]: (
            {"Days": rule["ExpirationInDays"]} if "ExpirationInDays" in rule else None,
            rule.get("AbortIncompleteMultipartUpload"),
        )
        for rule in deployed.expected("Bucket", "LifecycleConfiguration", "Rules")
    }
    assert found == wanted


def test_the_buckets_policy_is_the_templates(deployed, s3):
    policy = json.loads(s3.get_bucket_policy(Bucket=deployed.id("Bucket"))["Policy"])
    assert policy == deployed.expected("BucketPolicy", "PolicyDocument")


def test_the_queue_gives_up_into_the_dead_letter_queue(deployed):
    found = attributes_of(deployed, "UploadQueue")
    assert json.loads(found["RedrivePolicy"]) == deployed.expected("UploadQueue", "RedrivePolicy")
    allowed = json.loads(attributes_of(deployed, "DeadLetterQueue")["RedriveAllowPolicy"])
    assert allowed == deployed.expected("DeadLetterQueue", "RedriveAllowPolicy")


@pytest.mark.parametrize("queue", ["UploadQueue", "DeadLetterQueue"])
def test_the_queues_are_the_templates(deployed, queue):
    wanted, found = deployed.template.properties(queue), attributes_of(deployed, queue)
    for name in ("VisibilityTimeout", "MessageRetentionPeriod"):
        if name in wanted:
            assert int(found[name]) == wanted[name]
    assert found["SqsManagedSseEnabled"] == str(wanted["SqsManagedSseEnabled"]).lower()
    assert json.loads(found["Policy"]) == deployed.expected("QueuePolicy", "PolicyDocument")


def test_the_rule_sends_announcements_to_the_queue(deployed):
    events, bus, rule = client("events"), deployed.id("EventBus"), deployed.name("SegmentRolledRule")
    found = events.describe_rule(Name=rule, EventBusName=bus)
    assert json.loads(found["EventPattern"]) == deployed.expected("SegmentRolledRule", "EventPattern")
    assert found["State"] == "ENABLED"
    targets = events.list_targets_by_rule(Rule=rule, EventBusName=bus)["Targets"]
    assert targets == deployed.expected("SegmentRolledRule", "Targets")


@pytest.mark.parametrize("role", ["UploadRole", "ResolverRole"])
def test_the_roles_are_for_lambda_alone(deployed, role):
    found = client("iam").get_role(RoleName=deployed.id(role))["Role"]
    assert found["AssumeRolePolicyDocument"] == deployed.expected(role, "AssumeRolePolicyDocument")
    names = client("iam").list_role_policies(RoleName=deployed.id(role))["PolicyNames"]
    assert names == [policy["PolicyName"] for policy in deployed.expected(role, "Policies")]


def test_logs_are_kept_as_long_as_the_template_says(deployed):
    groups = client("logs").describe_log_groups()["logGroups"]
    found = {group["logGroupName"]: group.get("retentionInDays") for group in groups}
    for name, wanted in deployed.template.of_type("AWS::Logs::LogGroup").items():
        assert found[deployed.id(name)] == int(wanted["RetentionInDays"]), name


def test_every_alarm_watches_what_it_should(deployed):
    alarms = {alarm["AlarmName"]: alarm for alarm in client("cloudwatch").describe_alarms()["MetricAlarms"]}
    wanted = deployed.template.of_type("AWS::CloudWatch::Alarm")
    assert wanted
    for name in wanted:
        found = alarms[deployed.id(name)]
        assert (found["Threshold"], found["EvaluationPeriods"]) == (
            wanted[name]["Threshold"],
            int(wanted[name]["EvaluationPeriods"]),
        )
        assert found.get("MetricName") == wanted[name].get("MetricName")


def test_alarms_may_publish(deployed):
    found = client("sns").get_topic_attributes(TopicArn=deployed.id("AlarmTopic"))["Attributes"]
    policy = deployed.expected("AlarmTopicPolicy", "PolicyDocument")
    assert json.loads(found["Policy"])["Statement"] == policy["Statement"]


def test_the_table_is_the_templates(table_name, dynamodb):
    found = dynamodb.describe_table(TableName=table_name)["Table"]
    wanted = table_parameters(load_template(TEMPLATE).body["Resources"]["Table"])
    assert found["KeySchema"] == wanted["KeySchema"]
    (index,) = found["GlobalSecondaryIndexes"]
    assert {key: index[key] for key in ("IndexName", "KeySchema", "Projection")} == wanted["GlobalSecondaryIndexes"][0]
    assert found["BillingModeSummary"]["BillingMode"] == wanted["BillingMode"]
    names = sorted(found["AttributeDefinitions"], key=lambda each: each["AttributeName"])
    assert names == sorted(wanted["AttributeDefinitions"], key=lambda each: each["AttributeName"])
