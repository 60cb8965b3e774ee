"""Replay of an archived stream into a broker, against rstream publishing the same messages."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import rstream

from bench.archived import archive
from bench.aws import BUCKET, sdk_environment
from bench.brokers import BODY_BYTES, MESSAGE, new_broker
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
    median_run,
    say,
)
from bench.locals3 import LocalS3
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import find_rolled
from coldstream.live.address import BrokerAddress
from coldstream.manifest.stream import Incarnation, StreamId, incarnation
from coldstream.replay.request import ReplayRequest
from coldstream.replay.stream import replay_to_stream
from coldstream.replay.target import SendOptions, StreamTarget
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import Offset
from tests.support.broker import Broker

SEGMENT_BYTES = 400_000_000
BATCH = 50_000
RSTREAM_MESSAGES = 500_000
RSTREAM_BATCH = 1000
ROUNDS = 3
S3 = {"latency_ms": 10, "connection_mib_s": 90}
RAW, DECODED, PLAIN = "replay, as it is", "replay, through a function", "rstream"

HOW = f"""\
A segment of {SEGMENT_BYTES // MB} MB that a real broker has rolled, messages of {BODY_BYTES} bytes, archived by the
upload function, and replayed into a fresh stream of the same broker, from the first message to the confirm of the last.
The manifest is read from DynamoDB, the fragments from an S3 with 10 ms of latency and 90 MiB/s a connection. Then the
same through a function that changes nothing, for which each message is unpacked and packed again. Against it, rstream
publishes {RSTREAM_MESSAGES:,} of the same messages out of memory, encoded already, by `send_batch` of
{RSTREAM_BATCH:,}, one by one as it does unless told to pack them, until all are confirmed. Connecting counts.
Each in a new process, {ROUNDS} rounds, in turns; the broker shares the machine."""


def measure() -> Section:
    """Measure the three."""
    with ExitStack() as stack:
        broker = stack.enter_context(new_broker())
        dynamodb = stack.enter_context(any_dynamodb())
        s3 = stack.enter_context(LocalS3(**S3, warm_mib=2 * SEGMENT_BYTES // MIB))
        sdk = sdk_environment(s3_url=s3.url, dynamodb_url=dynamodb.url)
        say("publishing")
        segment, stream = _publish(broker)
        archive([segment], stream, sdk, dynamodb.table)
        runs = _race(broker, sdk, dynamodb.table, stream, int(segment.next_offset))
    rates = {what: [_rate(run) for run in found] for what, found in runs.items()}
    medians = {what: median_run(found, _rate) for what, found in runs.items()}
    baseline = _rate(medians[PLAIN])
    rows: list[tuple[Cell, ...]] = [
        (what, _rate(run), _rate(run) / baseline, float(run.answer["cpu_s"]), f"{run.peak_rss_bytes / MB:.0f}")
        for what, run in medians.items()
    ]
    ratio = _rate(medians[RAW]) / baseline
    spread = "; ".join(f"{what} {min(found):,.0f} to {max(found):,.0f}" for what, found in rates.items())
    return Section(
        title="Replay into a broker",
        how=HOW,
        columns=("what", "messages/s", "of rstream", "CPU s", "peak memory, MB"),
        rows=tuple(rows),
        notes=(f"Least and most messages/s: {spread}",),
        aims=(Aim("5x of rstream's rate, or more", f"{ratio:.1f}x", ratio >= 5),),
    )


def keep(message: Any) -> Any:
    """Change nothing."""
    return message


def replay(
    broker: str, target: str, table: str, stream: list[str], messages: int, *, decoded: bool
) -> dict[str, float]:
    """Replay a stream; to be called by `harness.in_child`."""
    vhost, name, life = stream
    source = ReplayRequest(StreamId(vhost, name, Incarnation(life)), Offset(0), Offset(messages))
    options = SendOptions(transform=f"{__name__}:keep" if decoded else None)
    with Stopwatch() as stopwatch:
        summary = replay_to_stream(
            DynamoTable(table), S3Objects(BUCKET), source, StreamTarget(broker, target), options=options
        )
    return {"seconds": stopwatch.seconds, "cpu_s": stopwatch.cpu_s, "messages": summary.messages}


def publish_plainly(broker: str, target: str) -> dict[str, float]:
    """Publish the same messages with rstream; to be called by `harness.in_child`."""
    host, port = BrokerAddress.from_uri(broker).hosts[0]

    async def run() -> None:
        confirmed = 0
        done = asyncio.Event()

        def confirm(status: rstream.ConfirmationStatus) -> None:
            nonlocal confirmed
            confirmed += status.is_confirmed
            if confirmed == RSTREAM_MESSAGES:
                done.set()

        async with rstream.Producer(host, port, username="guest", password="guest") as producer:  # noqa: S106 - our own
            for _ in range(RSTREAM_MESSAGES // RSTREAM_BATCH):
                await producer.send_batch(target, [MESSAGE] * RSTREAM_BATCH, on_publish_confirm=confirm)
            await done.wait()

    with Stopwatch() as stopwatch:
        asyncio.run(run())
    return {"seconds": stopwatch.seconds, "cpu_s": stopwatch.cpu_s, "messages": RSTREAM_MESSAGES}


def _publish(broker: Broker) -> tuple[SegmentSlice, StreamId]:
    """Publish until a segment has rolled; return that."""
    name = "source"
    with broker.connect() as streams:
        streams.create_stream(name, max_segment_bytes=SEGMENT_BYTES)
        directory: Path = broker.stream_directory(name)
        while not (rolled := find_rolled(directory)):
            streams.publish(name, [MESSAGE] * BATCH)
    return rolled[0], StreamId("/", name, incarnation(directory.name))


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
    runs: dict[str, list[ChildRun]] = {what: [] for what in contenders}
    for number in range(ROUNDS):
        say(f"round {number + 1} of {ROUNDS}")
        for what, (function, options) in contenders.items():
            target = f"target {number} {what}"
            with broker.connect() as streams:
                streams.create_stream(target, max_segment_bytes=SEGMENT_BYTES)
                run = in_child(
                    f"bench.replay:{function}", {"broker": broker.stream_uri, "target": target, **options}, sdk
                )
                streams.delete_stream(target)
            if what != PLAIN and run.answer["messages"] != messages:
                raise CannotMeasureError(f"{what} sent {run.answer['messages']} messages of {messages}")
            runs[what].append(run)
    return runs


def _rate(run: ChildRun) -> float:
    return float(run.answer["messages"] / run.answer["seconds"])
