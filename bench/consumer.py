"""Messages per second of `coldstream.Consumer`, from the archive and live, against plain rstream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import rstream

from bench.archive import archive, resolver
from bench.aws import sdk_environment
from bench.brokers import BODY_BYTES, MESSAGE, new_broker, publish_segment
from bench.decode import rich_messages
from bench.dynamodb import any_dynamodb
from bench.harness import (
    MB,
    MIB,
    Aim,
    CannotMeasureError,
    Cell,
    ChildRun,
    Section,
    Stopwatch,
    in_child,
    in_turns,
    median_run,
    say,
)
from bench.local_s3 import LIKE_S3, LocalS3
from coldstream import Consumer
from coldstream.live.address import BrokerAddress
from coldstream.manifest.spec import FIRST
from tests.support.broker import Broker

SEGMENT_BYTES = 100_000_000
ROUNDS = 3
ARCHIVED, UNARCHIVED, RICH = "archived", "unarchived", "with properties"
RICH_MESSAGE = next(rich_messages())
ARCHIVE = "Consumer, archive"
LIVE = "Consumer, live"
PLAIN = "rstream, decoded"
BARE = "rstream, not decoded"
RICH_ARCHIVE = "with properties: Consumer, archive"
RICH_PLAIN = "with properties: rstream, decoded"
BASELINES = {RICH_ARCHIVE: RICH_PLAIN, RICH_PLAIN: RICH_PLAIN}
"""The baseline of each contender, if it is not PLAIN."""

HOW = f"""\
A segment of {SEGMENT_BYTES // MB} MB that a real broker has rolled, with messages of {BODY_BYTES} bytes, is read
from the first message to the last by iterating `messages()` and reading each body. `coldstream.Consumer` reads it
from the archive, through the resolver behind a local HTTP server and an S3 with 10 ms of latency and 90 MiB/s a
connection; it reads an equal stream that is not archived from the broker; and plain rstream reads that from the
broker, once with its `amqp_decoder`, and once with a callback that gets the encoded messages. Then messages with
bodies of the same size, four properties and four application properties are read in the same ways. Connecting
counts. Each run is a new process, {ROUNDS} rounds, in turns; the broker shares the machine. The bytes that S3 sent
prove which runs read the archive."""


def measure() -> Section:
    """Measure all of them, and count what S3 sends meanwhile."""
    with ExitStack() as stack:
        broker = stack.enter_context(new_broker())
        dynamodb = stack.enter_context(any_dynamodb())
        s3 = stack.enter_context(LocalS3(**LIKE_S3, warm_mib=3 * SEGMENT_BYTES // MIB))
        sdk = sdk_environment(s3_url=s3.url, dynamodb_url=dynamodb.url)
        say("publishing")
        publish_segment(broker, UNARCHIVED, MESSAGE, SEGMENT_BYTES)
        messages = {}
        for name, message in ((ARCHIVED, MESSAGE), (RICH, RICH_MESSAGE)):
            segment, stream = publish_segment(broker, name, message, SEGMENT_BYTES)
            archive([segment], stream, sdk, dynamodb.table)
            messages[name] = int(segment.next_offset)
        url = stack.enter_context(resolver(sdk, dynamodb.table))
        runs = _race(broker, url, s3, messages)
    rates = {what: [run.messages_per_s for run in found] for what, found in runs.items()}
    medians = {what: median_run(found, lambda run: run.messages_per_s) for what, found in runs.items()}
    ratios = {
        what: run.messages_per_s / medians[BASELINES.get(what, PLAIN)].messages_per_s for what, run in medians.items()
    }
    rows: list[tuple[Cell, ...]] = [
        (what, run.messages_per_s, ratios[what], run.cpu_s, run.peak_memory_mb) for what, run in medians.items()
    ]
    aims = tuple(
        Aim(f"rstream's rate or more; {what}", f"{ratios[what]:.2f}x", ratios[what] >= 1)
        for what in (ARCHIVE, LIVE, RICH_ARCHIVE)
    )
    spread = "; ".join(f"{what} {min(found):,.0f} to {max(found):,.0f}" for what, found in rates.items())
    return Section(
        title="Consumer",
        how=HOW,
        columns=("what", "messages/s", "of rstream", "CPU s", "peak memory, MB"),
        rows=tuple(rows),
        notes=(f"Least and most messages/s: {spread}",),
        aims=aims,
    )


def consume(url: str, broker: str, stream: str, messages: int) -> dict[str, float]:
    """Read the first messages of a stream with `coldstream.Consumer`. Called by `harness.in_child`."""

    async def run() -> int:
        total = count = 0
        async with Consumer(stream, FIRST, resolver=url, broker=broker) as consumer:
            async for message in consumer.messages():
                total += len(message.body)
                count += 1
                if count == messages:
                    break
        return total

    return _timed(run, messages)


def consume_plainly(broker: str, stream: str, messages: int, *, decoded: bool) -> dict[str, float]:
    """Read the first messages of a stream with rstream. Called by `harness.in_child`."""
    host, port = BrokerAddress.from_uri(broker).hosts[0]

    async def run() -> int:
        total = count = 0
        finished = asyncio.Event()

        def take(message: Any, _: rstream.MessageContext) -> None:
            nonlocal total, count
            if count < messages:
                total += len(message.body) if decoded else len(message)
                count += 1
                if count == messages:
                    finished.set()

        consumer = rstream.Consumer(host, port, username="guest", password="guest")  # noqa: S106  of our own broker
        await consumer.start()
        await consumer.subscribe(
            stream,
            take,
            decoder=rstream.amqp_decoder if decoded else None,
            offset_specification=rstream.ConsumerOffsetSpecification(rstream.OffsetType.FIRST),
        )
        await finished.wait()
        await consumer.close()
        return total

    return _timed(run, messages)


def _timed(run: Callable[[], Any], messages: int) -> dict[str, float]:
    with Stopwatch() as stopwatch:
        total = asyncio.run(run())
    return {"seconds": stopwatch.seconds, "cpu_s": stopwatch.cpu_s, "bytes": total, "messages": messages}


def _race(broker: Broker, url: str, s3: LocalS3, archived: dict[str, int]) -> dict[str, list[ChildRun]]:
    """Return the runs of each contender. `archived` are the messages of each archived stream."""
    uri, module = broker.stream_uri, "bench.consumer"
    contenders: dict[str, tuple[str, dict[str, Any]]] = {
        ARCHIVE: ("consume", {"url": url, "stream": ARCHIVED}),
        LIVE: ("consume", {"url": url, "stream": UNARCHIVED}),
        PLAIN: ("consume_plainly", {"stream": UNARCHIVED, "decoded": True}),
        BARE: ("consume_plainly", {"stream": UNARCHIVED, "decoded": False}),
        RICH_ARCHIVE: ("consume", {"url": url, "stream": RICH}),
        RICH_PLAIN: ("consume_plainly", {"stream": RICH, "decoded": True}),
    }

    def run(what: str, function: str, options: dict[str, Any]) -> ChildRun:
        s3.stats(reset=True)
        messages = archived.get(options["stream"], archived[ARCHIVED])
        result = in_child(f"{module}:{function}", {"broker": uri, "messages": messages, **options})
        body_bytes = messages * (len(MESSAGE) if what == BARE else BODY_BYTES)
        sent = s3.stats()["bytes out"]
        is_from_archive = function == "consume" and what != LIVE
        if result.answer["bytes"] != body_bytes or (sent >= messages * BODY_BYTES) is not is_from_archive:
            raise CannotMeasureError(f"{what} read {result.answer['bytes']} bytes of {body_bytes}; S3 sent {sent}")
        return result

    return in_turns({what: partial(run, what, *contender) for what, contender in contenders.items()}, rounds=ROUNDS)
