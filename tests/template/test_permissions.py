"""Who may do what, and nothing else: every action of the services, on every resource, by the template's policies.

In each table a resource that is not listed may not be touched, nor a listed one by an action that is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import botocore.session
import pytest

from coldstream.archive.envelope import source_of
from coldstream.jobs.job import JOB_KEYS, JOBS, OPEN_JOBS
from coldstream.jobs.log_lines import partition_of
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.stream import Incarnation
from coldstream.store.keys import Keys
from coldstream.units import Offset, TimestampMs
from tests.support.cloudformation import ACCOUNT, DELETING, EVERYTHING, PSEUDO, REGION, Stack
from tests.support.iam import Request, is_allowed

INCARNATION = Incarnation("__orders_1763700000000000000")
KEYS = Keys(EVERYTHING["Prefix"])
HERE = f"{REGION}:{ACCOUNT}"
UPKEEP = ("Retention", "Sweep", "Garbage", "Scrub", "Erase")
JOB_FUNCTIONS = ("JobRunner", "JobTick")
S3_ACTIONS = [
    "AbortMultipartUpload",
    "BypassGovernanceRetention",
    "CreateBucket",
    "DeleteBucket",
    "DeleteBucketPolicy",
    "DeleteObject",
    "DeleteObjectTagging",
    "DeleteObjectVersion",
    "GetBucketLocation",
    "GetBucketObjectLockConfiguration",
    "GetBucketPolicy",
    "GetBucketVersioning",
    "GetLifecycleConfiguration",
    "GetObject",
    "GetObjectAcl",
    "GetObjectAttributes",
    "GetObjectLegalHold",
    "GetObjectTagging",
    "GetObjectVersion",
    "GetObjectVersionForReplication",
    "ListAllMyBuckets",
    "ListBucket",
    "ListBucketMultipartUploads",
    "ListBucketVersions",
    "ListMultipartUploadParts",
    "PutBucketAcl",
    "PutBucketPolicy",
    "PutBucketLogging",
    "PutBucketPublicAccessBlock",
    "PutBucketVersioning",
    "PutEncryptionConfiguration",
    "PutLifecycleConfiguration",
    "PutObject",
    "PutObjectAcl",
    "PutObjectLegalHold",
    "PutObjectRetention",
    "PutObjectTagging",
    "PutReplicationConfiguration",
    "ReplicateDelete",
    "ReplicateObject",
    "RestoreObject",
]
OTHER_NAMES = {
    "dynamodb": ["ConditionCheckItem", "PartiQLSelect"],
    "execute-api": ["Invoke", "ManageConnections"],
    "iam": ["PassRole"],
    "lambda": ["InvokeFunction"],
}
"""Actions of IAM whose names are not those of API operations."""

OBJECT_WRITES = {
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
}
TABLE_READS = {"dynamodb:GetItem", "dynamodb:Query"}
TABLE_WRITES = {"dynamodb:ConditionCheckItem", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"}
OWN_LOG = {"logs:CreateLogStream", "logs:PutLogEvents"}
TRACES = {"xray:PutTraceSegments", "xray:PutTelemetryRecords"}
WHOLE_TABLE = TABLE_READS | TABLE_WRITES
ENCRYPT = {"kms:GenerateDataKey", "kms:Decrypt"}
OF_EVERY_FUNCTION = {"traces": TRACES, "key by way of S3": ENCRYPT, "key by way of DynamoDB": ENCRYPT}
BUCKET_SETTINGS = {"s3:GetBucketVersioning", "s3:GetBucketObjectLockConfiguration", "s3:GetLifecycleConfiguration"}
LISTS = {"s3:ListBucket", "s3:ListBucketVersions", "s3:ListBucketMultipartUploads"} | BUCKET_SETTINGS
OF_GARBAGE = {"s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"}


def of_each(names: str, actions: set[str]) -> dict[str, set[str]]:
    """Return a row for each of these resources."""
    return dict.fromkeys(names.split(", "), actions)


FRAGMENTS = "fragment, compacted fragment"
SPANS = "object of a recovery log, object of a cluster's recovery log"
OF_ERASURES = {"s3:GetObject", "s3:DeleteObjectVersion"}
STAGED = "staged segment, staged segment of a cluster"
QUARANTINED = "segment in quarantine, reason of a quarantine"
CONTROL = "control object, floor, loss"
OF_JOBS = "jobs, log of a job"

MAY: Mapping[str, Mapping[str, set[str]]] = {
    "UploadRole": {
        "bucket": {"s3:ListBucket"},
        "staged segment": {"s3:GetObject", "s3:DeleteObject"},
        "staged segment of a cluster": {"s3:GetObject", "s3:DeleteObject"},
        "fragment": {"s3:GetObject", "s3:PutObject"},
        "compacted fragment": {"s3:GetObject", "s3:PutObject"},
        **of_each(QUARANTINED, {"s3:PutObject", "s3:DeleteObject"}),
        **of_each(f"{CONTROL}, binding to a cluster", {"s3:PutObject"}),
        "table": WHOLE_TABLE,
        "cursors": WHOLE_TABLE,
        "queue": {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"},
        "log of uploads": OWN_LOG,
        "traces": TRACES,
        "key by way of S3": ENCRYPT,
        "key by way of DynamoDB": ENCRYPT,
    },
    "ResolverRole": {
        "fragment": {"s3:GetObject"},
        "compacted fragment": {"s3:GetObject"},
        "table": TABLE_READS,
        "cursors": TABLE_READS,
        "index by time": TABLE_READS,
        "log of the resolver": OWN_LOG,
        "traces": TRACES,
        "key by way of S3": {"kms:Decrypt"},
        "key by way of DynamoDB": {"kms:Decrypt"},
    },
    "AgentPolicy": {
        "bucket": {"s3:ListBucket", "s3:ListBucketMultipartUploads"},
        "staged segment": {
            "s3:PutObject",
            "s3:GetObject",
            "s3:AbortMultipartUpload",
            "s3:ListMultipartUploadParts",
        },
        "object of a recovery log": {"s3:PutObject", "s3:GetObject", "s3:DeleteObject"},
        "table": TABLE_READS,
        "cursors": TABLE_READS,
        "event bus, as an agent of no cluster": {"events:PutEvents"},
        "key by way of S3": ENCRYPT,
        "key by way of DynamoDB": ENCRYPT,
    },
    "ClusterAgentPolicy": {
        "bucket": {"s3:ListBucket", "s3:ListBucketMultipartUploads"},
        "table": TABLE_READS,
        "cursors": TABLE_READS,
        "key by way of S3": ENCRYPT,
        "key by way of DynamoDB": ENCRYPT,
    },
    "QueueArchivePolicy": {
        **of_each(FRAGMENTS, {"s3:GetObject"}),
        "staged segment": {"s3:DeleteObject"},
        "states of queues": {"dynamodb:PutItem"},
    },
    "ApiRole": {
        **of_each(FRAGMENTS, {"s3:GetObject"}),
        **of_each("table, cursors", TABLE_READS | {"dynamodb:BatchGetItem"}),
        "index by time": TABLE_READS | {"dynamodb:BatchGetItem"},
        **of_each(
            f"keys of jobs, {OF_JOBS}",
            TABLE_READS | {"dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:DeleteItem"},
        ),
        "log of the API": OWN_LOG,
        "traces": TRACES,
        "key by way of S3": {"kms:Decrypt"},
        "key by way of DynamoDB": {"kms:Decrypt"},
    },
    "ClientPolicy": of_each("GET of the API, GET of a view of a stream", {"execute-api:Invoke"}),
    "OperatorPolicy": of_each("GET of jobs, POST to a job", {"execute-api:Invoke"}),
    "SparkJobRole": {
        "bucket": LISTS,
        "script": {"s3:GetObject"},
        "script in a directory data": {"s3:GetObject"},
        **of_each(FRAGMENTS, OBJECT_WRITES),
        **of_each(f"{STAGED}, {QUARANTINED}", OBJECT_WRITES - {"s3:PutObject"}),
        **of_each(SPANS, {"s3:GetObject"}),
        **of_each(CONTROL, {"s3:GetObject", "s3:PutObject"}),
        "object of a write-ahead log": {"s3:GetObject", "s3:PutObject", "s3:DeleteObject"},
        **of_each("grant in the bucket, binding to a cluster, policy of retention, shard map", {"s3:GetObject"}),
        "bucket of tables": {"s3:ListBucket"},
        "file of a table": OBJECT_WRITES,
        **of_each("table, cursors, table to rebuild into", WHOLE_TABLE),
        "index by time": TABLE_READS,
        "log of Spark": OWN_LOG | {"logs:DescribeLogStreams"},
        "another log": {"logs:DescribeLogGroups"},
        **of_each(
            ", ".join(f"log of {name}" for name in (*UPKEEP, *JOB_FUNCTIONS, "uploads", "the resolver", "the API")),
            {"logs:DescribeLogGroups"},
        ),
        "key by way of S3": ENCRYPT,
        "key by way of DynamoDB": ENCRYPT,
    },
    "RetentionRole": {
        "bucket": {"s3:ListBucket"} | BUCKET_SETTINGS,
        **of_each(FRAGMENTS, {"s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"}),
        **of_each(CONTROL, {"s3:PutObject"}),
        **of_each("table, cursors", WHOLE_TABLE),
        "log of Retention": OWN_LOG,
        **OF_EVERY_FUNCTION,
    },
    "SweepRole": {
        "bucket": LISTS,
        **of_each(
            FRAGMENTS,
            {
                "s3:DeleteObject",
                "s3:DeleteObjectVersion",
                "s3:GetObjectLegalHold",
                "s3:PutObjectLegalHold",
                "s3:AbortMultipartUpload",
            },
        ),
        **of_each(f"{STAGED}, {QUARANTINED}", {"s3:DeleteObjectVersion", "s3:AbortMultipartUpload"}),
        **of_each(SPANS, {"s3:GetObject"}),
        **of_each("control object, floor", {"s3:GetObject", "s3:PutObject"}),
        "loss": {"s3:GetObject", "s3:PutObject", "s3:DeleteObjectVersion"},
        **of_each("table, cursors", WHOLE_TABLE),
        "log of Sweep": OWN_LOG,
        **OF_EVERY_FUNCTION,
    },
    "GarbageRole": {
        "bucket": LISTS - {"s3:ListBucketVersions"},
        **of_each(f"{FRAGMENTS}, {QUARANTINED}", OF_GARBAGE),
        **of_each(STAGED, OF_GARBAGE | {"s3:GetObject"}),
        "object of a write-ahead log": {"s3:GetObject", "s3:PutObject", "s3:DeleteObject"},
        **of_each("control object, loss", {"s3:GetObject"}),
        "floor": {"s3:GetObject", "s3:PutObject"},
        "table": TABLE_READS | {"dynamodb:PutItem"},
        "cursors": TABLE_READS | {"dynamodb:PutItem", "dynamodb:DeleteItem"},
        "log of Garbage": OWN_LOG,
        **OF_EVERY_FUNCTION,
    },
    "ScrubRole": {
        "bucket": {"s3:ListBucket"},
        **of_each(f"{FRAGMENTS}, {QUARANTINED}, {CONTROL}", {"s3:GetObject"}),
        **of_each("binding to a cluster, shard map", {"s3:GetObject"}),
        "table": TABLE_READS,
        "index by time": TABLE_READS,
        "cursors": TABLE_READS | {"dynamodb:PutItem"},
        "log of Scrub": OWN_LOG,
        **OF_EVERY_FUNCTION,
    },
    "EraseRole": {
        "bucket": {"s3:ListBucket", "s3:ListBucketVersions"} | BUCKET_SETTINGS,
        **of_each(FRAGMENTS, {"s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"}),
        **of_each(SPANS, OF_ERASURES),
        **of_each(CONTROL, {"s3:GetObject", "s3:PutObject"}),
        **of_each("table, cursors", WHOLE_TABLE),
        "log of Erase": OWN_LOG,
        **OF_EVERY_FUNCTION,
    },
    "JobRunnerRole": {
        "bucket": LISTS,
        **of_each(
            FRAGMENTS,
            {"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:DeleteObjectVersion", "s3:AbortMultipartUpload"},
        ),
        **of_each(
            f"{STAGED}, {QUARANTINED}",
            {"s3:GetObject", "s3:DeleteObject", "s3:DeleteObjectVersion", "s3:AbortMultipartUpload"},
        ),
        **of_each(SPANS, OF_ERASURES),
        **of_each(CONTROL, {"s3:GetObject", "s3:PutObject"}),
        "binding to a cluster": {"s3:GetObject"},
        "shard map": {"s3:GetObject", "s3:PutObject"},
        **of_each("table, cursors", WHOLE_TABLE),
        "index by time": TABLE_READS,
        "queue of jobs": {
            "sqs:ReceiveMessage",
            "sqs:DeleteMessage",
            "sqs:GetQueueAttributes",
            "sqs:SendMessage",
        },
        "log of JobRunner": OWN_LOG,
        **OF_EVERY_FUNCTION,
    },
    "JobTickRole": {
        "bucket": {"s3:ListBucket"},
        **of_each("table, states of queues", TABLE_READS),
        **of_each(f"cursors, {OF_JOBS}", TABLE_READS | {"dynamodb:PutItem", "dynamodb:DeleteItem"}),
        "queue of jobs": {"sqs:SendMessage", "sqs:GetQueueAttributes"},
        "application of Spark": {"emr-serverless:StartJobRun"},
        "run of Spark": {"emr-serverless:GetJobRun", "emr-serverless:CancelJobRun", "emr-serverless:TagResource"},
        "role of Spark, for EMR": {"iam:PassRole"},
        "log of JobTick": OWN_LOG,
        "traces": TRACES,
        "key by way of DynamoDB": {"kms:Decrypt"},
    },
    "ScheduleRole": {f"function of {name}": {"lambda:InvokeFunction"} for name in (*UPKEEP, "JobTick")},
    "SparkFailuresRole": {"alarm topic": {"sns:Publish"}, "key by way of SNS": ENCRYPT},
}
MAY["SparkJobRole"]["log of Spark"].add("logs:DescribeLogGroups")
MAY = {
    principal: {**of_each(f"states of queues, keys of jobs, {OF_JOBS}", may["table"]), **may} if "table" in may else may
    for principal, may in MAY.items()
}


@cache
def everything() -> Stack:
    return Stack(**EVERYTHING)


@cache
def actions(service: str) -> tuple[str, ...]:
    """Return every action of a service."""
    if service == "s3":
        names = S3_ACTIONS
    elif service == "execute-api":
        names = []
    else:
        names = botocore.session.get_session().get_service_model(service).operation_names
    return tuple(f"{service}:{name}" for name in [*names, *OTHER_NAMES.get(service, ())])


def staged_by(cluster: str) -> str:
    """Return a key at which agents of a cluster stage."""
    return replace(KEYS, cluster=Cluster(cluster)).staged(INCARNATION, Offset(0), Offset(9))


def sent_as(*clusters: str) -> dict[str, str | list[str]]:
    """Return what AWS decides on a PutEvents with events of these clusters."""
    return {"events:source": [source_of(Cluster(cluster)) for cluster in clusters]}


def passed_to(service: str) -> dict[str, str | list[str]]:
    """Return what AWS decides on when a role is passed to a service."""
    return {"iam:PassedToService": f"{service}.amazonaws.com"}


def resources() -> dict[str, Request]:
    """Return every resource, ours and others', each as a request without its action."""
    stack = everything()
    bucket, table = stack.arn("Bucket"), stack.arn("Table")
    key, api = EVERYTHING["KmsKeyArn"], stack.ref("ResolverApi")
    staged, quarantined = (
        KEYS.staged(INCARNATION, Offset(0), Offset(9)),
        KEYS.quarantined(INCARNATION, Offset(0), "etag"),
    )

    control = f"{KEYS.fragment(INCARNATION, Offset(0)).partition('/data/')[0]}/control/stream.json"

    def through(service: str) -> dict[str, str | list[str]]:
        return {"kms:ViaService": f"{service}.{REGION}.amazonaws.com"}

    return {
        "bucket": Request("s3", bucket),
        "fragment": Request("s3", f"{bucket}/{KEYS.fragment(INCARNATION, Offset(0))}"),
        "compacted fragment": Request("s3", f"{bucket}/{KEYS.fragment(INCARNATION, Offset(0), 7)}"),
        "staged segment": Request("s3", f"{bucket}/{staged}"),
        "staged segment of a cluster": Request("s3", f"{bucket}/{staged_by('eu')}"),
        "object of a recovery log": Request("s3", f"{bucket}/{KEYS.span('node-1', TimestampMs(7))}"),
        "object of a cluster's recovery log": Request(
            "s3", f"{bucket}/{replace(KEYS, cluster=Cluster('eu')).span('node-1', TimestampMs(7))}"
        ),
        "segment in quarantine": Request("s3", f"{bucket}/{quarantined}"),
        "reason of a quarantine": Request("s3", f"{bucket}/{quarantined}.json"),
        "object of a write-ahead log": Request("s3", f"{bucket}/{KEYS.wal_object('writer', 1, 7)}"),
        "script": Request("s3", f"{bucket}/{KEYS.prefix}spark/compact.py"),
        "script in a directory data": Request("s3", f"{bucket}/{KEYS.prefix}spark/jobs/data/compact.py"),
        "object in a directory data": Request("s3", f"{bucket}/{KEYS.prefix}elsewhere/data/0.fragment"),
        "fragment of another prefix": Request("s3", f"{bucket}/{Keys('theirs/').fragment(INCARNATION, Offset(0))}"),
        "staged segment of another prefix": Request("s3", f"{bucket}/theirs/{staged}"),
        "another object": Request("s3", f"{bucket}/{KEYS.prefix}elsewhere"),
        "bucket of tables": Request("s3", f"arn:aws:s3:::{EVERYTHING['SparkTablesBucket']}"),
        "file of a table": Request("s3", f"arn:aws:s3:::{EVERYTHING['SparkTablesBucket']}/orders/part-0.parquet"),
        "another bucket": Request("s3", "arn:aws:s3:::theirs"),
        "fragment of another bucket": Request("s3", f"arn:aws:s3:::theirs/{KEYS.fragment(INCARNATION, Offset(0))}"),
        "control object": Request("s3", f"{bucket}/{control}"),
        "grant in the bucket": Request("s3", f"{bucket}/{KEYS.archive_control}grants/{'0' * 64}.json"),
        "binding to a cluster": Request("s3", f"{bucket}/{KEYS.cluster_note('/', 'orders')}"),
        "shard map": Request("s3", f"{bucket}/{KEYS.shard_note('/', 'orders', 1)}"),
        "policy of retention": Request("s3", f"{bucket}/{KEYS.policy_note('all')}"),
        "floor": Request("s3", f"{bucket}/{KEYS.floor_note(INCARNATION, 9)}"),
        "loss": Request("s3", f"{bucket}/{KEYS.loss_note(INCARNATION, Offset(0), Offset(9))}"),
        "table": Request("dynamodb", table, {"dynamodb:LeadingKeys": [INCARNATION]}),
        "cursors": Request("dynamodb", table, {"dynamodb:LeadingKeys": ["#cursors"]}),
        "states of queues": Request("dynamodb", table, {"dynamodb:LeadingKeys": ["#queue-archives"]}),
        "jobs": Request("dynamodb", table, {"dynamodb:LeadingKeys": [JOBS, OPEN_JOBS]}),
        "keys of jobs": Request("dynamodb", table, {"dynamodb:LeadingKeys": [JOB_KEYS]}),
        "log of a job": Request("dynamodb", table, {"dynamodb:LeadingKeys": [partition_of("0")]}),
        "index by time": Request("dynamodb", f"{table}/index/by-time"),
        "stream of the table": Request("dynamodb", f"{table}/stream/2026-11-21T00:00:00.000"),
        "table to rebuild into": Request(
            "dynamodb", f"arn:aws:dynamodb:{HERE}:table/{PSEUDO['AWS::StackName']}-rebuilt-1"
        ),
        "another table": Request("dynamodb", f"arn:aws:dynamodb:{HERE}:table/theirs"),
        "event bus": Request("events", stack.arn("EventBus")),
        "event bus, as an agent of no cluster": Request("events", stack.arn("EventBus"), sent_as("")),
        "event bus, as an agent of a cluster": Request("events", stack.arn("EventBus"), sent_as("eu")),
        "rule": Request("events", stack.arn("SegmentRolledRule")),
        "default event bus": Request("events", f"arn:aws:events:{HERE}:event-bus/default"),
        "queue": Request("sqs", stack.arn("UploadQueue")),
        "dead-letter queue": Request("sqs", stack.arn("DeadLetterQueue")),
        "queue of jobs": Request("sqs", stack.arn("JobsQueue")),
        "dead-letter queue of jobs": Request("sqs", stack.arn("JobsDeadLetterQueue")),
        "another queue": Request("sqs", f"arn:aws:sqs:{HERE}:theirs"),
        "log of uploads": Request("logs", stack.arn("UploadLogs")),
        "log of the resolver": Request("logs", stack.arn("ResolverLogs")),
        "log of the API": Request("logs", stack.arn("ApiFunctionLogs")),
        "log of Spark": Request("logs", stack.arn("SparkLogs")),
        "another log": Request("logs", f"arn:aws:logs:{HERE}:log-group:theirs:*"),
        "traces": Request("xray", "*"),
        "key by way of S3": Request("kms", key, through("s3")),
        "key by way of DynamoDB": Request("kms", key, through("dynamodb")),
        "key by way of SNS": Request("kms", key, through("sns")),
        "key by way of Secrets Manager": Request("kms", key, through("secretsmanager")),
        "key itself": Request("kms", key),
        "another key": Request("kms", f"arn:aws:kms:{HERE}:key/9z", through("s3")),
        **{f"log of {name}": Request("logs", stack.arn(f"{name}Logs")) for name in (*UPKEEP, *JOB_FUNCTIONS)},
        **{
            f"function of {name}": Request("lambda", stack.arn(f"{name}Function")) for name in (*UPKEEP, *JOB_FUNCTIONS)
        },
        "upload function": Request("lambda", stack.arn("UploadFunction")),
        "application of Spark": Request("emr-serverless", stack.arn("SparkApplication")),
        "run of Spark": Request("emr-serverless", f"{stack.arn('SparkApplication')}/jobruns/00run"),
        "another application": Request("emr-serverless", f"arn:aws:emr-serverless:{HERE}:/applications/theirs"),
        "role of Spark, for EMR": Request("iam", stack.arn("SparkJobRole"), passed_to("emr-serverless")),
        "role of Spark, for others": Request("iam", stack.arn("SparkJobRole"), passed_to("ec2")),
        "role of uploads, for EMR": Request("iam", stack.arn("UploadRole"), passed_to("emr-serverless")),
        "role of uploads": Request("iam", stack.arn("UploadRole")),
        "another role": Request("sts", f"arn:aws:iam::{ACCOUNT}:role/admin"),
        "alarm topic": Request("sns", stack.arn("AlarmTopic")),
        "GET of the API": Request("execute-api", f"arn:aws:execute-api:{HERE}:{api}/$default/GET/ranges"),
        "POST to the API": Request("execute-api", f"arn:aws:execute-api:{HERE}:{api}/$default/POST/ranges"),
        "GET of a view of a stream": Request(
            "execute-api", f"arn:aws:execute-api:{HERE}:{api}/$default/GET/v1/stream/messages"
        ),
        "GET of jobs": Request("execute-api", f"arn:aws:execute-api:{HERE}:{api}/$default/GET/v1/jobs"),
        "POST to a job": Request("execute-api", f"arn:aws:execute-api:{HERE}:{api}/$default/POST/v1/jobs/x/pause"),
        "another API": Request("execute-api", f"arn:aws:execute-api:{HERE}:theirs/$default/GET/ranges"),
    }


