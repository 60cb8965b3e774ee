"""The agent's staging of rolled segments, against `cp` and boto3's `upload_file` of the same files."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from bench.aws import BUCKET, function_environment, sdk_environment
from bench.harness import MB, MIB, Aim, Cell, ChildRun, Section, Stopwatch, environment, in_child, median_run, say
from bench.load import make_segment, stream
from bench.locals3 import LocalS3
from coldstream.ingest.stage import find_rolled
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.units import TimestampMs

SEGMENTS = 4
SEGMENT_BYTES = 80_000_000
MESSAGE_BYTES = (200, 4000)
UPLOADS = 4
ROUNDS = 3
SERVERS: tuple[tuple[str, dict[str, float]], ...] = (
    ("no limits", {}),
    ("10 ms, 90 MiB/s a connection", {"latency_ms": 10, "connection_mib_s": 90}),
)
AGENT = f"agent, {UPLOADS} segments at a time"
PLAIN = "upload_file, one after the other"
COPY = "cp on the disk"

HOW = f"""\
{SEGMENTS} rolled segments of {SEGMENT_BYTES // MB} MB, each of another stream, staged to S3 as the agent does it:
slots, threads, bandwidth limiter, `coldstream.ingest.stage`, and nothing around them. Against it, boto3's
`upload_file` of the same files, ten threads each as is its default, and `cp` of them to another directory. Each in a
new process, the files in the page cache, {ROUNDS} rounds, in turns; making clients does not count. S3 servers as for
the upload: without limits, what is measured is the processor that both share. The agent sums each part and has S3
check the whole; `upload_file` sums parts; neither signs payloads. `cp` ends when the page cache has it."""


def measure() -> Section:
    """Measure against a server without limits and one that is like S3."""
    rows: list[tuple[Cell, ...]] = []
    aims: list[Aim] = []
    with tempfile.TemporaryDirectory(prefix="coldstream-bench-") as directory:
        say("making segments")
        sources = [Path(directory) / str(number) for number in range(SEGMENTS)]
        sources[0].mkdir()
        make_segment(sources[0], size_bytes=SEGMENT_BYTES, message_bytes=MESSAGE_BYTES)
        for copy in sources[1:]:
            shutil.copytree(sources[0], copy)
        size_bytes = sum(find_rolled(source)[0].size_bytes for source in sources)
        for name, limits in SERVERS:
            with LocalS3(**limits, warm_mib=2 * size_bytes // MIB) as s3:
                sdk = sdk_environment(s3_url=s3.url, dynamodb_url=s3.url)
                runs = _race(name, [str(source) for source in sources], sdk)
            for what, run in runs.items():
                ratios = (_seconds(runs[baseline]) / _seconds(run) for baseline in (PLAIN, COPY))
                memory = f"{run.peak_rss_bytes / MB:.0f}"
                rows.append((name, what, size_bytes / MB / _seconds(run), *ratios, float(run.answer["cpu_s"]), memory))
            ratio = _seconds(runs[PLAIN]) / _seconds(runs[AGENT])
            aims.append(Aim(f"1.0x of upload_file or more; S3 with {name}", f"{ratio:.2f}x", ratio >= 1))
    return Section(
        title="Agent: staging",
        how=HOW,
        columns=("S3 server", "what", "MB/s", "of upload_file", "of cp", "CPU s", "peak memory, MB"),
        rows=tuple(rows),
        aims=tuple(aims),
    )


def _race(server: str, sources: list[str], sdk: dict[str, str]) -> dict[str, ChildRun]:
    """Return the median run of each contender."""
    contenders: dict[str, Callable[[], ChildRun]] = {
        AGENT: lambda: _staged(sources, sdk),
        PLAIN: lambda: in_child("bench.agent:upload_plainly", {"sources": sources}, sdk),
        COPY: lambda: in_child("bench.agent:copy", {"sources": sources}),
    }
    runs: dict[str, list[ChildRun]] = {what: [] for what in contenders}
    for number in range(ROUNDS):
        say(f"{server}: round {number + 1} of {ROUNDS}")
        for what, run in contenders.items():
            for source in sources:  # staging tells the kernel that it has no more use for the pages
                find_rolled(Path(source))[0].path.read_bytes()
            runs[what].append(run())
    return {what: median_run(found, _seconds) for what, found in runs.items()}


def _staged(sources: list[str], sdk: dict[str, str]) -> ChildRun:
    settings = {**function_environment("upload", table="unused"), "COLDSTREAM_EVENT_BUS": "unused"}
    del settings["PYTHONPATH"]
    run = in_child("bench.agent:stage_as_agent", {"sources": sources}, {**sdk, **settings})
    with environment(sdk):
        objects = S3Objects(BUCKET)
        for number, source in enumerate(sources):
            rolled = find_rolled(Path(source))[0]
            objects.delete(Keys().staged(stream(number).incarnation, rolled.first_offset, rolled.next_offset))
    return run


def stage_as_agent(sources: list[str]) -> dict[str, float]:
    """Stage a rolled segment of each directory as the agent does; to be called by `harness.in_child`."""
    from coldstream.agent.archive import ArchiveClient  # noqa: PLC0415 - the other sides do without
    from coldstream.agent.upload_slots import UploadSlots  # noqa: PLC0415
    from coldstream.flow.bandwidth import BandwidthLimit  # noqa: PLC0415

    archive = ArchiveClient.from_environment(os.environ, BandwidthLimit(None), UPLOADS)

    async def run() -> None:
        slots = UploadSlots(UPLOADS)

        async def stage_one(number: int, source: str) -> None:
            async with slots.take(backfill=False, since=TimestampMs(number)):
                await archive.stage(find_rolled(Path(source))[0], stream(number), None)

        await asyncio.gather(*(stage_one(number, source) for number, source in enumerate(sources)))

    with Stopwatch() as stopwatch:
        asyncio.run(run())
    archive.stop()
    return {"seconds": stopwatch.seconds, "cpu_s": stopwatch.cpu_s}


def upload_plainly(sources: list[str]) -> dict[str, float]:
    """Upload a rolled segment of each directory as anybody would; to be called by `harness.in_child`."""
    client: Any = boto3.client("s3", config=Config(s3={"payload_signing_enabled": False}))
    with Stopwatch() as stopwatch:
        for number, source in enumerate(sources):
            client.upload_file(str(find_rolled(Path(source))[0].path), BUCKET, f"plain/{number}")
    for number in range(len(sources)):
        client.delete_object(Bucket=BUCKET, Key=f"plain/{number}")
    return {"seconds": stopwatch.seconds, "cpu_s": stopwatch.cpu_s}


def copy(sources: list[str]) -> dict[str, float]:
    """Copy a rolled segment of each directory to a directory beside them; to be called by `harness.in_child`."""
    with tempfile.TemporaryDirectory(dir=Path(sources[0]).parent) as target:
        pairs = [(find_rolled(Path(source))[0].path, Path(target) / str(n)) for n, source in enumerate(sources)]
        with Stopwatch() as stopwatch:
            for path, to in pairs:
                subprocess.run(["cp", "--reflink=never", path, to], check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"seconds": stopwatch.seconds, "cpu_s": used.ru_utime + used.ru_stime}


def _seconds(run: ChildRun) -> float:
    return float(run.answer["seconds"])
