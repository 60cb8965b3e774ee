"""The gateway: what it costs between clients and a broker, and what it adds."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.aws import BUCKET, sdk_environment
from bench.dynamodb import any_dynamodb
from bench.gateway_idle import IDLE_CONNECTIONS, measure_idle
from bench.gateway_process import byte_relay, frame_server, gateway
from bench.gateway_runs import (
    BYTES_ALONE,
    CREDIT,
    DIRECT,
    GATEWAY,
    ROUNDS,
    GatewayTable,
    RelayedRun,
    Way,
    Ways,
    best_run,
    race,
)
from bench.gateway_tls import TlsFiles, measure_tls
from bench.gateway_world import WrittenStream, broker_with
from bench.harness import MB, Aim, CannotMeasureError, Section, in_turns, percentile, say
from bench.local_s3 import LocalS3

BODY_BYTES = 200
LARGE, SMALL = WrittenStream("large", 4_000, 500), WrittenStream("small", 10_000, 1)
COLD_LARGE, COLD_SMALL = WrittenStream("cold-large", 4_000, 500, True), WrittenStream("cold-small", 100_000, 1, True)
SENT_LARGE, SENT_SMALL = WrittenStream("sent", 4_000, 500), WrittenStream("sent", 300_000, 1)
PUBLISHED, TIMED = "published", "timed"
PUBLISHED_MESSAGES, MESSAGES_A_FRAME, UNCONFIRMED = 1_000_000, 100, 20_000
TIMED_MESSAGES, INTERVAL_S = 500, 0.002
CHUNK_AIM_PER_S = 134_000

HOW = f"""\
A lean client, which looks at frames' lengths alone, talks to a real broker directly, through the gateway, and through
a relay that copies bytes and looks at none. Broker, gateway or relay, and client are processes of one machine; the
gateway has one process. Messages have {BODY_BYTES} bytes. Each run is a new client, {ROUNDS} rounds, in turns; the
best of them counts, as others may use the machine. CPU is that of the gateway's process.

Live reads get {LARGE.chunks:,} chunks of {LARGE.messages_a_chunk} messages, with a credit of
{CREDIT[LARGE.messages_a_chunk]} chunks, or {SMALL.chunks:,} chunks of one message, with a credit of
{CREDIT[SMALL.messages_a_chunk]:,}. A read before these, through the gateway, had the same bytes as one directly, by
their checksum. "Frames from memory" come from a server that has encoded them beforehand, and so has no cost of its
own: {SENT_LARGE.chunks:,} large ones, or {SENT_SMALL.chunks:,} of one message. A publisher sends
{PUBLISHED_MESSAGES:,} messages, {MESSAGES_A_FRAME} a frame, with {UNCONFIRMED:,} unconfirmed at most, until all are
confirmed. Times are those of {TIMED_MESSAGES} messages a round, one every {INTERVAL_S * 1000:.0f} ms, from its frame to
its confirm, and to its delivery to a consumer at another connection; both connections lead through the gateway.

The archive has the first {COLD_LARGE.chunks:,} chunks of a stream of large chunks and the first
{COLD_SMALL.chunks:,} of one of small chunks; the broker has lost them. The client reads them from `first` through the
gateway, and in turns equal chunks live from the broker. S3 is a local server without limits, which shares the machine:
it sends objects from memory by sendfile.

With TLS, the client has it to the broker, or to a gateway: one that speaks plainly to the broker, as beside it, or one
that has TLS to it, too. Memory is what a new gateway's process holds more with {IDLE_CONNECTIONS:,} connections that
are logged in and idle, in KB each; the broker's side of them is plain."""


def measure() -> Section:
    """Measure everything, which takes about five minutes."""
    table = GatewayTable()
    with ExitStack() as stack:
        dynamodb = stack.enter_context(any_dynamodb())
        fast = stack.enter_context(LocalS3(warm_mib=1024))
        sdk = sdk_environment(s3_url=fast.url, dynamodb_url=dynamodb.url)
        files = TlsFiles.made_in(Path(stack.enter_context(TemporaryDirectory(prefix="coldstream-bench-"))))
        say("writing streams")
        broker = stack.enter_context(
            broker_with(
                (LARGE, SMALL, COLD_LARGE, COLD_SMALL),
                {PUBLISHED: 100 * MB, TIMED: 100 * MB},
                message_bytes=BODY_BYTES,
                sdk=sdk,
                table=dynamodb.table,
                settings=files.broker_settings,
            )
        )
        settings = {**sdk, "COLDSTREAM_BUCKET": BUCKET, "COLDSTREAM_TABLE": dynamodb.table}
        port = broker.stream_port
        ours = stack.enter_context(gateway(port, settings))
        theirs = stack.enter_context(byte_relay(port))
        behind = {"the broker": broker.process_ids[0], "S3": fast.process_id}
        ways = {
            DIRECT: Way(port, behind=behind),
            BYTES_ALONE: Way(theirs.port, theirs),
            GATEWAY: Way(ours.port, ours, behind=behind),
        }
        _live(ways, table)
        _publish(ways, table)
        _times(ways, table)
        _from_memory(table, settings)
        _cold(ways, table)
        measure_tls(port, files, settings, live=LARGE, archived=COLD_LARGE, table=table)
        measure_idle(port, files, settings, table)
    return Section(
        title="Gateway",
        how=HOW,
        columns=("what", "unit", "direct", "gateway", "ratio", "ratio of a relay of bytes", "CPU s a GiB"),
        rows=tuple(table.rows),
        notes=tuple(table.notes),
        aims=tuple(table.aims),
    )