def statements(principal: str, stack: Stack | None = None) -> list[Mapping[str, Any]]:
    """Return what a role, or the holder of a managed policy, may do; by default with all that parameters permit."""
    properties = (stack or everything()).properties(principal)
    assert "ManagedPolicyArns" not in properties
    documents = [policy["PolicyDocument"] for policy in properties.get("Policies", [])]
    documents.extend([properties["PolicyDocument"]] if "PolicyDocument" in properties else [])
    return [statement for document in documents for statement in document["Statement"]]


@pytest.mark.parametrize("principal", MAY)
def test_what_is_allowed_is_this_and_nothing_else(principal: str) -> None:
    granted = statements(principal)
    allowed: dict[str, set[str]] = {}
    for name, target in resources().items():
        for action in actions(target.action):
            if is_allowed(granted, Request(action, target.resource, target.context)):
                allowed.setdefault(name, set()).add(action)
    assert allowed == MAY[principal]


@pytest.mark.parametrize("name", UPKEEP)
def test_until_its_parameter_says_so_a_function_of_the_upkeep_changes_only_how_far_it_came(name: str) -> None:
    granted = statements(f"{name}Role", Stack(**{one: EVERYTHING[one] for one in EVERYTHING.keys() - DELETING.keys()}))
    changed = {
        (what, action)
        for what, target in resources().items()
        if target.action in {"s3", "dynamodb"}
        for action in actions(target.action)
        if is_allowed(granted, Request(action, target.resource, target.context))
        and not action.partition(":")[2].startswith(("Get", "List", "Query"))
    }
    kept = {"Garbage": {"PutItem", "DeleteItem"}, "Scrub": {"PutItem"}}.get(name, set())
    assert changed == {("cursors", f"dynamodb:{action}") for action in kept}


