"""Replay of an archived stream into a broker, against rstream publishing the same messages."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Any

import rstream

from bench.archive import archive
from bench.aws import BUCKET, sdk_environment
from bench.brokers import BODY_BYTES, MESSAGE, new_broker, publish_segment
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
from coldstream.live.address import BrokerAddress
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.replay.request import ReplayRequest
from coldstream.replay.stream import replay_to_stream
from coldstream.replay.target import SendOptions, StreamTarget
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import Offset
from tests.support.broker import Broker

SEGMENT_BYTES = 400_000_000
RSTREAM_MESSAGES = 500_000
RSTREAM_BATCH = 1000
ROUNDS = 3
RAW, DECODED, PLAIN = "replay, as it is", "replay, through a function", "rstream"

HOW = f"""\
A segment of {SEGMENT_BYTES // MB} MB that a real broker has rolled, with messages of {BODY_BYTES} bytes, is
archived by the upload function and replayed into a fresh stream of the same broker, from the first message to the
confirm of the last. The manifest is read from DynamoDB, the fragments from an S3 with 10 ms of latency and 90 MiB/s
a connection. A second replay passes a function that changes nothing, so that each message is unpacked and packed
again. The baseline is rstream, which publishes {RSTREAM_MESSAGES:,} of the same messages from memory, already
encoded, by `send_batch` of {RSTREAM_BATCH:,}, as single entries, its default, until all are confirmed. Connecting
counts. Each run is a new process, {ROUNDS} rounds, in turns; the broker shares the machine."""


def measure() -> Section:
    """Measure a replay of raw entries, a decoded one, and rstream."""
    with ExitStack() as stack:
        broker = stack.enter_context(new_broker())
        dynamodb = stack.enter_context(any_dynamodb())
        s3 = stack.enter_context(LocalS3(**LIKE_S3, warm_mib=2 * SEGMENT_BYTES // MIB))
        sdk = sdk_environment(s3_url=s3.url, dynamodb_url=dynamodb.url)
        say("publishing")
        segment, stream = publish_segment(broker, "source", MESSAGE, SEGMENT_BYTES)
        archive([segment], stream, sdk, dynamodb.table)
        runs = _race(broker, sdk, dynamodb.table, stream, int(segment.next_offset))
    rates = {what: [run.messages_per_s for run in found] for what, found in runs.items()}
    medians = {what: median_run(found, lambda run: run.messages_per_s) for what, found in runs.items()}
    baseline = medians[PLAIN].messages_per_s
    rows: list[tuple[Cell, ...]] = [
        (what, run.messages_per_s, run.messages_per_s / baseline, run.cpu_s, run.peak_memory_mb)
        for what, run in medians.items()
    ]
    ratio = medians[RAW].messages_per_s / baseline
    decoded_ratio = medians[DECODED].messages_per_s / baseline
    spread = "; ".join(f"{what} {min(found):,.0f} to {max(found):,.0f}" for what, found in rates.items())
    return Section(
        title="Replay into a broker",
        how=HOW,
        columns=("what", "messages/s", "of rstream", "CPU s", "peak memory, MB"),
        rows=tuple(rows),
        notes=(f"Least and most messages/s: {spread}",),
        aims=(
            Aim("5x of rstream's rate, or more", f"{ratio:.1f}x", ratio >= 5),
            Aim("3x of rstream's rate, or more, through a function", f"{decoded_ratio:.1f}x", decoded_ratio >= 3),
        ),
    )


def keep(message: Any) -> Any:
    """Return the message as it is."""
    return message


def replay(
    broker: str, target: str, table: str, stream: list[str], messages: int, *, decoded: bool
) -> dict[str, float]:
    """Replay a stream. Called by `harness.in_child`."""
    vhost, name, incarnation = stream
    source = ReplayRequest(StreamId(vhost, name, Incarnation(incarnation)), Offset(0), Offset(messages))
    options = SendOptions(transform=f"{__name__}:keep" if decoded else None)
    with Stopwatch() as stopwatch:
        summary = replay_to_stream(
            DynamoTable(table), S3Objects(BUCKET), source, StreamTarget(broker, target), options=options
        )
    return {"seconds": stopwatch.seconds, "cpu_s": stopwatch.cpu_s, "messages": summary.messages}


def publish_plainly(broker: str, target: str) -> dict[str, float]:
    """Publish the same messages with rstream. Called by `harness.in_child`."""
    host, port = BrokerAddress.from_uri(broker).hosts[0]

    async def run() -> None:
        confirmed = 0
        finished = asyncio.Event()

        def confirm(status: rstream.ConfirmationStatus) -> None:
            nonlocal confirmed
            confirmed += status.is_confirmed
            if confirmed == RSTREAM_MESSAGES:
                finished.set()

        async with rstream.Producer(host, port, username="guest", password="guest") as producer:  # noqa: S106 - our own
            for _ in range(RSTREAM_MESSAGES // RSTREAM_BATCH):
                await producer.send_batch(target, [MESSAGE] * RSTREAM_BATCH, on_publish_confirm=confirm)
            await finished.wait()

    with Stopwatch() as stopwatch:
        asyncio.run(run())
    return {"seconds": stopwatch.seconds, "cpu_s": stopwatch.cpu_s, "messages": RSTREAM_MESSAGES}


def _race(
    broker: Broker, sdk: dict[str, str], table: str, stream: StreamId, messages: int
) -> dict[str, list[ChildRun]]:
    """Return the runs of each contender."""
    source = {"table": table, "stream": [stream.vhost, stream.name, stream.incarnation], "messages": messages}
    contenders: dict[str, tuple[str, dict[str, Any]]] = {
        RAW: ("replay", {**source, "decoded": False}),
        DECODED: ("replay", {**source, "decoded": True}),
        PLAIN: ("publish_plainly", {}),
    }
    targets = count()

    def run(what: str, function: str, options: dict[str, Any]) -> ChildRun:
        target = f"target {next(targets)} {what}"
        with broker.connect() as streams:
            streams.create_stream(target, max_segment_bytes=SEGMENT_BYTES)
            arguments = {"broker": broker.stream_uri, "target": target, **options}
            result = in_child(f"bench.replay:{function}", arguments, sdk)
            streams.delete_stream(target)
        if what != PLAIN and result.answer["messages"] != messages:
            raise CannotMeasureError(f"{what} sent {result.answer['messages']} messages of {messages}")
        return result

    return in_turns({what: partial(run, what, *contender) for what, contender in contenders.items()}, rounds=ROUNDS)
