"""What the doctor asks of the stack around bucket and table: configuration, rule, queues, alarms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BucketConfiguration:
    """How a bucket is set up: by which algorithm it encrypts, and whether a rule drops unfinished uploads."""

    encryption: str | None
    aborts_uploads: bool


@dataclass(frozen=True, slots=True)
class TableConfiguration:
    """How a table is set up; `status` is ACTIVE if all is well. `indexes` are the names of those that are active."""

    status: str
    indexes: tuple[str, ...]
    has_backups: bool
    is_protected: bool


@dataclass(frozen=True, slots=True)
class EventRule:
    """A rule of an event bus that sends to a queue."""

    name: str
    is_enabled: bool
    targets: int


@dataclass(frozen=True, slots=True)
class QueueState:
    """Messages of a queue: those that wait, and those that somebody is handling."""

    name: str
    waiting: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class RingingAlarm:
    """An alarm that is in the state ALARM, and CloudWatch's reason."""

    name: str
    reason: str


class StackServices(Protocol):
    """The control planes of AWS. Each call is a request or two; each raises a ColdstreamError if it is refused."""

    def bucket(self, name: str) -> BucketConfiguration:
        """Return how a bucket is set up. Rights: s3:GetEncryptionConfiguration, s3:GetLifecycleConfiguration."""
        ...

    def table(self, name: str) -> TableConfiguration:
        """Return how a table is set up. Rights: dynamodb:DescribeTable, dynamodb:DescribeContinuousBackups."""
        ...

    def rules(self, bus: str) -> tuple[EventRule, ...]:
        """Return the rules of a bus. Rights: events:ListRules, events:ListTargetsByRule."""
        ...

    def queue(self, address: str) -> QueueState:
        """Return the state of a queue, by URL or ARN. Right: sqs:GetQueueAttributes; for an ARN sqs:GetQueueUrl."""
        ...

    def oldest_message_s(self, queue: str) -> float | None:
        """Return the age of the oldest message, None if nobody measured. Right: cloudwatch:GetMetricStatistics."""
        ...

    def ringing(self, stack: str) -> tuple[RingingAlarm, ...]:
        """Return the alarms of a stack that ring. Right: cloudwatch:DescribeAlarms."""
        ...

    def has_alarms(self, stack: str) -> bool:
        """Tell whether a stack has any alarm; false for a name that no stack has. Right: cloudwatch:DescribeAlarms."""
        ...

    def newest_fragment_s(self, namespace: str) -> float | None:
        """Return how long ago a fragment was archived, None if not in a day. Right: cloudwatch:GetMetricStatistics."""
        ...