@pytest.mark.parametrize("name", JOB_FUNCTIONS)
def test_without_jobs_their_functions_may_change_nothing(name: str) -> None:
    granted = statements(f"{name}Role", Stack(**{**EVERYTHING, "Jobs": "off"}))
    changed = {
        (what, action)
        for what, target in resources().items()
        if target.action in {"s3", "dynamodb", "sqs", "emr-serverless", "iam"}
        for action in actions(target.action)
        if is_allowed(granted, Request(action, target.resource, target.context))
        and not action.partition(":")[2].startswith(("Get", "List", "Query"))
    }
    # Its poller is off, too.
    of_the_poller = {("queue of jobs", f"sqs:{action}") for action in ("ReceiveMessage", "DeleteMessage")}
    assert changed == (of_the_poller if name == "JobRunner" else set())


@pytest.mark.parametrize("kind", ["data/0.fragment", "control/stream.json"])
@pytest.mark.parametrize("directory", ["spark/aa", "staging/", "quarantine/aaaaaaaa"])
def test_a_job_writes_nothing_beside_the_archive_even_if_its_key_looks_like_a_part_of_it(
    directory: str, kind: str
) -> None:
    granted, bucket = statements("SparkJobRole"), everything().arn("Bucket")
    key = f"{bucket}/{KEYS.prefix}{directory}_b/{kind}"
    assert not is_allowed(granted, Request("s3:PutObject", key))
    for action in ("s3:DeleteObject", "s3:AbortMultipartUpload"):
        assert is_allowed(granted, Request(action, key)) == (not directory.startswith("spark/"))
        assert not is_allowed(granted, Request("s3:DeleteObjectVersion", key))