def _live(ways: Ways, table: GatewayTable) -> None:
    """Read live."""
    for stream, what, unit, counted, scale in (
        (LARGE, "live read", "MB/s", "bytes", MB),
        (SMALL, "live read, one-message chunks", "chunks/s", "chunks", 1),
    ):
        checked = {way: ways[way].read(stream, with_crc=True).child.answer for way in (DIRECT, GATEWAY)}
        if checked[DIRECT]["crc"] != checked[GATEWAY]["crc"]:
            raise CannotMeasureError(f"{what}: the gateway's bytes are not the broker's")
        runs = race(what, ways, operator.methodcaller("read", stream))
        ratio = table.rates(what, unit, runs, counted, scale)
        if stream is LARGE:
            table.aim("0.85x of a direct live read, or more", ratio, 0.85)
        else:
            table.aim(f"{CHUNK_AIM_PER_S:,} one-message chunks/s, or 0.95x of the direct rate", ratio, 0.95)


def _from_memory(table: GatewayTable, settings: Mapping[str, str]) -> None:
    for stream, what, unit, counted, scale in (
        (SENT_LARGE, "frames from memory", "MB/s", "bytes", MB),
        (SENT_SMALL, "frames from memory, one-message chunks", "chunks/s", "chunks", 1),
    ):
        with ExitStack() as stack:
            server = stack.enter_context(frame_server(stream.chunks, stream.messages_a_chunk))
            ours = stack.enter_context(gateway(server.port, settings))
            theirs = stack.enter_context(byte_relay(server.port))
            ways = {
                DIRECT: Way(server.port),
                BYTES_ALONE: Way(theirs.port, theirs),
                GATEWAY: Way(ours.port, ours),
            }
            runs = race(what, ways, operator.methodcaller("read", stream))
        table.rates(what, unit, runs, counted, scale)
        if stream is SENT_SMALL:
            best = best_run(runs[GATEWAY]).child
            found = best.answer["chunks"] / best.seconds
            table.aims.append(
                Aim(
                    f"{CHUNK_AIM_PER_S:,} one-message chunks/s through the gateway, from memory",
                    f"{found:,.0f}",
                    found >= CHUNK_AIM_PER_S,
                )
            )


def _publish(ways: Ways, table: GatewayTable) -> None:
    def publish(way: Way) -> RelayedRun:
        return way.call(
            "publish",
            stream=PUBLISHED,
            messages=PUBLISHED_MESSAGES,
            messages_a_frame=MESSAGES_A_FRAME,
            message_bytes=BODY_BYTES,
            unconfirmed=UNCONFIRMED,
        )

    ratio = table.rates("publish", "messages/s", race("publish", ways, publish), "messages", 1)
    table.aim("0.95x of direct publishing, or more", ratio, 0.95)


def _times(ways: Ways, table: GatewayTable) -> None:
    def time_answers(way: Way) -> RelayedRun:
        return way.call(
            "answer_times",
            stream=TIMED,
            messages=TIMED_MESSAGES,
            interval_s=INTERVAL_S,
            message_bytes=BODY_BYTES,
        )

    runs = race("times", ways, time_answers)
    for what in ("confirm", "delivery"):
        for percent in (50, 99):
            found = {way: _percentile_ms(each, what, percent) for way, each in runs.items()}
            added = found[GATEWAY] - found[DIRECT]
            table.rows.append(
                (
                    f"publish to {what}, p{percent}",
                    "ms",
                    found[DIRECT],
                    found[GATEWAY],
                    found[GATEWAY] / found[DIRECT],
                    found[BYTES_ALONE] / found[DIRECT],
                    "",
                )
            )
            if percent == 50:
                table.aims.append(
                    Aim(f"less than 0.3 ms added, p50, publish to {what}", f"{added:.2f} ms", added < 0.3)
                )


def _cold(ways: Ways, table: GatewayTable) -> None:
    """Read from the archive, and in turns as much live and directly."""
    for stream, equal, what, unit, counted, scale in (
        (COLD_LARGE, LARGE, "archive", "MB/s", "bytes", MB),
        (COLD_SMALL, SMALL, "archive, one-message chunks", "chunks/s", "chunks", 1),
    ):
        read = {DIRECT: partial(ways[DIRECT].read, equal), GATEWAY: partial(ways[GATEWAY].read, stream)}
        runs = in_turns(read, rounds=ROUNDS, label=f"{what}: ")
        ratio = table.rates(what, unit, runs, counted, scale)
        table.aim(f"what the same client gets live, or more; {what}", ratio, 1.0)
        if stream is COLD_LARGE:
            table.shares(what, runs)


def _percentile_ms(runs: list[RelayedRun], what: str, percent: int) -> float:
    """Return the least of the rounds' percentiles."""
    return 1000 * min(percentile(run.child.answer[what], percent) for run in runs)
