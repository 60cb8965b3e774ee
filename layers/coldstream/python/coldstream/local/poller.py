"""Feed the messages of an SQS queue to a function, as Lambda's event source mapping does.

A batch goes to the handler in one event. What succeeded is deleted. What failed comes back to the queue, and after
`maxReceiveCount` times goes to the dead-letter queue by SQS's own doing. One thing is quicker here than on AWS, where a
failed message stays hidden for the rest of the queue's visibility timeout: it comes back after RETRY_AFTER_S, and after
HIDDEN_S when the process died that was handling it.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.local.messages import Handled, QueueConfig

RETRY_AFTER_S = 1
HIDDEN_S = 3
"""How long a message stays hidden without a sign of life. Signs are given three times as often."""

WAIT_S = 1
"""For messages, in one poll: as long as stopping may take."""

MAX_BATCH = 10
"""Of one ReceiveMessage; an event source mapping may be given more, and is then given less."""


def poll(
    queue: QueueConfig,
    *,
    sqs: Any,
    function: str,
    invoke: Callable[[dict[str, Any]], Any],
    report: Callable[[Handled], None],
    stop: threading.Event,
) -> None:
    """Take batches from a queue until `stop` is set; the batch at hand is finished first."""
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
            stop.wait(WAIT_S)


def _handle(
    batch: list[dict[str, Any]],
    queue: QueueConfig,
    *,
    sqs: Any,
    function: str,
    invoke: Callable[[dict[str, Any]], Any],
    report: Callable[[Handled], None],
) -> None:
    started = time.perf_counter()
    sent = [message["MessageId"] for message in batch]
    error = "the handler reported it as failed"
    try:
        with _hidden(batch, queue, sqs=sqs):
            result = invoke(sqs_event(batch, queue))
        failed = failures(result, sent) if queue.reports_failures else set()
    except Exception as err:  # noqa: BLE001 - whatever a handler raises, its messages failed and the next ones come
        traceback.print_exc()
        failed, error = set(sent), f"{type(err).__name__}: {err}"
    seconds = time.perf_counter() - started
    for message in batch:
        handle = {"QueueUrl": queue.url, "ReceiptHandle": message["ReceiptHandle"]}
        if message["MessageId"] in failed:
            sqs.change_message_visibility(**handle, VisibilityTimeout=RETRY_AFTER_S)
            report(Handled(function, message["Body"], seconds, error))
        else:
            sqs.delete_message(**handle)
            report(Handled(function, message["Body"], seconds))


@contextmanager
def _hidden(batch: list[dict[str, Any]], queue: QueueConfig, *, sqs: Any) -> Iterator[None]:
    """Keep messages hidden, as long as this process lives."""
    done = threading.Event()

    def hide() -> None:
        while not done.wait(HIDDEN_S / 3):
            for message in batch:
                handle = {"QueueUrl": queue.url, "ReceiptHandle": message["ReceiptHandle"]}
                with suppress(BotoCoreError, ClientError):
                    sqs.change_message_visibility(**handle, VisibilityTimeout=HIDDEN_S)

    signs = threading.Thread(target=hide, name="hide messages", daemon=True)
    signs.start()
    try:
        yield
    finally:
        done.set()
        signs.join()


def sqs_event(batch: list[dict[str, Any]], queue: QueueConfig) -> dict[str, Any]:
    """Make the event that Lambda makes of a batch that ReceiveMessage returned."""
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
    """Return the ids of the messages that failed, by Lambda's rules: all, where the answer makes no sense."""
    if not result:
        return set()
    try:
        failed = {item["itemIdentifier"] for item in result.get("batchItemFailures") or []}
    except (AttributeError, KeyError, TypeError):
        return set(sent)
    return set(sent) if failed - set(sent) else failed
