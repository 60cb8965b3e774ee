"""Record the golden logs: run a real broker, publish what tests want to see, keep its files and what was published.

    python -m tests.record_golden        from the checkout; needs RabbitMQ, and `pip install pika`

It replaces everything in tests/golden but the README. What the broker gives out to a consumer is compared with what was
published before anything is kept, and osiris's own reading of every chunk is kept beside the files.
"""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pika
from rstream import CompressionType

from tests.support.amqp_samples import MESSAGES
from tests.support.broker import Broker
from tests.support.golden import GOLDEN, MANIFEST, digest
from tests.support.osiris import OsirisLog
from tests.support.streams import StreamConnection, SubBatch

SEGMENT_BYTES = 100_000

Entries = list[bytes | SubBatch]


def text(length: int) -> bytes:
    """Return text that does not repeat and yet compresses."""
    words = random.choices(
        ["stream", "segment", "index", "chunk", "entry", "offset", "epoch", "größe"], k=length // 4 + 1
    )
    return " ".join(words).encode()[:length]


def publish_plain(broker: Broker, streams: StreamConnection, stream: str) -> list[bytes]:
    """Publish messages of 0 to 20,000 bytes, in rounds, so that chunks differ in size and time."""
    published = []
    for size in (1, 3, 40, 100, 160, 20, 20):
        messages = [text(random.choice([0, 1, 10, 100, 300, 1000])) for _ in range(size)]
        messages[size // 2] = random.randbytes(size * 125)
        streams.publish(stream, messages)
        time.sleep(0.02)
        published += messages
    return published


def publish_sub_batches(broker: Broker, streams: StreamConnection, stream: str) -> list[bytes]:
    """Publish sub-batches of every compression, of 1 to 400 messages, between plain messages."""
    entries: Entries = []
    for records in (1, 2, 15, 400):
        for compression in CompressionType:
            entries.append(SubBatch([text(random.randrange(100)) for _ in range(records)], compression))
            entries += [text(random.randrange(100)) for _ in range(records % 3)]
    entries += [SubBatch([b""] * 5, compression) for compression in CompressionType]
    streams.publish(stream, entries[:10])
    streams.publish(stream, entries[10:])
    return [message for entry in entries for message in (entry.messages if isinstance(entry, SubBatch) else [entry])]


def publish_tracking(broker: Broker, streams: StreamConnection, stream: str) -> list[bytes]:
    """Publish by named publishers, and store consumers' offsets, over several segments: each opens with a snapshot."""
    published = []
    for round_ in range(36):
        messages = [text(250) for _ in range(40)]
        streams.publish(stream, messages, publisher=("alpha", "beta", "größe")[round_ % 3])
        published += messages
        if round_ % 2:
            streams.store_offset(stream, ("reports", "注文")[round_ % 4 // 2], len(published))
    return published


def publish_amqp(broker: Broker, streams: StreamConnection, stream: str) -> list[bytes]:
    """Publish AMQP 1.0 messages with every kind of section and value, plainly and once more as a sub-batch."""
    messages = list(MESSAGES.values())
    streams.publish(stream, [*messages, SubBatch(messages, CompressionType.Gzip)])
    return messages * 2


def publish_amqp_0_9_1(broker: Broker, streams: StreamConnection, stream: str) -> list[bytes]:
    """Publish by AMQP 0.9.1: the broker makes AMQP 1.0 messages of it, so only it can say what is in the stream.

    A decimal among the headers would crash the channel of RabbitMQ 3.10.
    """
    properties = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="identity",
        headers={
            "text": "größe",
            "number": 42,
            "big": 1 << 40,
            "flag": True,
            "nothing": None,
            "bytes": b"\x00\xff",
            "time": datetime(2025, 11, 21, tzinfo=UTC),
            "list": [1, "two"],
            "table": {"a": 1},
        },
        delivery_mode=2,
        priority=5,
        correlation_id="correlation",
        reply_to="back",
        expiration="60000",
        message_id="id-1",
        timestamp=1_763_700_000,
        type="type",
        user_id="guest",
        app_id="app",
    )
    with pika.BlockingConnection(pika.ConnectionParameters(broker.host, broker.amqp_port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in (b"", b"plain", bytes(300)):
            channel.basic_publish("", stream, body)
            channel.basic_publish("", stream, body, properties)
    return [message for _, message in streams.read(stream, 6)]


STREAMS: dict[str, Callable[[Broker, StreamConnection, str], list[bytes]]] = {
    "plain": publish_plain,
    "sub-batches": publish_sub_batches,
    "tracking": publish_tracking,
    "amqp-1-0": publish_amqp,
    "amqp-0-9-1": publish_amqp_0_9_1,
}


def main() -> None:
    """Record every stream."""
    random.seed(1)
    logs = {}
    with tempfile.TemporaryDirectory() as temporary, Broker() as broker, broker.connect() as streams:
        for stream, publish in STREAMS.items():
            streams.create_stream(stream, max_segment_bytes=SEGMENT_BYTES)
            published = publish(broker, streams, stream)
            consumed = [message for _, message in streams.read(stream, len(published))]
            if consumed != published:
                sys.exit(f"{stream}: a consumer gets other messages than were published")
            recorded = Path(temporary, broker.stream_directory(stream).name)
            shutil.copytree(broker.stream_directory(stream), recorded)
            logs[stream] = {
                "incarnation": recorded.name,
                "messages": [digest(message) for message in published],
                "chunks": [dataclasses.astuple(chunk) for chunk in OsirisLog(recorded).chunks()],
            }
        version = broker.ctl("version").strip()
        for old in GOLDEN.glob("*/"):
            shutil.rmtree(old)
        for recorded in Path(temporary).iterdir():
            shutil.copytree(recorded, GOLDEN / recorded.name)
    MANIFEST.write_text(json.dumps({"rabbitmq": version, "vhost": "/", "logs": logs}) + "\n")
    sizes = [file.stat().st_size for file in GOLDEN.rglob("*") if file.is_file()]
    sys.stdout.write(f"{len(sizes)} files, {sum(sizes):,} bytes in {GOLDEN}\n")


if __name__ == "__main__":
    main()
