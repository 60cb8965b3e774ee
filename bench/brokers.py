"""A real broker, and an emulated AWS beside it, for measurements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.harness import CannotMeasureError
from bench.usage import children, put_last
from coldstream.local.stack import EmulatedStack
from tests.support.broker import Broker, find_rabbitmq

BODY_BYTES = 200
MESSAGE = b"\x00\x53\x75\xa0" + bytes((BODY_BYTES,)) + b"x" * BODY_BYTES
"""An AMQP 1.0 message of one data section, as stream clients send it."""


def new_broker() -> Broker:
    """Return a private broker, to be used as a context manager. Raises CannotMeasureError where none is installed."""
    if find_rabbitmq() is None:
        raise CannotMeasureError("RabbitMQ is not installed; `make broker` installs Debian's")
    return Broker()


@contextmanager
def aws_behind() -> Iterator[EmulatedStack]:
    """Run the emulated AWS and the functions in what the rest leaves of the processor: really they run elsewhere."""
    before = set(children())
    with EmulatedStack() as stack:
        for process_id in set(children()) - before:
            put_last(process_id)
        yield stack
