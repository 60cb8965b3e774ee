"""The queue by which a Lambda is called to run a job: a message is `{"job": "…"}`.

A message says only that there may be something to do. Who gets it looks at the job, so one that comes twice, late or
for nothing does no harm.
"""

from __future__ import annotations

import json
from typing import Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from coldstream.errors import InvalidEventError
from coldstream.plain_json import read_json
from coldstream.store.answers import refuse_broken_answers
from coldstream.store.awserrors import SDK_ERRORS, from_aws

CONNECT_TIMEOUT_S = 3
READ_TIMEOUT_S = 10
ATTEMPTS = 4
"""Of one request, by the SDK (its retry mode `standard`: exponential backoff with jitter)."""

MAX_ID = 255


class JobQueue(Protocol):
    """Where messages for the job runner go."""

    def send(self, job_id: str) -> None:
        """Have a Lambda look at a job. Cost: one request. Raises UnavailableError."""
        ...

    def waiting(self) -> int:
        """Return about how many messages nobody has taken yet. Cost: one request. Raises UnavailableError."""
        ...


class SqsJobQueue:
    """Implements `JobQueue` on a queue of SQS, by its URL. The SDK finds region and credentials."""

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            self._client = boto3.session.Session().client(
                "sqs",
                config=Config(
                    connect_timeout=CONNECT_TIMEOUT_S,
                    read_timeout=READ_TIMEOUT_S,
                    retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                ),
            )
        except BotoCoreError as err:
            raise from_aws(err, f"client of queue {url}") from err
        refuse_broken_answers(self._client.meta.events)

    def send(self, job_id: str) -> None:
        """Send a message. Cost: one SendMessage."""
        try:
            self._client.send_message(QueueUrl=self._url, MessageBody=message_of(job_id))
        except SDK_ERRORS as err:
            raise from_aws(err, f"queue {self._url}") from err

    def waiting(self) -> int:
        """Ask how many messages wait. Cost: one GetQueueAttributes."""
        try:
            answer = self._client.get_queue_attributes(
                QueueUrl=self._url, AttributeNames=["ApproximateNumberOfMessages"]
            )
        except SDK_ERRORS as err:
            raise from_aws(err, f"queue {self._url}") from err
        return int(answer.get("Attributes", {}).get("ApproximateNumberOfMessages", "0"))


def message_of(job_id: str) -> str:
    """Return the message that names a job; the inverse of `job_of`."""
    return json.dumps({"job": job_id})


def job_of(body: str) -> str:
    """Return the job that a message names. Raises InvalidEventError."""
    try:
        job_id = read_json(body)["job"]
    except (ValueError, TypeError, KeyError) as err:
        raise InvalidEventError("job", f"the message names none: {body[:80]!r}") from err
    if not isinstance(job_id, str) or not 1 <= len(job_id) <= MAX_ID:
        raise InvalidEventError("job", f"{job_id!r:.80} is no id of a job")
    return job_id
