"""The model of docs/scale.md against the code: what a step costs, from a thousand fragments to a million.

`python -m bench scale` runs all of it; `python -m bench.scale --fragments N --streams N` less of it.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import report
from bench.aws import BUCKET, sdk_environment
from bench.dynamodb import LocalDynamoDB
from bench.harness import Aim, Cell, Section, environment, say
from bench.load import make_segment, stream
from bench.local_s3 import LocalS3
from bench.log import write_log, write_streams
from bench.scale_load import Counts, StreamArchive, append_fragments, list_streams, look_up
from bench.scale_model import FRAGMENT_UNITS, write_units
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable

FRAGMENTS = (1_000, 10_000, 100_000, 1_000_000)
STREAMS = (10, 100, 1_000, 10_000)
STEPS = 50
"""Commits, and lookups of each kind, at each size."""

PREDICTED_UNITS = write_units(head_bytes=380, event_bytes=990, entry_bytes=1200)
"""Of the fragments that are committed here: their chunks are so even that an event stays below a KB, or nearly so: at a
million fragments offsets have more digits, and one event in five passes it. It costs FRAGMENT_UNITS then."""

MOST_OFF = 0.05
"""Of a unit: a stream's first fragment registers the stream, too."""

SEGMENT_BYTES = 20_000
MESSAGE_BYTES = (200, 400)
MOST_SLOPE = 0.02
"""By which power of its size an archive may make a step dearer."""

HOW = f"""\
The manifest is in DynamoDB Local, which counts units as DynamoDB does; those of transactions are counted by AWS's rule,
two for each begun KB and one in the index. A log of the smallest size is committed fragment by fragment; larger ones
are loaded in batches, laid out by the same `store.items`, without events, which nothing here reads. Then
`commit_fragment` appends {STEPS} fragments of 64 MiB, and `Resolver.ranges` looks up {STEPS} random offsets and
timestamps by the API's default bounds. The last {STEPS} streams of each number are archived by `ingest.stage` and
`Uploader.upload` of a segment of {SEGMENT_BYTES // 1000} KB each, one fragment, to the S3 server of the benchmarks, and
count; those before are loaded in batches, too: entry, head and registration.
A slope is the power of the size by which a step grows: 0 means that it costs the same at any size. Times are those of
the emulator, on a shared machine, and are no figures of AWS."""


@dataclass(frozen=True, slots=True)
class Series:
    """What one step costs at each size of an archive."""

    name: str
    sizes: list[int]
    units: list[float]

    @property
    def slope(self) -> float:
        """The power of the size by which the units grow: the slope of the line through their logarithms."""
        return fitted_slope(self.sizes, self.units)


def fitted_slope(sizes: Sequence[int], units: Sequence[float]) -> float:
    """Return the slope of the line of least squares through the logarithms; 0 for a single size."""
    xs, ys = [math.log(size) for size in sizes], [math.log(one) for one in units]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread if spread else 0.0


def measure(fragments: Sequence[int] = FRAGMENTS, streams: Sequence[int] = STREAMS) -> Section:
    """Measure each step at each size, and compare it with the model."""
    rows: list[tuple[Cell, ...]] = []
    found: dict[str, Series] = {}
    with LocalS3() as s3, LocalDynamoDB() as dynamodb:
        sdk = sdk_environment(s3_url=s3.url, dynamodb_url=dynamodb.url)
        with environment(sdk):
            table, objects = DynamoTable(dynamodb.table), S3Objects(BUCKET)
            measured = (
                *_of_one_stream(table, objects, dynamodb, fragments),
                *_of_many_streams(table, objects, dynamodb, streams),
            )
    for what, size, counts, units in measured:
        say(f"{what} at {size:,}: {units:g} units")
        series = found.setdefault(what, Series(what, [], []))
        series.sizes.append(size)
        series.units.append(units)
        rows.append(
            (what, size, units, counts.table_requests, counts.s3_requests, 1000 * counts.seconds / counts.steps)
        )
    commits = found["commit of a fragment"]
    return Section(
        title="Scale",
        how=HOW,
        columns=("a step", "at", "units", "requests to the table", "to S3", "ms"),
        rows=tuple(rows),
        aims=(
            Aim(
                f"{PREDICTED_UNITS} write units a fragment, {FRAGMENT_UNITS} if its event passes a KB, at every size",
                ", ".join(f"{one:g}" for one in commits.units),
                all(PREDICTED_UNITS - MOST_OFF <= one <= FRAGMENT_UNITS + MOST_OFF for one in commits.units),
            ),
            *(
                Aim(
                    f"no step is dearer in a larger archive: {one.name}",
                    f"slope {one.slope:.3f}",
                    one.slope <= MOST_SLOPE,
                )
                for one in found.values()
            ),
        ),
    )


Measured = tuple[str, int, Counts, float]


def _of_one_stream(
    table: DynamoTable, objects: S3Objects, dynamodb: LocalDynamoDB, sizes: Sequence[int]
) -> Iterator[Measured]:
    """Yield what a commit and a lookup cost in logs of these sizes, each of a stream of its own."""
    for number, size in enumerate(sizes):
        of = stream(1_000_000 + number)
        if number == 0:
            say(f"committing {size:,} fragments")
            yield "commit of a fragment", size, (counts := append_fragments(table, of, range(size))), counts.write_units
        else:
            write_log(of, size, url=dynamodb.url, table=dynamodb.table)
            counts = append_fragments(table, of, range(size, size + STEPS))
            yield "commit of a fragment", size, counts, counts.write_units
        for what, by_time in (("lookup of an offset", False), ("lookup of a timestamp", True)):
            counts = look_up(table, objects, of, size, STEPS, by_time=by_time)
            yield what, size, counts, counts.each("read units")


def _of_many_streams(
    table: DynamoTable, objects: S3Objects, dynamodb: LocalDynamoDB, sizes: Sequence[int]
) -> Iterator[Measured]:
    """Yield what the first segment of a stream costs as the archive gets these numbers of streams, and their list."""
    done = 0
    with tempfile.TemporaryDirectory(prefix="coldstream-bench-") as directory:
        segment = make_segment(Path(directory), size_bytes=SEGMENT_BYTES, message_bytes=MESSAGE_BYTES)
        archive = StreamArchive(table, objects, segment)
        for size in sizes:
            counted_from = max(done, size - STEPS)
            say(f"loading {counted_from - done:,} streams, and archiving {size - counted_from:,}")
            write_streams(
                [stream(number) for number in range(done, counted_from)], url=dynamodb.url, table=dynamodb.table
            )
            counts = archive.counted(range(counted_from, size))
            yield "first segment of a stream", size, counts, counts.write_units
            done = size
            listed = list_streams(table)
            yield "list of all streams, each", size, listed, listed.each("read units")


def main() -> int:
    """Measure up to the sizes that are given, and print the section."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--fragments", type=int, default=FRAGMENTS[-1], help="the most fragments of one stream")
    parser.add_argument("--streams", type=int, default=STREAMS[-1], help="the most streams")
    options = parser.parse_args()
    section = measure(
        [size for size in FRAGMENTS if size <= options.fragments], [size for size in STREAMS if size <= options.streams]
    )
    print(f"\n{section.title}\n", *report.describe(section), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
