from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from coldstream.local.function_protocol import InvocationReport, QueueConfig
from coldstream.local.poller import failures, poll, sqs_event

ARN = "arn:aws:sqs:eu-central-1:123456789012:queue"


class FakeSqs:
    """A queue of batches; polling an empty one stops the poller."""

    def __init__(self, stop: threading.Event, *batches: list[str] | Exception) -> None:
        self._stop = stop
        self._batches = list(batches)
        self.asked: dict[str, Any] = {}
        self.deleted: list[str] = []
        self.returned: list[str] = []

    def receive_message(self, **asked: Any) -> dict[str, Any]:
        self.asked = asked
        if not self._batches:
            self._stop.set()
            return {}
        batch = self._batches.pop(0)
        if isinstance(batch, Exception):
            raise batch
        return {"Messages": [message(each) for each in batch]}

    def delete_message(self, **message: Any) -> None:
        self.deleted.append(message["ReceiptHandle"])

    def change_message_visibility(self, **message: Any) -> None:
        self.returned.append(message["ReceiptHandle"])


def message(identity: str) -> dict[str, Any]:
    return {
        "MessageId": identity,
        "ReceiptHandle": identity,
        "Body": f"body of {identity}",
        "MD5OfBody": "md5",
        "Attributes": {"ApproximateReceiveCount": "1"},
    }


def poll_all(
    invoke: Callable[[dict[str, Any]], Any],
    *batches: list[str] | Exception,
    batch_size: int = 10,
    reports_failures: bool = True,
) -> tuple[FakeSqs, list[InvocationReport]]:
    stop = threading.Event()
    sqs = FakeSqs(stop, *batches)
    handled: list[InvocationReport] = []
    queue = QueueConfig("url", ARN, batch_size, reports_failures)
    poll(queue, sqs=sqs, function="F", invoke=invoke, report=handled.append, stop=stop)
    return sqs, handled


def test_what_succeeded_is_deleted_and_what_failed_comes_back() -> None:
    sqs, handled = poll_all(lambda _: {"batchItemFailures": [{"itemIdentifier": "b"}]}, ["a", "b", "c"])
    assert (sqs.deleted, sqs.returned) == (["a", "c"], ["b"])
    assert [each.error is None for each in handled] == [True, False, True]


def test_a_handler_that_raises_fails_its_batch_and_the_next_one_comes() -> None:
    batches: list[list[str]] = []

    def invoke(event: dict[str, Any]) -> Any:
        batches.append([record["messageId"] for record in event["Records"]])
        if len(batches) == 1:
            raise ValueError("no")

    sqs, handled = poll_all(invoke, ["a", "b"], ["c"])
    assert batches == [["a", "b"], ["c"]]
    assert (sqs.deleted, sqs.returned) == (["c"], ["a", "b"])
    assert handled[0].error == "ValueError: no"


def test_failures_that_a_function_does_not_report_by_contract_are_not_looked_at() -> None:
    answer = {"batchItemFailures": [{"itemIdentifier": "a"}]}
    sqs, _ = poll_all(lambda _: answer, ["a"], reports_failures=False)
    assert sqs.deleted == ["a"]


def test_a_queue_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.local.poller.WAIT_S", 0)
    sqs, _ = poll_all(lambda _: None, EndpointConnectionError(endpoint_url="http://x"), ["a"])
    assert sqs.deleted == ["a"]


def test_messages_stay_hidden_while_they_are_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.local.poller.HIDDEN_S", 0.06)
    sqs, _ = poll_all(lambda _: time.sleep(0.2), ["a"])
    assert sqs.asked["VisibilityTimeout"] == 0.06
    assert 3 <= len(sqs.returned) <= 10
    assert sqs.deleted == ["a"]


def test_a_batch_is_at_most_what_one_request_may_ask_for() -> None:
    assert poll_all(lambda _: None, batch_size=100)[0].asked["MaxNumberOfMessages"] == 10
    assert poll_all(lambda _: None, batch_size=1)[0].asked["MaxNumberOfMessages"] == 1


def test_the_event_is_lambdas_own() -> None:
    (record,) = sqs_event([message("a")], QueueConfig("url", ARN, 1, reports_failures=True))["Records"]
    assert record == {
        "messageId": "a",
        "receiptHandle": "a",
        "body": "body of a",
        "attributes": {"ApproximateReceiveCount": "1"},
        "messageAttributes": {},
        "md5OfBody": "md5",
        "eventSource": "aws:sqs",
        "eventSourceARN": ARN,
        "awsRegion": "eu-central-1",
    }


@pytest.mark.parametrize("answer", [None, {}, "", {"batchItemFailures": []}, {"batchItemFailures": None}])
def test_an_answer_without_failures_is_a_success(answer: Any) -> None:
    assert failures(answer, ["a", "b"]) == set()


@pytest.mark.parametrize(
    "answer",
    [
        {"batchItemFailures": [{"itemIdentifier": "unknown"}]},
        {"batchItemFailures": [{"itemIdentifier": ""}]},
        {"batchItemFailures": [{"itemIdentifier": None}]},
        {"batchItemFailures": [{"itemIdentifier": []}]},
        {"batchItemFailures": [{"id": "a"}]},
        {"batchItemFailures": ["a"]},
        {"batchItemFailures": 1},
        "failed",
    ],
)
def test_an_answer_that_makes_no_sense_fails_the_whole_batch(answer: Any) -> None:
    assert failures(answer, ["a", "b"]) == {"a", "b"}
