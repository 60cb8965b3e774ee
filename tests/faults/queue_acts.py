"""Dead letters: put into their queue, and looked for at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import boto3

from coldstream.archive.segment_rolled import SegmentRolled
from tests.faults.fault_acts import Act, Outcome, upload_event
from tests.faults.faulty_world import DEAD_LETTERS, UPLOADS_QUEUE, FaultyWorld

_COUNTS = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]


def letters_of(events: Callable[[FaultyWorld], Sequence[SegmentRolled]]) -> Act:
    """Create both queues, with a dead letter for each of these events."""

    def act(world: FaultyWorld) -> Outcome:
        sqs = boto3.client("sqs")
        for url in (DEAD_LETTERS, UPLOADS_QUEUE):
            sqs.create_queue(QueueName=url.rpartition("/")[2])
        for record in upload_event(*events(world))["Records"]:
            sent = sqs.send_message(QueueUrl=DEAD_LETTERS, MessageBody=record["body"])
            world.letters.append(sent["MessageId"])
        return Outcome(b"")

    return act


def no_letter_is_lost(world: FaultyWorld) -> Outcome:
    """Find each letter in one of the queues, or in both."""
    sqs = boto3.client("sqs")
    counts = [
        sum(
            int(count)
            for count in sqs.get_queue_attributes(QueueUrl=url, AttributeNames=_COUNTS)["Attributes"].values()
        )
        for url in (DEAD_LETTERS, UPLOADS_QUEUE)
    ]
    return Outcome(
        b"", None if sum(counts) >= len(world.staged) else f"letters are lost, there are {json.dumps(counts)}"
    )


def first_letter(world: FaultyWorld) -> tuple[str]:
    """Return the id of a dead letter."""
    return (world.letters[0],)