@pytest.mark.parametrize("tag", ["eu", "eu-1", None])
@pytest.mark.parametrize("cluster", ["", "eu", "eu-1", "us"])
def test_the_agents_of_a_cluster_stage_and_announce_for_it_alone(tag: str | None, cluster: str) -> None:
    granted = statements("ClusterAgentPolicy")
    tagged: dict[str, str | list[str]] = {} if tag is None else {"aws:PrincipalTag/coldstream-cluster": tag}
    bucket, bus = everything().arn("Bucket"), everything().arn("EventBus")
    for action in ("s3:PutObject", "s3:GetObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"):
        assert is_allowed(granted, Request(action, f"{bucket}/{staged_by(cluster)}", tagged)) == (cluster == tag)
    assert is_allowed(granted, Request("events:PutEvents", bus, tagged | sent_as(cluster))) == (cluster == tag)
    for others in (("eu", "us"), ("us", "eu-1"), ("eu", ""), ()):
        mixed = tagged | (sent_as(*others) if others else {})
        assert not is_allowed(granted, Request("events:PutEvents", bus, mixed))


@pytest.mark.parametrize("tag", ["eu", None])
@pytest.mark.parametrize("cluster", ["", "eu", "us"])
def test_an_archiver_of_queues_deletes_staged_copies_of_its_cluster_alone(tag: str | None, cluster: str) -> None:
    tagged: dict[str, str | list[str]] = {} if tag is None else {"aws:PrincipalTag/coldstream-cluster": tag}
    request = Request("s3:DeleteObject", f"{everything().arn('Bucket')}/{staged_by(cluster)}", tagged)
    assert is_allowed(statements("QueueArchivePolicy"), request) == (cluster == (tag or ""))
    with_agent = [*statements("QueueArchivePolicy"), *statements("ClusterAgentPolicy" if tag else "AgentPolicy")]
    assert is_allowed(with_agent, request) == (cluster == (tag or ""))


