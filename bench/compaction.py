"""Compaction, merged within S3 and compressed, against copying the same bytes; and the cost of reads after it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

from bench.archive import archive
from bench.aws import BUCKET, sdk_environment
from bench.dynamodb import any_dynamodb
from bench.harness import (
    MB,
    MIB,
    Aim,
    Cell,
    ChildRun,
    Section,
    Stopwatch,
    in_child,
    in_turns,
    median_runs,
    percentile,
    say,
)
from bench.load import stream
from bench.local_s3 import SERVERS, LocalS3
from bench.orders import make_orders
from coldstream.compact.commit import commit
from coldstream.compact.write import write_group
from coldstream.flow.window import Window, map_ahead
from coldstream.format.amqp.message import messages
from coldstream.format.checksum import combine_crc32
from coldstream.manifest.entry import Encoding, FragmentEntry
from coldstream.manifest.groups import Group
from coldstream.manifest.stream import Incarnation
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.ports import UploadedPart
from coldstream.store.table import DynamoTable
from coldstream.units import ByteRange, Offset, now_ms

SEGMENT_BYTES = 500_000_000
PART_BYTES = 8 * MIB
CONNECTIONS = 4
ROUNDS = 3
READS = 50
READ_MESSAGES = 100
COPY, MERGE, COMPRESS = "copy through this process", "merge, identity", "rewrite, zstd level 3"

HOW = f"""\
The upload function archives a stream of {SEGMENT_BYTES // MB} MB of JSON orders of about 400 bytes in fragments of
64 MiB. Compaction makes one fragment of them: by parts that S3 copies itself, or by reading, verifying and
compressing. The baseline GETs the same objects in ranges of 8 MiB and PUTs them as the parts of one object, with
{CONNECTIONS} connections each way, and verifies nothing. Nothing is committed, so each of {ROUNDS} rounds finds the
same state; each run is a new process, in turns. The bytes through the process are those that S3 sent and received.
Then the compressed fragment is committed, and {READS} runs of {READ_MESSAGES} messages, at offsets spread over the
stream, are planned from the manifest, read and verified; the same is done on an equal stream without compaction.
These reads use the S3 with a latency."""


def measure() -> Section:
    """Measure against a server without limits and one that is like S3."""
    rows: list[tuple[Cell, ...]] = []
    aims: list[Aim] = []
    with tempfile.TemporaryDirectory(prefix="coldstream-bench-") as directory, any_dynamodb() as dynamodb:
        say("making a segment")
        segment = make_orders(Path(directory), size_bytes=SEGMENT_BYTES)
        for number, (name, limits) in enumerate(SERVERS):
            with ExitStack() as stack:
                s3 = stack.enter_context(LocalS3(**limits, warm_mib=4 * SEGMENT_BYTES // MIB))
                sdk = sdk_environment(s3_url=s3.url, dynamodb_url=dynamodb.url)
                archive([segment], stream(number), sdk, dynamodb.table)
                runs = _race(name, s3, sdk, dynamodb.table, stream(number).incarnation)
                baseline = runs[COPY].seconds
                for what, run in runs.items():
                    rate = run.answer["bytes"] / MB / run.seconds
                    through = run.answer["through"] / run.answer["bytes"]
                    sizes = f"{through:.2%}", f"{run.answer['object_bytes'] / run.answer['bytes']:.2f}"
                    memory = run.peak_memory_mb
                    ratio = baseline / run.seconds
                    rows.append((name, what, rate, ratio, *sizes, run.cpu_s, memory))
                aims += _aims(name, runs)
                if limits:
                    archive([segment], stream(10), sdk, dynamodb.table)
                    notes = tuple(_reads(sdk, dynamodb.table, number))
    return Section(
        title="Compaction",
        how=HOW,
        columns=(
            "S3 server",
            "what",
            "MB/s",
            "of the copy",
            "bytes through the process",
            "size of the object",
            "CPU s",
            "peak memory, MB",
        ),
        rows=tuple(rows),
        notes=tuple(notes),
        aims=tuple(aims),
    )


def _aims(server: str, runs: dict[str, ChildRun]) -> list[Aim]:
    through = runs[MERGE].answer["through"] / runs[MERGE].answer["bytes"]
    speed = runs[COPY].seconds / runs[COMPRESS].seconds
    return [
        Aim(f"under 2 % of the bytes through the process, merging; S3 with {server}", f"{through:.2%}", through < 0.02),
        Aim(f"half the speed of the copy or more, compressing; S3 with {server}", f"{speed:.2f}x", speed >= 0.5),
    ]


def copy(table: str, incarnation: str, number: int) -> dict[str, float]:
    """Copy all fragments of a stream into one object through this process. Called by `harness.in_child`."""
    objects, key = S3Objects(BUCKET, connections=2 * CONNECTIONS), f"copies/{incarnation}-{number}"
    entries = _entries(table, incarnation)
    ranges = [
        (entry.key, ByteRange(start, min(start + PART_BYTES, entry.object_bytes)))
        for entry in entries
        for start in range(0, entry.object_bytes, PART_BYTES)
    ]
    parts: list[UploadedPart] = []
    whole = 0
    with (
        Stopwatch() as stopwatch,
        ThreadPoolExecutor(CONNECTIONS) as getting,
        ThreadPoolExecutor(CONNECTIONS) as putting,
    ):
        upload_id = objects.create_upload(key)
        puts: Window[UploadedPart] = Window(putting, max_calls=CONNECTIONS)
        blocks = map_ahead(getting, lambda part: _get(objects, *part), ranges, max_calls=CONNECTIONS)
        for part_number, data in enumerate(blocks, 1):
            checksum = crc32(data)
            whole = combine_crc32(whole, checksum, len(data))
            if not puts.has_room():
                parts.append(puts.take())
            puts.submit(partial(objects.put_part, key, upload_id, part_number, data, crc32=checksum))
        while len(puts):
            parts.append(puts.take())
        objects.complete_upload(key, upload_id, parts, crc32=whole)
    return _measured(stopwatch, entries, sum(part.size_bytes for part in parts))


def compact(table: str, incarnation: str, encoding: str) -> dict[str, float]:
    """Write one fragment out of all of a stream, without a commit. Called by `harness.in_child`."""
    objects = S3Objects(BUCKET, connections=2 * CONNECTIONS)
    entries = _entries(table, incarnation)
    with Stopwatch() as stopwatch:
        written = write_group(objects, Keys(), Incarnation(incarnation), Group(entries), Encoding(encoding))
    return _measured(stopwatch, entries, written.entry.object_bytes)


def compress(table: str, number: int) -> dict[str, Any]:
    """Compress a stream, and commit that. Called by `harness.in_child`."""
    of, objects = stream(number), S3Objects(BUCKET, connections=2 * CONNECTIONS)
    group = Group(_entries(table, of.incarnation))
    written = write_group(objects, Keys(), of.incarnation, group, Encoding.ZSTD_SEEKABLE)
    commit(DynamoTable(table), of.incarnation, group, written.entry, now=now_ms)
    return {}


def read(table: str, number: int, *, compresses: bool) -> dict[str, Any]:
    """Read messages at some offsets, with `compresses` after compressing the stream. Called by `harness.in_child`."""
    objects, manifest, of = S3Objects(BUCKET, connections=2 * CONNECTIONS), DynamoTable(table), stream(number)
    if compresses:
        compress(table, number)
    head = manifest.head(of.incarnation)
    assert head is not None
    assert head.next_offset is not None
    seconds, stored = [], 0
    for step in range(READS):
        start = Offset(head.next_offset * (2 * step + 1) // (2 * READS))
        with Stopwatch() as stopwatch:
            for part in plan_scan(manifest, of, start, Offset(start + READ_MESSAGES)):
                assert isinstance(part, ScanSlice)
                stored += len(part.byte_range)
                for chunk in read_slice(objects, part):
                    for _ in messages(chunk, source=part.key, from_offset=part.start):
                        pass
        seconds.append(stopwatch.seconds)
    return {"seconds": seconds, "bytes": stored}


def _reads(sdk: dict[str, str], table: str, number: int) -> Iterator[str]:
    for what, which, compresses in (("compressed", number, True), ("as it was", 10, False)):
        run = in_child("bench.compaction:read", {"table": table, "number": which, "compresses": compresses}, sdk)
        middle = percentile(run.answer["seconds"], 50)
        yield (
            f"A read of {READ_MESSAGES} messages, {what}: median {1000 * middle:.0f} ms,"
            f" {run.answer['bytes'] / READS / 1000:,.0f} kB from S3"
        )


def _get(objects: S3Objects, key: str, byte_range: ByteRange) -> bytes:
    return objects.get_range(key, byte_range).data


def _entries(table: str, incarnation: str) -> tuple[FragmentEntry, ...]:
    return DynamoTable(table).log_from_offset(Incarnation(incarnation), Offset(0), 100).entries


def _measured(stopwatch: Stopwatch, entries: tuple[FragmentEntry, ...], object_bytes: int) -> dict[str, float]:
    stored = sum(entry.object_bytes for entry in entries)
    return {"seconds": stopwatch.seconds, "cpu_s": stopwatch.cpu_s, "bytes": stored, "object_bytes": object_bytes}


def _race(server: str, s3: LocalS3, sdk: dict[str, str], table: str, incarnation: str) -> dict[str, ChildRun]:
    """Return the median run of each contender."""
    copies = count()

    def run(function: str, **options: Any) -> ChildRun:
        s3.stats(reset=True)
        arguments = {"table": table, "incarnation": incarnation, **options}
        result = in_child(f"bench.compaction:{function}", arguments, sdk)
        sent = s3.stats()
        result.answer["through"] = sent["bytes in"] + sent["bytes out"]
        return result

    contenders = {
        COPY: lambda: run("copy", number=next(copies)),
        MERGE: lambda: run("compact", encoding=Encoding.IDENTITY),
        COMPRESS: lambda: run("compact", encoding=Encoding.ZSTD_SEEKABLE),
    }
    return median_runs(in_turns(contenders, rounds=ROUNDS, label=f"{server}: "))
