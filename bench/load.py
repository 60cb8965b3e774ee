"""Synthetic segments, and the events that announce them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from coldstream.archive.envelope import DETAIL_TYPE, SOURCE
from coldstream.archive.events import detail_of
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.format.writer import SegmentWriter
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import find_rolled
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import TimestampMs

FIRST_TIMESTAMP = 1_763_700_000_000
MESSAGES_A_CHUNK = 32
MS_A_CHUNK = 5


def stream(number: int) -> StreamId:
    """Return the `number`th stream."""
    name = f"bench-{number}"
    return StreamId("/", name, Incarnation(f"__{name}_{1_763_700_000_000_000_000 + number}"))


def make_segment(directory: Path, *, size_bytes: int, message_bytes: tuple[int, int]) -> SegmentSlice:
    """Write a segment of at least `size_bytes`: AMQP messages with bodies of sizes between two bounds."""
    dice = random.Random(1)
    noise = dice.randbytes(1 << 20)
    with SegmentWriter(directory, max_segment_bytes=size_bytes) as writer:
        timestamp = FIRST_TIMESTAMP
        while len(rolled := find_rolled(directory)) == 0:
            for _ in range(256):
                messages = []
                for _ in range(MESSAGES_A_CHUNK):
                    size = dice.randint(*message_bytes)
                    start = dice.randrange(len(noise) - size)
                    messages.append(b"\x00\x53\x75\xb0" + size.to_bytes(4) + noise[start : start + size])
                writer.write(messages, timestamp=TimestampMs(timestamp))
                timestamp += MS_A_CHUNK
    return rolled[0]


def sqs_event(segment: SegmentRolled) -> dict[str, Any]:
    """Return the event for the upload function, as it comes from EventBridge through SQS."""
    envelope = {
        "version": "0",
        "id": "00000000-0000-0000-0000-000000000000",
        "detail-type": DETAIL_TYPE,
        "source": SOURCE,
        "account": "000000000000",
        "time": "2026-01-01T00:00:00Z",
        "region": "us-east-1",
        "resources": [],
        "detail": json.loads(detail_of(segment)),
    }
    record = {
        "messageId": "1",
        "receiptHandle": "1",
        "body": json.dumps(envelope),
        "attributes": {},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:upload",
        "awsRegion": "us-east-1",
    }
    return {"Records": [record]}