def test_what_looks_like_a_cluster_among_the_incarnations_is_not_that_clusters() -> None:
    granted = statements("ClusterAgentPolicy")
    bucket = everything().arn("Bucket")
    tagged: dict[str, str | list[str]] = {"aws:PrincipalTag/coldstream-cluster": "eu"}
    of_nobody = KEYS.staged(Incarnation("eu"), Offset(0), Offset(9))
    assert not is_allowed(granted, Request("s3:PutObject", f"{bucket}/{of_nobody}", tagged))
    assert is_allowed(statements("AgentPolicy"), Request("s3:PutObject", f"{bucket}/{of_nobody}"))


def test_every_role_and_policy_has_its_table() -> None:
    stack = everything()
    assert {*stack.of_type("AWS::IAM::Role"), *stack.of_type("AWS::IAM::ManagedPolicy")} == set(MAY)


def test_without_a_key_of_the_customers_nobody_may_use_one() -> None:
    stack = Stack(**{**EVERYTHING, "KmsKeyArn": ""})
    for name in MAY:
        assert "kms:" not in str(stack.properties(name))


def test_functions_have_the_roles_that_are_written_out_and_no_policies_of_sams() -> None:
    functions = everything().of_type("AWS::Serverless::Function")
    roles = {name: properties["Role"] for name, properties in functions.items()}
    assert roles == {
        "UploadFunction": everything().arn("UploadRole"),
        "ResolverFunction": everything().arn("ResolverRole"),
        "ApiFunction": everything().arn("ApiRole"),
        **{f"{name}Function": everything().arn(f"{name}Role") for name in (*UPKEEP, *JOB_FUNCTIONS)},
    }
    assert not any("Policies" in properties for properties in functions.values())


