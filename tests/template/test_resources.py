"""What outlives the stack, and how table, bus and queues are made."""

from __future__ import annotations

from coldstream.archive.envelope import DETAIL_TYPE, LOST_DETAIL_TYPE, SOURCE
from coldstream.store.items import Item
from tests.support.cloudformation import EVERYTHING, Stack
from tests.support.iam import Request, is_allowed, is_denied

STATEFUL = {"AWS::S3::Bucket", "AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::Logs::LogGroup"}
FOURTEEN_DAYS_S = 14 * 86_400


def test_what_holds_something_says_what_becomes_of_it_and_the_archive_survives(whole: Stack) -> None:
    policies = {
        name: {made.get("DeletionPolicy"), made.get("UpdateReplacePolicy")}
        for name, made in whole.resources.items()
        if made["Type"] in STATEFUL
    }
    kept = {name for name, policy in policies.items() if policy == {"Retain"}}
    assert kept == {"Bucket", "Table", "DeadLetterQueue"}
    assert all(policies[name] == {"Delete"} for name in policies.keys() - kept)


def test_the_buckets_policy_stays_with_the_bucket(whole: Stack) -> None:
    policy = whole.resources["BucketPolicy"]
    assert policy["DeletionPolicy"] == policy["UpdateReplacePolicy"] == "Retain"


def test_what_is_kept_has_no_name_that_a_second_stack_would_trip_over(whole: Stack) -> None:
    for name in ("Bucket", "Table", "DeadLetterQueue"):
        assert not {"BucketName", "TableName", "QueueName"} & whole.properties(name).keys()


def test_the_table_has_the_keys_and_the_index_that_the_store_uses(stack: Stack) -> None:
    table = stack.properties("Table")
    hash_key, range_key = Item._hash_keyname, Item._range_keyname
    assert [key["AttributeName"] for key in table["KeySchema"]] == [hash_key, range_key]
    (index,) = table["GlobalSecondaryIndexes"]
    assert index["IndexName"] == Item.by_time.Meta.index_name
    assert [key["AttributeName"] for key in index["KeySchema"]] == [hash_key, "time"]


def test_the_table_is_paid_by_request_and_neither_lost_nor_deleted_by_mistake(stack: Stack, whole: Stack) -> None:
    table = stack.properties("Table")
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["DeletionProtectionEnabled"] is True
    assert "SSESpecification" not in table
    key = {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": EVERYTHING["KmsKeyArn"]}
    assert whole.properties("Table")["SSESpecification"] == key


def test_the_rule_lets_every_event_of_the_agent_through_and_no_other(stack: Stack) -> None:
    rule = stack.properties("SegmentRolledRule")
    assert rule["EventPattern"] == {
        "source": [SOURCE, {"prefix": f"{SOURCE}."}],
        "detail-type": [DETAIL_TYPE, LOST_DETAIL_TYPE],
    }
    assert rule["EventBusName"] == stack.outputs["EventBus"]
    assert rule["State"] == "ENABLED"


def test_an_event_that_the_queue_does_not_get_is_a_dead_letter(stack: Stack) -> None:
    (target,) = stack.properties("SegmentRolledRule")["Targets"]
    assert target["Arn"] == stack.arn("UploadQueue")
    assert target["DeadLetterConfig"]["Arn"] == stack.arn("DeadLetterQueue")


def test_an_event_is_kept_for_as_long_as_queues_can(stack: Stack) -> None:
    for name in ("UploadQueue", "DeadLetterQueue"):
        assert stack.properties(name)["MessageRetentionPeriod"] == FOURTEEN_DAYS_S
        assert stack.properties(name)["SqsManagedSseEnabled"] is True


def test_dead_letters_come_from_the_upload_queue_alone_and_may_go_back_to_it(stack: Stack) -> None:
    redrive = stack.properties("UploadQueue")["RedrivePolicy"]
    assert redrive["deadLetterTargetArn"] == stack.arn("DeadLetterQueue")
    allowed = stack.properties("DeadLetterQueue")["RedriveAllowPolicy"]
    assert allowed == {"redrivePermission": "byQueue", "sourceQueueArns": [stack.arn("UploadQueue")]}


def test_only_the_rule_may_send_to_the_queues_and_only_by_tls(stack: Stack) -> None:
    policy = stack.properties("QueuePolicy")
    statements = policy["PolicyDocument"]["Statement"]
    assert policy["Queues"] == [stack.ref("UploadQueue"), stack.ref("DeadLetterQueue")]
    for name in ("UploadQueue", "DeadLetterQueue"):
        ours = {"aws:SourceArn": stack.arn("SegmentRolledRule"), "aws:SecureTransport": "true"}
        theirs = {**ours, "aws:SourceArn": "arn:aws:events:eu-central-1:123456789012:rule/theirs"}
        assert is_allowed(statements, Request("sqs:SendMessage", stack.arn(name), ours))
        assert not is_allowed(statements, Request("sqs:SendMessage", stack.arn(name), theirs))
        assert not is_allowed(statements, Request("sqs:ReceiveMessage", stack.arn(name), ours))
        plain = {**ours, "aws:SecureTransport": "false"}
        assert is_denied(statements, Request("sqs:SendMessage", stack.arn(name), plain))
    assert [s["Principal"] for s in statements if s["Effect"] == "Allow"] == [{"Service": "events.amazonaws.com"}]
