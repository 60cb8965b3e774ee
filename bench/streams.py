"""Streams without a broker: speed, cost and recovery, each against a baseline of the same run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.archive import resolver
from bench.aws import sdk_environment
from bench.dynamodb import any_dynamodb
from bench.harness import (
    MIB,
    ROOT,
    Aim,
    CannotMeasureError,
    Cell,
    ChildRun,
    Section,
    in_child,
    in_turns,
    median_runs,
    say,
)
from bench.local_s3 import LocalS3
from bench.stream_acknowledgements import Acknowledgements
from bench.stream_costs import Cost, cost_of
from bench.stream_reads import STREAM

LATENCY_MS = 30
ROUNDS = 3
GIB = 1 << 30

INTERVAL_S = 0.1
ACK_RATE, ACK_STREAMS, ACK_S = 1000, 20, 4
MODES = {"eager": True, "every 100 ms": False}

ROUND_BATCHES, VALUE_BYTES = 1000, 1024
"""Of each round of appends and puts."""

RATES = ((1, 4), (10, 16), (100, 64))
"""MiB a second, and KiB of a batch."""
RATE_S, RATE_STREAMS = 5, 8

IDLE_STREAMS, IDLE_S = 500, 3
LOG_MIB, LOG_STREAMS, LOG_ROUNDS = 256, (1, 64), 2
ARCHIVED_MIB = 256
MEMORY_MIB, MEMORY_TOTAL_MIB = 64, 512
TAIL_S = 2

HOW = f"""\
Direct streams in a new process each, against a local S3 that answers each request after {LATENCY_MS} ms and has no
other limit. The manifest is in memory, but for catch-up reads, where it is in DynamoDB, emulated. Options are the
defaults unless it says otherwise; the interval is {INTERVAL_S * 1000:.0f} ms.

Acknowledgements are of {ACK_RATE:,} batches a second of 1 KiB to {ACK_STREAMS} streams, {ACK_S} s long. They come when
they are due, whatever happened to those before; a latency counts from the call. The PUT is one of as many bytes as an
object has, by the same client in the same process at the same time; its time is the mean, which is what the median of
an acknowledgement has in it, since the wait for the interval is spread evenly. The best of {ROUNDS} rounds counts, as
others may use the machine. Against SlateDB 0.17.0, a round is {ROUND_BATCHES:,} values of 1 KiB, put at a time, and a
flush; or one batch of as many. Here it is {ROUND_BATCHES:,} appends of one message at a time, or one batch of as many
messages, until they are acknowledged. The median of {ROUNDS} rounds in turns counts.

Requests of a rate are the PUTs that the write-ahead log made in {RATE_S} s, scaled to a GiB, and what the rest costs,
which depends on bytes alone: for 64 MiB a PUT and 13 write units of the table, a DeleteObjects for 1,000 objects.
The baseline is a PUT for each batch. Prices are those of us-east-1.

A recovery opens {LOG_MIB} MiB of log that another client left, as 64 KiB batches. The baseline GETs its objects, eight
at a time, and PUTs their bytes in objects of 64 MiB. The shorter of {LOG_ROUNDS} recoveries counts, and its copy.

