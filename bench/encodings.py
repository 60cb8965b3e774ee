"""What an archive costs by the encoding in which the upload function writes it, from one run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.aws import BUCKET, function_environment, sdk_environment
from bench.dynamodb import any_dynamodb
from bench.harness import MB, Aim, CannotMeasureError, Cell, ChildRun, Section, environment, in_child, say
from bench.load import sqs_event, stream
from bench.local_s3 import LocalS3
from bench.orders import make_orders
from bench.template import handler_of
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import stage
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.prices import STANDARD, TRANSFER_GB_USD
from coldstream.store.table import DynamoTable
from coldstream.units import Offset

SEGMENT_BYTES = 500_000_000
GIB = 1 << 30
TIB = 1 << 40

SETTINGS: tuple[tuple[str, dict[str, str]], ...] = (
    ("identity", {}),
    *(
        (
            f"zstd-seekable, level {level}",
            {"COLDSTREAM_ENCODING": "zstd-seekable", "COLDSTREAM_COMPRESSION_LEVEL": str(level)},
        )
        for level in (1, 3, 9)
    ),
)

AGENT = 0.36
MANIFEST = 0.14
STAGED = 1.16
"""Dollars of a TiB that do not depend on the encoding: docs/deploy.md, "Cost of one TiB"."""

LAMBDA_GIB_S = 0.0000166667
PROCESSORS = 0.58
"""Those that Lambda gives to a function of 1 GB."""

HOW = f"""\
A segment of {SEGMENT_BYTES // MB} MB of JSON orders of about 400 bytes is archived by the upload function's handler, in
a new process, once with each setting of the template's `Encoding` and `CompressionLevel`. Processor time,
requests and the size of the objects are measured; dollars follow from them, by the prices and the other costs in
[deploy.md](deploy.md#cost-of-one-tib). Lambda's seconds are the processor time at 0.58 processors. Transfer is that of
one reading of all over the internet."""


@dataclass(frozen=True, slots=True)
class _Archived:
    """One run: what the function took, and what it left."""

    run: ChildRun
    object_bytes: int
    data_bytes: int

    @property
    def share(self) -> float:
        return self.object_bytes / self.data_bytes

    def archiving(self) -> float:
        """Dollars of archiving a TiB."""
        counts: dict[str, int] = self.run.answer["requests"]
        requests = (counts["s3 PUT"] * STANDARD.writes_1000 + counts["s3 GET"] * STANDARD.gets_1000) / 1000
        seconds = self.run.cpu_s / PROCESSORS
        return AGENT + MANIFEST + STAGED + (requests + seconds * LAMBDA_GIB_S) * TIB / self.data_bytes

    def kept(self) -> float:
        """Dollars of a year in S3 Standard."""
        return self.share * 12 * STANDARD.gb_month * TIB / GIB

    def read(self) -> float:
        """Dollars of the transfer of all."""
        return self.share * TRANSFER_GB_USD * TIB / GIB


def measure() -> Section:
    """Archive one segment by each setting."""
    with tempfile.TemporaryDirectory(prefix="coldstream-bench-") as directory, any_dynamodb() as dynamodb:
        say("making a segment")
        segment = make_orders(Path(directory), size_bytes=SEGMENT_BYTES)
        with LocalS3(warm_mib=1600) as s3:
            sdk = sdk_environment(s3_url=s3.url, dynamodb_url=dynamodb.url)
            with environment(sdk):
                archived = {
                    name: _archive(segment, number, sdk, dynamodb.table, settings)
                    for number, (name, settings) in enumerate(SETTINGS)
                }
    plain = archived["identity"]
    best = archived["zstd-seekable, level 3"]
    ratio = (best.archiving() + best.kept()) / (plain.archiving() + plain.kept())
    peak = max(plain.run.peak_rss_bytes, best.run.peak_rss_bytes)
    return Section(
        title="Encodings of the upload",
        how=HOW,
        columns=(
            "Encoding",
            "size of the objects",
            "MB/s",
            "CPU s a GiB",
            "peak memory, MB",
            "$ a TiB: archived",
            "kept a year",
            "both",
            "of identity",
            "read once",
        ),
        rows=tuple(_rows(archived, plain)),
        aims=(
            Aim("0.3x of identity or less, archived and kept a year, level 3", f"{ratio:.2f}x", ratio <= 0.3),
            Aim("less than 128 MB of memory for all of the process, level 3", f"{peak / MB:.0f} MB", peak < 128 * MB),
        ),
    )


def _rows(archived: dict[str, _Archived], plain: _Archived) -> Iterator[tuple[Cell, ...]]:
    for name, one in archived.items():
        both = one.archiving() + one.kept()
        yield (
            name,
            one.share,
            one.data_bytes / MB / one.run.seconds,
            one.run.cpu_s / (one.data_bytes / GIB),
            one.run.peak_memory_mb,
            one.archiving(),
            one.kept(),
            both,
            both / (plain.archiving() + plain.kept()),
            one.read(),
        )


def _archive(
    segment: SegmentSlice, number: int, sdk: dict[str, str], table: str, settings: dict[str, str]
) -> _Archived:
    of, objects = stream(number), S3Objects(BUCKET)
    staged = stage(segment, of, objects, Keys())
    say(f"archiving, {settings or 'identity'}")
    run = in_child(
        "bench.aws:call_handler",
        {"name": "upload", "handler": handler_of("upload"), "events": [sqs_event(staged)]},
        {**sdk, **function_environment("upload", table=table), **settings},
    )
    page = DynamoTable(table).log_from_offset(of.incarnation, Offset(0), 100)
    if page.head is None or page.head.next_offset != staged.next_offset:
        raise CannotMeasureError(f"the upload function did not archive the segment:\n{run.log[-4000:]}")
    run.answer["seconds"] = run.answer["seconds"][0]
    for entry in page.entries:
        objects.delete(entry.key)
    return _Archived(
        run, sum(entry.object_bytes for entry in page.entries), sum(entry.data_bytes for entry in page.entries)
    )
