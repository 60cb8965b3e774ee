"""Messages of an SQS queue for a function, as Lambda's event source mapping delivers them.

A batch goes to the handler in one event. Messages that succeed are deleted. Messages that fail return to the queue, and
SQS itself moves them to the dead-letter queue after `maxReceiveCount` times. Failures return sooner than on AWS, where
they stay hidden for the rest of the queue's visibility timeout: after RETRY_AFTER_S, or after HIDDEN_S if the process
that handled them died.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.local.function_protocol import InvocationReport, QueueConfig

RETRY_AFTER_S = 1
HIDDEN_S = 3
"""How long a message stays hidden. While it is handled, this is renewed three times as often."""

WAIT_S = 1
"""How long one poll waits for messages, and so how long stopping may take."""

MAX_BATCH = 10
"""The limit of one ReceiveMessage. An event source mapping may ask for more, and then gets less here."""


def poll(
    queue: QueueConfig,
    *,
    sqs: Any,
    function: str,
    invoke: Callable[[dict[str, Any]], Any],
    report: Callable[[InvocationReport], None],
    stop: threading.Event,
) -> None:
    """Handle batches of a queue until `stop` is set. The batch at hand is finished first."""
    while not stop.is_set():
        try:
            batch = sqs.receive_message(
                QueueUrl=queue.url,
                MaxNumberOfMessages=min(queue.batch_size, MAX_BATCH),
                VisibilityTimeout=HIDDEN_S,
                WaitTimeSeconds=WAIT_S,
                MessageSystemAttributeNames=["All"],
            ).get("Messages", [])
            if batch:
                _handle(batch, queue, sqs=sqs, function=function, invoke=invoke, report=report)
        except (BotoCoreError, ClientError):
            traceback.print_exc()
            # An endpoint that is away fails at once, and without this it would be asked without a pause.
            stop.wait(WAIT_S)


def _handle(
    batch: list[dict[str, Any]],
    queue: QueueConfig,
    *,
    sqs: Any,
    function: str,
    invoke: Callable[[dict[str, Any]], Any],
    report: Callable[[InvocationReport], None],
) -> None:
    started = time.perf_counter()
    sent = [message["MessageId"] for message in batch]
    error = "the handler reported it as failed"
    try:
        with _hidden(batch, queue, sqs=sqs):
            result = invoke(sqs_event(batch, queue))
        failed = failures(result, sent) if queue.reports_failures else set()
    except Exception as err:  # noqa: BLE001  whatever a handler raises, only its own messages have failed
        traceback.print_exc()
        failed, error = set(sent), f"{type(err).__name__}: {err}"
    seconds = time.perf_counter() - started
    # If a call fails, the rest of the batch comes back after HIDDEN_S and is handled again: at least once, as on AWS.
    for message in batch:
        handle = {"QueueUrl": queue.url, "ReceiptHandle": message["ReceiptHandle"]}
        if message["MessageId"] in failed:
            sqs.change_message_visibility(**handle, VisibilityTimeout=RETRY_AFTER_S)
            report(InvocationReport(function, message["Body"], seconds, error))
        else:
            sqs.delete_message(**handle)
            report(InvocationReport(function, message["Body"], seconds))


@contextmanager
def _hidden(batch: list[dict[str, Any]], queue: QueueConfig, *, sqs: Any) -> Iterator[None]:
    """Keep messages hidden while the block runs.

    A thread renews a short timeout, so that messages return soon after this process dies.
    """
    over = threading.Event()

    def hide() -> None:
        while not over.wait(HIDDEN_S / 3):
            for message in batch:
                handle = {"QueueUrl": queue.url, "ReceiptHandle": message["ReceiptHandle"]}
                with suppress(BotoCoreError, ClientError):
                    sqs.change_message_visibility(**handle, VisibilityTimeout=HIDDEN_S)

    renewal = threading.Thread(target=hide, name="hide messages", daemon=True)
    renewal.start()
    try:
        yield
    finally:
        # Joined before the messages are deleted or returned: a late renewal would hide them again.
        over.set()
        renewal.join()


def sqs_event(batch: list[dict[str, Any]], queue: QueueConfig) -> dict[str, Any]:
    """Return the event that Lambda makes of a batch of ReceiveMessage."""
    return {
        "Records": [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message.get("Attributes", {}),
                "messageAttributes": {},  # EventBridge sends none
                "md5OfBody": message["MD5OfBody"],
                "eventSource": "aws:sqs",
                "eventSourceARN": queue.arn,
                "awsRegion": queue.arn.split(":")[3],
            }
            for message in batch
        ]
    }


def failures(result: Any, sent: Collection[str]) -> set[str]:
    """Return the ids of the messages that failed, by Lambda's rules: all of them if the answer makes no sense."""
    if not result:
        return set()
    try:
        failed = {item["itemIdentifier"] for item in result.get("batchItemFailures") or []}
    except (AttributeError, KeyError, TypeError):
        return set(sent)
    return set(sent) if failed - set(sent) else failed
