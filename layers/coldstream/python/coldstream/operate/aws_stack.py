"""`StackServices` by boto3."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from coldstream.operate.stack_port import (
    BucketConfiguration,
    EventRule,
    QueueState,
    RingingAlarm,
    TableConfiguration,
)
from coldstream.store.answers import refuse_broken_answers
from coldstream.store.awserrors import SDK_ERRORS, error_code, from_aws

CONNECT_TIMEOUT_S = 3
READ_TIMEOUT_S = 10
ATTEMPTS = 2
"""A service that is not there is no reason to wait: the doctor says so, and goes on."""

_NONE = frozenset(
    {"NoSuchLifecycleConfiguration", "ServerSideEncryptionConfigurationNotFoundError", "NoSuchEncryptionConfiguration"}
)


class AwsStack:
    """The control planes of the account and region that the SDK finds."""

    def __init__(self) -> None:
        self._session = boto3.session.Session()
        self._clients: dict[str, Any] = {}

    def bucket(self, name: str) -> BucketConfiguration:
        """Return how a bucket is set up."""
        s3 = self._client("s3")
        encryption = self._or_none(lambda: s3.get_bucket_encryption(Bucket=name), f"encryption of bucket {name}")
        lifecycle = self._or_none(
            lambda: s3.get_bucket_lifecycle_configuration(Bucket=name), f"lifecycle of bucket {name}"
        )
        rules = (encryption or {}).get("ServerSideEncryptionConfiguration", {}).get("Rules", [])
        applied = [rule.get("ApplyServerSideEncryptionByDefault", {}).get("SSEAlgorithm") for rule in rules]
        aborts = any(
            rule.get("Status") == "Enabled" and "AbortIncompleteMultipartUpload" in rule
            for rule in (lifecycle or {}).get("Rules", [])
        )
        return BucketConfiguration(next((one for one in applied if one), None), aborts)

    def table(self, name: str) -> TableConfiguration:
        """Return how a table is set up."""
        dynamodb = self._client("dynamodb")
        table = _asked(lambda: dynamodb.describe_table(TableName=name), f"table {name}")["Table"]
        backups = _asked(lambda: dynamodb.describe_continuous_backups(TableName=name), f"backups of table {name}")
        status = backups["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
        return TableConfiguration(
            table["TableStatus"],
            tuple(
                one["IndexName"]
                for one in table.get("GlobalSecondaryIndexes", [])
                if one.get("IndexStatus", "ACTIVE") == "ACTIVE"
            ),
            status.get("PointInTimeRecoveryStatus") == "ENABLED",
            bool(table.get("DeletionProtectionEnabled")),
        )

    def rules(self, bus: str) -> tuple[EventRule, ...]:
        """Return the rules of a bus."""
        events = self._client("events")
        found = _asked(lambda: events.list_rules(EventBusName=bus), f"rules of bus {bus}")["Rules"]
        return tuple(
            EventRule(
                rule["Name"],
                rule.get("State") == "ENABLED",
                len(self._targets(bus, rule["Name"])),
            )
            for rule in found
        )

    def queue(self, address: str) -> QueueState:
        """Return the state of a queue."""
        sqs = self._client("sqs")
        name = address.rpartition(":" if address.startswith("arn:") else "/")[2]
        url = address
        if address.startswith("arn:"):
            url = _asked(lambda: sqs.get_queue_url(QueueName=name), f"queue {name}")["QueueUrl"]
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = _asked(lambda: sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names), f"queue {name}")
        waiting, in_flight = (int(answer["Attributes"].get(one, 0)) for one in names)
        return QueueState(name, waiting, in_flight)

    def oldest_message_s(self, queue: str) -> float | None:
        """Return the age of the oldest message, as SQS measured it in the last quarter of an hour."""
        points = self._points("AWS/SQS", "ApproximateAgeOfOldestMessage", "Maximum", 15, {"QueueName": queue})
        return max((point["Maximum"] for point in points), default=None)

    def ringing(self, stack: str) -> tuple[RingingAlarm, ...]:
        """Return the alarms of a stack that ring."""
        cloudwatch = self._client("cloudwatch")
        answer = _asked(
            lambda: cloudwatch.describe_alarms(AlarmNamePrefix=f"{stack}-", StateValue="ALARM", MaxRecords=100),
            f"alarms of stack {stack}",
        )
        return tuple(RingingAlarm(one["AlarmName"], one.get("StateReason", "")) for one in answer["MetricAlarms"])

    def has_alarms(self, stack: str) -> bool:
        """Tell whether a stack has any alarm, ringing or not."""
        cloudwatch = self._client("cloudwatch")
        answer = _asked(
            lambda: cloudwatch.describe_alarms(AlarmNamePrefix=f"{stack}-", MaxRecords=1), f"alarms of stack {stack}"
        )
        return bool(answer["MetricAlarms"])

    def newest_fragment_s(self, namespace: str) -> float | None:
        """Return how long ago a fragment was archived, to five minutes."""
        points = self._points(namespace, "FragmentsCommitted", "Sum", 24 * 60, {"service": "upload"})
        times = [point["Timestamp"] for point in points if point["Sum"] > 0]
        return (datetime.now(UTC) - max(times)).total_seconds() if times else None

    def _targets(self, bus: str, rule: str) -> list[Any]:
        events = self._client("events")
        answer = _asked(lambda: events.list_targets_by_rule(Rule=rule, EventBusName=bus), f"targets of rule {rule}")
        targets: list[Any] = answer["Targets"]
        return targets

    def _points(
        self, namespace: str, metric: str, statistic: str, minutes: int, dimensions: dict[str, str]
    ) -> list[Any]:
        cloudwatch = self._client("cloudwatch")
        now = datetime.now(UTC)
        answer = _asked(
            lambda: cloudwatch.get_metric_statistics(
                Namespace=namespace,
                MetricName=metric,
                Statistics=[statistic],
                StartTime=now - timedelta(minutes=minutes),
                EndTime=now,
                Period=300,
                Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()],
            ),
            f"metric {metric}",
        )
        points: list[Any] = answer["Datapoints"]
        return points

    def _or_none(self, call: Callable[[], Any], what: str) -> Any:
        try:
            return call()
        except ClientError as err:
            if error_code(err) in _NONE:
                return None
            raise from_aws(err, what) from err
        except SDK_ERRORS as err:
            raise from_aws(err, what) from err

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            config = Config(
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            )
            self._clients[service] = _asked(
                lambda: self._session.client(service, config=config),  # type: ignore[call-overload]  # by name
                f"client of {service}",
            )
            refuse_broken_answers(self._clients[service].meta.events)
        return self._clients[service]


def _asked(call: Callable[[], Any], what: str) -> Any:
    try:
        return call()
    except SDK_ERRORS as err:
        raise from_aws(err, what) from err
