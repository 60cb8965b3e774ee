"""The reader, from the resolver's HTTP API to verified chunks and to messages, against plain ranged GETs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3

from bench.archive import archive, resolver
from bench.aws import sdk_environment
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
    median_runs,
    say,
)
from bench.load import make_segment, stream
from bench.local_s3 import SERVERS, LocalS3
from bench.orders import make_orders
from coldstream.manifest.spec import FIRST
from coldstream.manifest.stream import StreamId

SEGMENT_BYTES = 500_000_000
MESSAGE_BYTES = (200, 4000)
RANGE_BYTES = 8 * MIB
CONNECTIONS = 4
ROUNDS = 3
FRAGMENTS = "GETs of whole fragments, one connection"
ONE = "GETs of 8 MiB, one connection"
SEVERAL = f"GETs of 8 MiB, {CONNECTIONS} connections"
CHUNKS = "reader, chunks"
MESSAGES = "reader, messages and their bodies"
ORDERS = "reader, messages of orders"
COMPRESSED = "reader, messages of compressed orders"

HOW = f"""\
A stream of {SEGMENT_BYTES // MB} MB, archived by the upload function, is read from its first offset to its tail.
The reader knows only the resolver, behind a local HTTP server: it asks for ranges, fetches them, checks every
chunk's CRC, and returns chunks, or messages whose bodies are read (the bytes are then those of the bodies). The
baseline is urllib3, which GETs the resolver's ranges, known beforehand, each into memory as a whole, and checks
nothing. The reader's ranges have about 8 MiB. Each run is a new process; {ROUNDS} rounds, in turns. The S3 servers
are those of the upload: without limits, the shared processor is what is measured. "Orders" are two more streams, with
equal JSON orders of about 400 bytes; a compaction has compressed one of them (zstd-seekable)."""


def measure() -> Section:
    """Measure against a server without limits and one that is like S3."""
    rows: list[tuple[Cell, ...]] = []
    aims: list[Aim] = []
    with tempfile.TemporaryDirectory(prefix="coldstream-bench-") as directory, any_dynamodb() as dynamodb:
        say("making a segment")
        segment = make_segment(Path(directory), size_bytes=SEGMENT_BYTES, message_bytes=MESSAGE_BYTES)
        (ordered := Path(directory, "orders")).mkdir()
        orders = make_orders(ordered, size_bytes=SEGMENT_BYTES)
        for number, (name, limits) in enumerate(SERVERS):
            with LocalS3(**limits, warm_mib=7 * SEGMENT_BYTES // MIB) as s3:
                sdk = sdk_environment(s3_url=s3.url, dynamodb_url=dynamodb.url)
                streams = stream(number), stream(10 + number), stream(20 + number)
                for of, rolled in zip(streams, (segment, orders, orders), strict=True):
                    archive([rolled], of, sdk, dynamodb.table)
                in_child("bench.compaction:compress", {"table": dynamodb.table, "number": 20 + number}, sdk)
                with resolver(sdk, dynamodb.table) as url:
                    runs = _race(name, url, *streams)
            best = min(runs[what].seconds for what in (FRAGMENTS, ONE, SEVERAL))
            for what, run in runs.items():
                rate = run.answer["bytes"] / MB / run.seconds
                ratios = runs[ONE].seconds / run.seconds, best / run.seconds
                rows.append((name, what, rate, *ratios, run.cpu_s, run.peak_memory_mb))
            for baseline, seconds in ((ONE, runs[ONE].seconds), ("the best GETs", best)):
                ratio = seconds / runs[CHUNKS].seconds
                aims.append(Aim(f"0.9x of {baseline}, or more; S3 with {name}", f"{ratio:.2f}x", ratio >= 0.9))
            ratio = runs[ORDERS].seconds / runs[COMPRESSED].seconds
            aims.append(Aim(f"compressed orders as fast as plain ones; S3 with {name}", f"{ratio:.2f}x", ratio >= 1))
    return Section(
        title="Reader",
        how=HOW,
        columns=("S3 server", "what", "MB/s", "of 8 MiB GETs", "of the best GETs", "CPU s", "peak memory, MB"),
        rows=tuple(rows),
        aims=tuple(aims),
    )


def read(url: str, vhost: str, name: str, *, messages: bool) -> dict[str, float]:
    """Read a stream with `Reader`. Called by `harness.in_child`."""
    from coldstream.read.reader import Reader  # noqa: PLC0415  the other side does not need it

    total = 0
    with Stopwatch() as stopwatch, Reader(url, vhost, name, FIRST) as reader:
        if messages:
            for message in reader.messages():
                total += len(message.body)
        else:
            for chunk in reader.chunks():
                total += chunk.header.total_bytes
    return {"seconds": stopwatch.seconds, "cpu_s": stopwatch.cpu_s, "bytes": total}


def get_plainly(url: str, vhost: str, name: str, *, connections: int, range_bytes: int | None) -> dict[str, float]:
    """GET all ranges of a stream with urllib3 alone. Called by `harness.in_child`."""
    size = {} if range_bytes is None else {"range_bytes": range_bytes}
    ranges = list(_ranges(url, {"vhost": vhost, "name": name, **size}))
    http = urllib3.PoolManager(maxsize=connections)

    def get(part: dict[str, Any]) -> int:
        return len(http.request("GET", part["url"], headers={"Range": part["range_header"]}).data)

    with Stopwatch() as stopwatch, ThreadPoolExecutor(connections) as pool:
        total = sum(map(get, ranges) if connections == 1 else pool.map(get, ranges))
    return {"seconds": stopwatch.seconds, "cpu_s": stopwatch.cpu_s, "bytes": total}


def _ranges(url: str, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    start = {"spec": "first"}
    while True:
        answer = urllib3.request("GET", f"{url}/ranges?{urlencode({**query, **start})}").json()
        yield from answer["ranges"]
        if answer["cursor"] is None:
            return
        start = {"cursor": answer["cursor"]}


def _race(server: str, url: str, of: StreamId, orders: StreamId, compressed: StreamId) -> dict[str, ChildRun]:
    """Return the median run of each contender."""

    def run(function: str, of: StreamId = of, **options: Any) -> Callable[[], ChildRun]:
        arguments = {"url": url, "vhost": of.vhost, "name": of.name, **options}
        return lambda: in_child(f"bench.reader:{function}", arguments)

    contenders = {
        CHUNKS: run("read", messages=False),
        FRAGMENTS: run("get_plainly", connections=1, range_bytes=None),
        ONE: run("get_plainly", connections=1, range_bytes=RANGE_BYTES),
        SEVERAL: run("get_plainly", connections=CONNECTIONS, range_bytes=RANGE_BYTES),
        MESSAGES: run("read", messages=True),
        ORDERS: run("read", orders, messages=True),
        COMPRESSED: run("read", compressed, messages=True),
    }
    runs = median_runs(in_turns(contenders, rounds=ROUNDS, label=f"{server}: "))
    sizes = {runs[what].answer["bytes"] for what in (CHUNKS, FRAGMENTS, ONE, SEVERAL)}
    if len(sizes) != 1:
        raise CannotMeasureError(f"the reader and plain GETs did not read the same bytes: {sizes}")
    sizes = {runs[what].answer["bytes"] for what in (ORDERS, COMPRESSED)}
    if len(sizes) != 1:
        raise CannotMeasureError(f"compressed orders are not the plain ones: {sizes}")
    return runs
