"""A queue of SQS, by boto3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from coldstream.errors import InvalidSettingError, NotFoundError
from coldstream.operate.message_queue import QueueMessage
from coldstream.store.answers import refuse_broken_answers
from coldstream.store.awserrors import SDK_ERRORS, error_code, from_aws
from coldstream.units import TimestampMs

CONNECT_TIMEOUT_S = 3
READ_TIMEOUT_S = 10
ATTEMPTS = 4
"""Of one request, by the SDK (its retry mode `standard`: exponential backoff with jitter)."""

MOST_AT_ONCE = 10
"""Messages of one request."""

_WAIT_S = 1
"""Any wait at all makes SQS ask all of its servers, not some."""

_NO_QUEUE = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})


class SqsQueue:
    """Implements `MessageQueue` on a queue that is given by its URL or its ARN. The SDK finds region and credentials.

    Raises InvalidSettingError, which names `setting`, for an address that is neither; NotFoundError if there is none.
    """

    def __init__(self, address: str, *, setting: str) -> None:
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
            raise from_aws(err, f"client of queue {address}") from err
        refuse_broken_answers(self._client.meta.events)
        self._name = address.rpartition(":" if address.startswith("arn:") else "/")[2]
        if not address.startswith(("arn:", "http://", "https://")) or not self._name:
            raise InvalidSettingError(setting, f"{address!r} is neither the URL nor the ARN of a queue")
        self._url = self._found(address) if address.startswith("arn:") else address

    @property
    def name(self) -> str:
        """Name of the queue."""
        return self._name

    def receive(self, *, hidden_s: int) -> tuple[QueueMessage, ...]:
        """Receive up to ten messages."""
        answer = self._call(
            "receive_message",
            MaxNumberOfMessages=MOST_AT_ONCE,
            VisibilityTimeout=hidden_s,
            WaitTimeSeconds=_WAIT_S,
            AttributeNames=["SentTimestamp", "ApproximateReceiveCount"],
            MessageAttributeNames=["ERROR_CODE", "ERROR_MESSAGE"],
        )
        return tuple(map(_message, answer.get("Messages", ())))

    def show(self, messages: Sequence[QueueMessage]) -> None:
        """Make messages visible."""
        for batch in _batches(messages):
            entries = [
                {"Id": str(number), "ReceiptHandle": message.receipt, "VisibilityTimeout": 0}
                for number, message in enumerate(batch)
            ]
            # What fails in the batch is a receipt whose time is up: that message is visible already.
            self._call("change_message_visibility_batch", Entries=entries)

    def send(self, body: str) -> None:
        """Send a message."""
        self._call("send_message", MessageBody=body)

    def delete(self, messages: Sequence[QueueMessage]) -> tuple[str, ...]:
        """Delete messages."""
        deleted: list[str] = []
        for batch in _batches(messages):
            entries = [{"Id": str(number), "ReceiptHandle": one.receipt} for number, one in enumerate(batch)]
            answer = self._call("delete_message_batch", Entries=entries)
            deleted.extend(batch[int(done["Id"])].id for done in answer.get("Successful", ()))
        return tuple(deleted)

    def _found(self, arn: str) -> str:
        """Return the URL of the queue of an ARN."""
        account = arn.split(":")[4]
        try:
            return str(self._client.get_queue_url(QueueName=self._name, QueueOwnerAWSAccountId=account)["QueueUrl"])
        except SDK_ERRORS as err:
            raise self._error(err) from err

    def _call(self, call: str, **arguments: Any) -> Any:
        try:
            return getattr(self._client, call)(QueueUrl=self._url, **arguments)
        except SDK_ERRORS as err:
            raise self._error(err) from err

    def _error(self, err: Any) -> Exception:
        if isinstance(err, ClientError) and error_code(err) in _NO_QUEUE:
            return NotFoundError(f"there is no queue {self._name}")
        return from_aws(err, f"queue {self._name}")


def _message(found: Any) -> QueueMessage:
    attributes = found.get("Attributes", {})
    written = found.get("MessageAttributes", {})
    refusal = [written[name]["StringValue"] for name in ("ERROR_CODE", "ERROR_MESSAGE") if name in written]
    return QueueMessage(
        id=found["MessageId"],
        receipt=found["ReceiptHandle"],
        body=found["Body"],
        sent_at=TimestampMs(int(attributes.get("SentTimestamp", 0))),
        receives=int(attributes.get("ApproximateReceiveCount", 0)),
        refusal=": ".join(refusal) or None,
    )


def _batches(messages: Sequence[QueueMessage]) -> Iterator[Sequence[QueueMessage]]:
    for first in range(0, len(messages), MOST_AT_ONCE):
        yield messages[first : first + MOST_AT_ONCE]
