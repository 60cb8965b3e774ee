"""The upload function on a segment of 500 MB, against plain `put_object` of the fragments that it makes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import boto3
from botocore.config import Config

from bench.aws import BUCKET, function_environment, sdk_environment
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
    environment,
    in_child,
    in_turns,
    median_runs,
    say,
)
from bench.load import make_segment, sqs_event, stream
from bench.local_s3 import SERVERS, LocalS3
from bench.template import handler_of
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import stage
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.stream import StreamId
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import Offset

SEGMENT_BYTES = 500_000_000
MESSAGE_BYTES = (200, 4000)
ROUNDS = 3
AIMS = {"no limits": 0.8, "10 ms, 90 MiB/s a connection": 2.0}
"""Times the rate of `put_object`, by server."""

CPU_S_A_GIB = 2.5
"""Processor time, client and event included."""

HOW = f"""\
The upload function's handler gets one `Segment Rolled` event for a segment of {SEGMENT_BYTES // MB} MB, with
messages of {MESSAGE_BYTES[0]} to {MESSAGE_BYTES[1]} bytes, in a new process. It reads the staged segment from S3,
checks every chunk's CRC, cuts fragments of 64 MiB, PUTs them, commits them to the manifest (DynamoDB, emulated),
and deletes the staged object. The baseline is a new process that PUTs the same fragments from files by boto3's
`put_object`, one after the other: it reads nothing from S3 and checks nothing. It runs once with boto3's default, a
CRC-32 of each body, and once without a checksum. Neither side signs payloads, as boto3 does not over HTTPS. The
time is that of the calls, including the creation of clients. S3 is a local server: without limits, and with a
latency and a rate for each connection like S3's. Without limits, the shared processor is the limit, and the
function moves every byte twice, the baseline once. {ROUNDS} rounds, in turns; bytes are those of the fragments."""


def measure() -> Section:
    """Measure against a server without limits and one that is like S3."""
    rows: list[tuple[Cell, ...]] = []
    aims: list[Aim] = []
    peak = 0
    with tempfile.TemporaryDirectory(prefix="coldstream-bench-") as directory, any_dynamodb() as dynamodb:
        say("making a segment")
        segment = make_segment(Path(directory), size_bytes=SEGMENT_BYTES, message_bytes=MESSAGE_BYTES)
        streams = map(stream, count())
        for name, limits in SERVERS:
            with LocalS3(**limits, warm_mib=3 * SEGMENT_BYTES // MIB) as s3:
                sdk = sdk_environment(s3_url=s3.url, dynamodb_url=dynamodb.url)
                with environment(sdk):
                    case = _UploadRounds(name, segment, Path(directory), sdk, dynamodb.table)
                    ours, summed, bare = case.run(streams)
            rows += case.rows(ours, summed, bare)
            peak = max(peak, ours.peak_rss_bytes)
            ratio = summed.seconds / ours.seconds
            aims.append(
                Aim(f"{AIMS[name]}x of put_object or more; S3 with {name}", f"{ratio:.2f}x", ratio >= AIMS[name])
            )
            cpu_s = ours.cpu_s * 1024 * MIB / SEGMENT_BYTES
            if not limits:
                aims.append(Aim(f"less than {CPU_S_A_GIB} CPU s a GiB", f"{cpu_s:.2f}", cpu_s < CPU_S_A_GIB))
        notes = (_requests(ours, case.fragments), f"The manifest was in {dynamodb.name}")
    return Section(
        title="Upload",
        how=HOW,
        columns=("S3 server", "what", "MB/s", "of put_object", "CPU s", "peak memory, MB"),
        rows=tuple(rows),
        notes=notes,
        aims=(*aims, Aim("less than 128 MB of memory for all of the process", f"{peak / MB:.0f} MB", peak < 128 * MB)),
    )


class _UploadRounds:
    """The rounds against one S3 server."""

    def __init__(self, name: str, segment: SegmentSlice, directory: Path, sdk: dict[str, str], table: str) -> None:
        self._name = name
        self._sdk = sdk
        self._table = table
        self._directory = directory
        self._objects = S3Objects(BUCKET)
        self._master = stage(segment, stream(10**6), self._objects, Keys())
        self.fragments = 0
        self._bytes = 0

    def run(self, streams: Iterator[StreamId]) -> tuple[ChildRun, ChildRun, ChildRun]:
        """Return the median runs: the handler, `put_object` with boto3's checksum, and without any."""
        contenders = {
            "ours": lambda: self._upload(next(streams)),
            "summed": lambda: self._put(checksum=True),
            "bare": lambda: self._put(checksum=False),
        }
        runs = median_runs(in_turns(contenders, rounds=ROUNDS, label=f"{self._name}: "))
        return runs["ours"], runs["summed"], runs["bare"]

    def rows(self, ours: ChildRun, summed: ChildRun, bare: ChildRun) -> Iterator[tuple[Cell, ...]]:
        """Yield the rows of the table."""
        for what, run in (("upload function", ours), ("put_object", summed), ("put_object, no checksum", bare)):
            rate = self._bytes / MB / run.seconds
            ratio = summed.seconds / run.seconds
            yield self._name, what, rate, ratio, run.cpu_s, run.peak_memory_mb

    def _upload(self, of: StreamId) -> ChildRun:
        segment = self._stage_again(of)
        run = in_child(
            "bench.aws:call_handler",
            {"name": "upload", "handler": handler_of("upload"), "events": [sqs_event(segment)]},
            {**self._sdk, **function_environment("upload", table=self._table)},
        )
        page = DynamoTable(self._table).log_from_offset(of.incarnation, Offset(0), 100)
        whole = page.head is not None and page.head.next_offset == segment.next_offset
        if run.answer["answers"] != [{"batchItemFailures": []}] or not whole or self._objects.info(segment.staged_key):
            raise CannotMeasureError(f"the upload function did not archive the segment:\n{run.log[-4000:]}")
        run.answer["seconds"] = run.answer["seconds"][0]
        self._keep(page.entries)
        return run

    def _stage_again(self, of: StreamId) -> SegmentRolled:
        """Stage the segment for another stream, without moving its bytes."""
        master = self._master
        key = Keys().staged(of.incarnation, master.first_offset, master.next_offset)
        info = self._objects.info(master.staged_key)
        assert info is not None
        self._objects.copy(master.staged_key, key, if_match=info.etag)
        # The copy has an ETag of its own: with the master's, the event would name a copy that is not there.
        return replace(master, stream=of, staged_key=key, etag=None)

    def _keep(self, entries: tuple[FragmentEntry, ...]) -> None:
        """Download the fragments once, for the other side, and delete their objects."""
        self.fragments = len(entries)
        self._bytes = sum(entry.object_bytes for entry in entries)
        client = boto3.client("s3")
        for number, entry in enumerate(entries):
            path = self._directory / f"{number}.fragment"
            if not path.exists():
                client.download_file(BUCKET, entry.key, str(path))
            self._objects.delete(entry.key)

    def _put(self, *, checksum: bool) -> ChildRun:
        paths = sorted(map(str, self._directory.glob("*.fragment")))
        run = in_child("bench.upload:put_plainly", {"paths": paths, "checksum": checksum}, self._sdk)
        for path in paths:
            self._objects.delete(f"plain/{Path(path).name}")
        return run


def put_plainly(paths: list[str], *, checksum: bool) -> dict[str, float]:
    """PUT files with boto3 alone. Called by `harness.in_child`."""
    with Stopwatch() as stopwatch:
        client = boto3.client(
            "s3",
            config=Config(
                s3={"payload_signing_enabled": False},
                request_checksum_calculation="when_supported" if checksum else "when_required",
            ),
        )
        for path in paths:
            with Path(path).open("rb") as body:
                client.put_object(Bucket=BUCKET, Key=f"plain/{Path(path).name}", Body=body)
    return {"seconds": stopwatch.seconds, "cpu_s": stopwatch.cpu_s}


def _requests(ours: ChildRun, fragments: int) -> str:
    counts: dict[str, int] = ours.answer["requests"]
    listed = ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items()))
    return f"Requests of the upload function for the segment of {fragments} fragments: {listed}"
