"""A real broker with a stream, and an emulated AWS beside it, for measurements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import CannotMeasureError
from bench.usage import children, put_last
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import find_rolled
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.stream import StreamId, incarnation
from tests.support.broker import Broker, find_rabbitmq

BATCH = 50_000
BODY_BYTES = 200
MESSAGE = b"\x00\x53\x75\xa0" + bytes((BODY_BYTES,)) + b"x" * BODY_BYTES
"""An AMQP 1.0 message of one data section, as stream clients send it."""


def new_broker(settings: str = "") -> Broker:
    """Return a private broker, a context manager; `settings` are lines of rabbitmq.conf.

    Raises CannotMeasureError if RabbitMQ is not installed.
    """
    if find_rabbitmq() is None:
        raise CannotMeasureError("RabbitMQ is not installed; `make broker` installs Debian's")
    return Broker(settings=settings)


def publish_segment(broker: Broker, name: str, message: bytes, segment_bytes: int) -> tuple[SegmentSlice, StreamId]:
    """Create a stream and publish a message to it until a segment has rolled; return that segment."""
    with broker.connect() as streams:
        streams.create_stream(name, max_segment_bytes=segment_bytes)
        directory: Path = broker.stream_directory(name)
        while not (rolled := find_rolled(directory)):
            streams.publish(name, [message] * BATCH)
    return rolled[0], StreamId("/", name, incarnation(directory.name))


@contextmanager
def background_aws() -> Iterator[EmulatedStack]:
    """Run the emulated AWS and the functions at the lowest priority: in production they run on other machines."""
    before = set(children())
    with EmulatedStack() as stack:
        for process_id in set(children()) - before:
            put_last(process_id)
        yield stack
