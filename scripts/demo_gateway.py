"""A stock client reads the whole history through the gateway: `make demo-gateway`.

The demo starts its own RabbitMQ and publishes to a stream whose retention keeps next to nothing. An agent beside the
broker has what rolls archived, by the functions of template.yaml on an emulated AWS. Then rstream, the Python client
that knows nothing of coldstream, subscribes from `first`: once straight to the broker, and once through
`coldstream gateway`, where only the port differs. What it is given is compared with what was published, and afterwards
it goes on live.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from rstream import AMQPMessage, Consumer, ConsumerOffsetSpecification, MessageContext, OffsetType, amqp_decoder

from coldstream.errors import ColdstreamError, StreamNotFoundError
from coldstream.local.stack import EmulatedStack
from coldstream.read.client import ResolverClient
from tests.support.agent import AgentProcess
from tests.support.broker import HOST, Broker, find_rabbitmq
from tests.support.gateway_program import GatewayProgram
from tests.support.streams import StreamConnection

STREAM = "orders"
MESSAGES = 200_000
ROUND_MESSAGES = 5_000
LIVE_MESSAGES = 1_000
SEGMENT_BYTES = 1_000_000
RETENTION_BYTES = 2_000_000
SETTLE_S = 120.0


def say(text: str) -> None:
    """Report progress to whoever watches the demo."""
    print(f"  {text}", file=sys.stderr, flush=True)


@dataclass(slots=True)
class ReadBack:
    """What a client was given."""

    first: int | None = None
    messages: int = 0
    out_of_order: int = 0
    corrupted: int = 0
    next: int = field(default=-1)

    def take(self, offset: int, body: bytes) -> None:
        """Count a message."""
        if self.first is None:
            self.first = self.next = offset
        self.out_of_order += offset != self.next
        self.corrupted += body != body_of(offset)
        self.next = offset + 1
        self.messages += 1


def body_of(offset: int) -> bytes:
    """Make the message that is published at an offset."""
    return b"order %d " % offset + b"x" * (50 + offset % 100)


def main() -> int:
    """Publish, let retention delete, and read everything through the gateway; return 0 if all of it came."""
    logging.getLogger("coldstream").setLevel(logging.ERROR)
    if find_rabbitmq() is None:
        raise SystemExit("RabbitMQ is not installed: `make broker` installs Debian's")
    with ExitStack() as exits:
        stack = exits.enter_context(EmulatedStack())
        os.environ.update(stack.environment)
        broker = exits.enter_context(Broker(management=True))
        state = Path(exits.enter_context(TemporaryDirectory(prefix="demo-gateway-")))
        options = ("--data", broker.data_directory, "--management", broker.management_url, "--max-lag", "3s")
        agent = exits.enter_context(AgentProcess(stack.environment, state / "agent", broker.stream_uri, *options))
        agent.wait_ready()
        streams = exits.enter_context(broker.connect())
        streams.create_stream(STREAM, max_segment_bytes=SEGMENT_BYTES, max_length_bytes=RETENTION_BYTES)
        directory = broker.stream_directory(STREAM)
        for first in range(0, MESSAGES, ROUND_MESSAGES):
            publish(streams, first, first + ROUND_MESSAGES)
            # A machine that is busy with a broker, an agent and an AWS would fall behind a retention as small as this.
            wait_for(stack.resolver_url, max(int(path.stem) for path in directory.glob("*.segment")))
        kept = min(int(path.stem) for path in directory.glob("*.segment"))
        say(f"published {MESSAGES:,} messages; the broker has deleted offsets 0 to {kept - 1:,}")

        straight = asyncio.run(read(broker.stream_port, MESSAGES))
        say(f"straight to the broker, `first` is offset {straight.first:,}: {straight.messages:,} messages")
        with GatewayProgram(
            stack.environment, state / "gateway.log", "--broker", f"{HOST}:{broker.stream_port}", "--processes", 1
        ) as gateway:
            say(f"coldstream gateway listens at port {gateway.port}, in front of the broker's {broker.stream_port}")
            began = time.monotonic()
            found = asyncio.run(read(gateway.port, MESSAGES + LIVE_MESSAGES, lambda: publish_live(broker)))
            say(
                f"through the gateway, `first` is offset {found.first}: {found.messages:,} messages"
                f" in {time.monotonic() - began:.1f} s, the last {LIVE_MESSAGES:,} of them live"
            )
            time.sleep(1.5)  # until its process has reported
            for name in ("takeovers_total", "handovers_total", "archive_chunks_total", "archive_bytes_total"):
                say(f"coldstream_gateway_{name} {gateway.metric(f'coldstream_gateway_{name}')}")
    lost = MESSAGES + LIVE_MESSAGES - found.messages
    print(
        f"demo: {found.messages} read through the gateway, {lost} lost, {found.out_of_order} out of order,"
        f" {found.corrupted} corrupted",
        flush=True,
    )
    return 0 if (found.first, lost, found.out_of_order, found.corrupted) == (0, 0, 0, 0) else 1


def publish(streams: StreamConnection, first: int, end: int) -> None:
    """Publish the messages of these offsets."""
    streams.publish(STREAM, [AMQPMessage(body=body_of(offset)).__bytes__() for offset in range(first, end)])


def publish_live(broker: Broker) -> None:
    """Publish some more, once a client has read the rest."""
    with broker.connect() as streams:
        publish(streams, MESSAGES, MESSAGES + LIVE_MESSAGES)


async def read(port: int, end: int, at_tail: object = None) -> ReadBack:
    """Read from `first` up to an offset, as any program would."""
    found = ReadBack()
    is_over = asyncio.Event()
    loop = asyncio.get_running_loop()
    consumer = Consumer(HOST, port, username="guest", password="guest")  # noqa: S106  a broker of the demo's own

    def take(message: AMQPMessage, context: MessageContext) -> None:
        found.take(context.offset, bytes(message.body))
        if found.next == MESSAGES and callable(at_tail):
            loop.run_in_executor(None, at_tail)
        if found.next == end:
            is_over.set()

    await consumer.start()
    try:
        first = ConsumerOffsetSpecification(OffsetType.FIRST, None)
        await consumer.subscribe(STREAM, take, decoder=amqp_decoder, offset_specification=first, initial_credit=50)
        async with asyncio.timeout(SETTLE_S):
            await is_over.wait()
    finally:
        await consumer.close()
    return found


def wait_for(resolver_url: str, offset: int) -> None:
    """Wait until everything below an offset is archived."""
    deadline = time.monotonic() + SETTLE_S
    with ResolverClient(resolver_url) as client:
        while archived_to(client) < offset:
            if time.monotonic() > deadline:
                raise SystemExit(f"offset {offset} was not archived within {SETTLE_S} s")
            time.sleep(0.1)


def archived_to(client: ResolverClient) -> int:
    """Return where the archive ends."""
    try:
        return client.describe("/", STREAM).head.next_offset or 0
    except StreamNotFoundError:
        return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ColdstreamError as err:
        sys.exit(f"demo: {err}")
