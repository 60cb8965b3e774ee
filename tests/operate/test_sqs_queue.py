"""A queue of the emulated SQS, looked at and emptied."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ReadTimeoutError

from coldstream.errors import InvalidSettingError, NotFoundError, UnavailableError
from coldstream.operate.dead_letters import dead_letters, redrive
from coldstream.operate.letter_cause import LetterAction, LetterCause
from coldstream.operate.message_queue import QueueMessage
from coldstream.operate.sqs_queue import ATTEMPTS, SqsQueue
from tests.store.wire import Wire


@pytest.fixture
def urls(sqs: Any) -> tuple[str, str]:
    """Two queues."""
    first, second = (sqs.create_queue(QueueName=f"letters-{uuid4()}")["QueueUrl"] for _ in range(2))
    return first, second


def diagnosis(_: QueueMessage) -> LetterCause:
    return LetterCause("because", LetterAction.REDRIVE)


def count(sqs: Any, url: str) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    assert found["ApproximateNumberOfMessagesNotVisible"] == "0"
    return int(found["ApproximateNumberOfMessages"])


def test_a_look_leaves_all_messages_visible(sqs: Any, urls: tuple[str, str]) -> None:
    for number in range(23):
        sqs.send_message(QueueUrl=urls[0], MessageBody=f"letter {number}")
    found = dead_letters(SqsQueue(urls[0], setting="here"), diagnosis)
    assert {letter.message.body for letter in found} == {f"letter {number}" for number in range(23)}
    assert all(letter.message.sent_at > 1_600_000_000_000 for letter in found)
    assert count(sqs, urls[0]) == 23


def test_a_queue_that_does_not_answer_is_named(sqs: Any, urls: tuple[str, str]) -> None:
    queue = SqsQueue(urls[0], setting="here")
    silence = [ReadTimeoutError(endpoint_url="http://sqs.test/") for _ in range(ATTEMPTS)]
    with Wire(queue._client, *silence), pytest.raises(UnavailableError, match=queue.name):
        queue.send("a letter")


def test_what_eventbridge_wrote_beside_a_message_is_read(sqs: Any, urls: tuple[str, str]) -> None:
    written = {
        "ERROR_CODE": {"DataType": "String", "StringValue": "NO_PERMISSIONS"},
        "ERROR_MESSAGE": {"DataType": "String", "StringValue": "not authorized"},
    }
    sqs.send_message(QueueUrl=urls[0], MessageBody="letter", MessageAttributes=written)
    (letter,) = dead_letters(SqsQueue(urls[0], setting="here"), diagnosis)
    assert letter.message.refusal == "NO_PERMISSIONS: not authorized"


def test_letters_go_from_one_queue_to_the_other_by_its_arn(sqs: Any, urls: tuple[str, str]) -> None:
    for number in range(12):
        sqs.send_message(QueueUrl=urls[0], MessageBody=f"letter {number}")
    arn = sqs.get_queue_attributes(QueueUrl=urls[1], AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    target = SqsQueue(arn, setting="there")
    report = redrive(SqsQueue(urls[0], setting="here"), target, diagnosis, sleep=lambda _: None)
    assert len(report.done) == 12
    assert (count(sqs, urls[0]), count(sqs, urls[1])) == (0, 12)
    assert target.name == arn.rpartition(":")[2]


@pytest.mark.parametrize("address", ["", "letters", "https://", "arn:"])
def test_what_is_no_address_names_the_setting(aws: str, address: str) -> None:
    with pytest.raises(InvalidSettingError, match="SOME_SETTING"):
        SqsQueue(address, setting="SOME_SETTING")


def test_a_queue_that_is_not_there_is_not_found(aws: str, urls: tuple[str, str]) -> None:
    with pytest.raises(NotFoundError, match="there is no queue"):
        dead_letters(SqsQueue(f"{urls[0]}-not", setting="here"), diagnosis)
    with pytest.raises(NotFoundError, match="there is no queue"):
        SqsQueue("arn:aws:sqs:eu-central-1:123456789012:not-there", setting="here")