def test_only_the_service_that_runs_it_takes_a_role() -> None:
    taken = {}
    for name, properties in everything().of_type("AWS::IAM::Role").items():
        (statement,) = properties["AssumeRolePolicyDocument"]["Statement"]
        assert statement["Action"] == "sts:AssumeRole"
        taken[name] = (statement["Principal"], statement.get("Condition"))
    ours = {
        "StringEquals": {"aws:SourceAccount": ACCOUNT},
        "ArnLike": {"aws:SourceArn": everything().arn("SparkApplication")},
    }
    rules = {
        "StringEquals": {"aws:SourceAccount": ACCOUNT},
        "ArnLike": {"aws:SourceArn": f"arn:aws:events:{HERE}:rule/*"},
    }
    assert taken == {
        "UploadRole": ({"Service": "lambda.amazonaws.com"}, None),
        "ResolverRole": ({"Service": "lambda.amazonaws.com"}, None),
        "ApiRole": ({"Service": "lambda.amazonaws.com"}, None),
        **{f"{name}Role": ({"Service": "lambda.amazonaws.com"}, None) for name in (*UPKEEP, *JOB_FUNCTIONS)},
        "ScheduleRole": (
            {"Service": "scheduler.amazonaws.com"},
            {"StringEquals": {"aws:SourceAccount": ACCOUNT}},
        ),
        "SparkJobRole": ({"Service": "emr-serverless.amazonaws.com"}, ours),
        "SparkFailuresRole": ({"Service": "events.amazonaws.com"}, rules),
    }