Catch-up reads {ARCHIVED_MIB} MiB, from opening the stream to its tail; the baseline is `Reader`, which reads the same
through the resolver."""


@dataclass(frozen=True, slots=True)
class _Figures:
    """The rows of one subject, and its aims."""

    rows: tuple[tuple[Cell, ...], ...]
    aims: tuple[Aim, ...] = ()


def measure() -> Section:
    """Measure everything, which takes about three minutes."""
    python = _slatedb_python()
    with LocalS3(latency_ms=LATENCY_MS, warm_mib=2048) as s3:
        sdk = sdk_environment(s3_url=s3.url, dynamodb_url="http://127.0.0.1:9")

        def run(function: str, **arguments: Any) -> ChildRun:
            return in_child(f"bench.{function}", arguments, sdk)

        subjects: dict[str, Callable[[], _Figures]] = {
            "acknowledgements": lambda: _acknowledgements(run),
            "throughput": lambda: _throughput(run, python, s3.url),
            "requests": lambda: _costs(run),
            "idle streams": lambda: _idle(run),
            "recovery": lambda: _recovery(run),
            "tail reads": lambda: _tail(run),
            "catch-up reads": lambda: _catch_up(s3.url),
            "memory": lambda: _memory(run),
        }
        figures = []
        for name, subject in subjects.items():
            say(name)
            figures.append(subject())
    return Section(
        title="Streams without a broker",
        how=HOW,
        columns=("what", "unit", "measured", "baseline", "ratio"),
        rows=tuple(row for one in figures for row in one.rows),
        aims=tuple(aim for one in figures for aim in one.aims),
    )


Run = Callable[..., ChildRun]


def _acknowledgements(run: Run) -> _Figures:
    load = {"interval_s": INTERVAL_S, "rate": ACK_RATE, "seconds": ACK_S, "streams": ACK_STREAMS}
    rows: list[tuple[Cell, ...]] = []
    aims: list[Aim] = []

    def acknowledge(*, eager: bool) -> Acknowledgements:
        answer = run("stream_appends:acknowledge", eager=eager, **load).answer
        return Acknowledgements.of(answer, interval_s=INTERVAL_S)

    contenders = {mode: partial(acknowledge, eager=eager) for mode, eager in MODES.items()}
    for mode, rounds in in_turns(contenders, rounds=ROUNDS, label="acknowledgements: ").items():
        best = min(rounds, key=lambda one: one.share)
        rows.append((f"acknowledgement p50, {mode}", "ms; a PUT", best.p50_ms, best.put_ms, best.p50_ms / best.put_ms))
        rows.append((f"acknowledgement p99, {mode}", "ms; a PUT", best.p99_ms, best.put_ms, best.p99_ms / best.put_ms))
        aims.append(
            Aim(
                f"half the interval and 1.15 PUTs for p50, the interval and 2 PUTs for p99, {mode}",
                f"{best.p50_ms:.0f} of {best.most_p50_ms:.0f} ms and {best.p99_ms:.0f} of {best.most_p99_ms:.0f} ms",
                best.share <= 1,
            )
        )
    return _Figures(tuple(rows), tuple(aims))


def _throughput(run: Run, python: Path, s3_url: str) -> _Figures:
    to_s3 = {
        "AWS_ENDPOINT": s3_url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
    }
    rows: list[tuple[Cell, ...]] = []
    aims: list[Aim] = []
    for what, as_batch, rounds in (("1,000 appends of 1 KiB", False, 10), ("batches of 1,000 KiB", True, 20)):
        batches, messages = (1, ROUND_BATCHES) if as_batch else (ROUND_BATCHES, 1)
        ours = {"rounds": rounds, "round_batches": batches, "messages": messages, "message_bytes": VALUE_BYTES}
        theirs = {"rounds": rounds, "round_puts": ROUND_BATCHES, "value_bytes": VALUE_BYTES, "as_batch": as_batch}
        contenders = {
            "ours": partial(run, "stream_appends:append_in_rounds", **ours),
            "theirs": partial(in_child, "bench.slatedb_puts:put_in_rounds", theirs, to_s3, python=python),
        }
        runs = median_runs(in_turns(contenders, rounds=ROUNDS, label=f"{what}: "))
        mib_s = {name: one.answer["bytes"] / MIB / one.seconds for name, one in runs.items()}
        ratio = mib_s["ours"] / mib_s["theirs"]
        rows.append((f"{what}, then all durable", "MiB/s; SlateDB", mib_s["ours"], mib_s["theirs"], ratio))
        aims.append(Aim(f"the throughput of SlateDB's put and flush, {what}", f"{ratio:.2f}x", ratio >= 1))
    return _Figures(tuple(rows), tuple(aims))


def _costs(run: Run) -> _Figures:
    rows: list[tuple[Cell, ...]] = []
    for mib_s, batch_kib in RATES:
        for mode, eager in MODES.items():
            load = {"mib_s": mib_s, "batch_bytes": batch_kib << 10, "eager": eager}
            answer = run("stream_appends:append_at_rate", **load, seconds=RATE_S, streams=RATE_STREAMS).answer
            gib = answer["bytes"] / GIB
            cost, each = cost_of(answer["puts"] / gib), Cost(answer["batches"] / gib, 0)
            reached = answer["bytes"] / MIB / answer["seconds"]
            what = f"{mib_s} MiB/s in batches of {batch_kib} KiB, {mode}"
            what += f" ({reached:.0f} reached)" if reached < 0.9 * mib_s else ""
            rows.append(
                (what, "requests a GiB; PUT a batch", cost.requests, each.requests, cost.requests / each.requests)
            )
            rows.append(
                (
                    what,
                    "$ a GiB; PUT a batch",
                    f"{cost.dollars:.4f}",
                    f"{each.dollars:.4f}",
                    cost.dollars / each.dollars,
                )
            )
    return _Figures(tuple(rows))


def _idle(run: Run) -> _Figures:
    answer = run("stream_appends:stay_idle", streams=IDLE_STREAMS, seconds=IDLE_S).answer
    requests = answer["requests"]
    rows = (
        (f"{IDLE_STREAMS} idle streams, {IDLE_S} s", "requests", requests, "", ""),
        ("an idle stream", "KB of memory", answer["bytes_each"] / 1000, "", ""),
    )
    return _Figures(rows, (Aim("no request for an idle stream", str(requests), requests == 0),))


def _recovery(run: Run) -> _Figures:
    rows: list[tuple[Cell, ...]] = []
    log = {"mib": LOG_MIB, "batch_bytes": 64 << 10}
    contenders = {
        f"recovery, {count} stream{'s' if count > 1 else ''}": partial(
            run, "stream_recovery:recover_streams", streams=count, **log
        )
        for count in LOG_STREAMS
    }
    for what, rounds in in_turns(contenders, rounds=LOG_ROUNDS, label="recovery: ").items():
        answer = min((one.answer for one in rounds), key=lambda one: one["seconds"])
        scale = GIB / answer["bytes"]
        ours, copy = answer["seconds"] * scale, answer["copy_s"] * scale
        rows.append((what, "s a GiB of log; a copy", ours, copy, ours / copy))
        rows.append((what, "MiB of memory; the log", answer["mib"], LOG_MIB, answer["mib"] / LOG_MIB))
    return _Figures(tuple(rows))


def _tail(run: Run) -> _Figures:
    answer = run("stream_reads:read_tail", seconds=TAIL_S).answer
    reads, gets, requests = answer["reads_s"], answer["gets_s"], answer["requests"]
    aim = Aim("reads of the tail make no request to S3", str(requests), requests == 0)
    return _Figures((("reads of 64 KiB at the tail", "reads/s; GETs", reads, gets, reads / gets),), (aim,))


def _catch_up(s3_url: str) -> _Figures:
    with any_dynamodb() as dynamodb:
        sdk = sdk_environment(s3_url=s3_url, dynamodb_url=dynamodb.url)
        written = {"table": dynamodb.table, "mib": ARCHIVED_MIB, "batch_bytes": 64 << 10}
        prefix = in_child("bench.stream_reads:write_archived", written, sdk).answer
        ours = {"table": dynamodb.table, "prefix": prefix}
        with resolver(sdk, dynamodb.table) as url:
            theirs = {"url": url, "vhost": "/", "name": STREAM, "messages": False}
            contenders = {
                "ours": lambda: in_child("bench.stream_reads:catch_up", ours, sdk),
                "theirs": lambda: in_child("bench.reader:read", theirs),
            }
            runs = median_runs(in_turns(contenders, rounds=ROUNDS, label="catch-up: "))
    mib_s = {name: one.answer["bytes"] / MIB / one.seconds for name, one in runs.items()}
    if runs["ours"].answer["bytes"] != runs["theirs"].answer["bytes"]:
        raise CannotMeasureError(f"both did not read the same bytes: {mib_s}")
    ratio = mib_s["ours"] / mib_s["theirs"]
    return _Figures((("catch-up", "MiB/s; the archive's reader", mib_s["ours"], mib_s["theirs"], ratio),))


def _memory(run: Run) -> _Figures:
    load = {"memory_mib_limit": MEMORY_MIB, "total_mib": MEMORY_TOTAL_MIB, "batch_bytes": 64 << 10}
    peak = run("stream_appends:append_within", **load).answer["mib"]
    what = f"peak memory, {MEMORY_TOTAL_MIB} MiB appended"
    return _Figures(((what, "MiB; the budget", peak, MEMORY_MIB, peak / MEMORY_MIB),))


def _slatedb_python() -> Path:
    """Return the interpreter of the virtual environment that has SlateDB, made now if need be."""
    made = subprocess.run(["make", ".venv-bench/.ready"], cwd=ROOT, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise CannotMeasureError(f"SlateDB cannot be installed here:\n{made.stderr[-2000:]}")
    return ROOT / ".venv-bench" / "bin" / "python"
