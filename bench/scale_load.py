"""A load on the manifest: fragments of one stream, or first segments of many, by the code that ships.

It calls what upload function and resolver call, against DynamoDB Local and the S3 server of the benchmarks, and counts
requests and units as AWS charges for them. Nothing here lays out an item or a key by itself.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from bench.harness import Stopwatch
from bench.load import FIRST_TIMESTAMP, stream
from bench.log import MS_A_FRAGMENT, OFFSETS_A_FRAGMENT, entry_of
from coldstream.archive.commit import commit_fragment
from coldstream.archive.upload import Uploader
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import stage
from coldstream.manifest.spec import FIRST, AtOffset, AtTimestamp
from coldstream.manifest.stream import StreamId
from coldstream.resolve.answer import RangesQuery
from coldstream.resolve.resolver import Resolver
from coldstream.store.keys import Keys
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.store.streams import iter_streams
from coldstream.units import MIB, Offset, TimestampMs, now_ms
from tests.support.costs import counted

URL_EXPIRY_S = 3600


@dataclass(frozen=True, slots=True)
class Counts:
    """What so many steps took: requests by operation, units of DynamoDB, seconds."""

    steps: int
    counts: Counter[str]
    seconds: float

    def each(self, what: str) -> float:
        """Return how many a step took."""
        return self.counts[what] / self.steps

    @property
    def write_units(self) -> float:
        """Write units of a step, by AWS's rule for transactions."""
        return self.each("units by size")

    @property
    def table_requests(self) -> float:
        """Requests to the table of a step."""
        return sum(self.each(operation) for operation in ("GetItem", "Query", "TransactGetItems", "TransactWriteItems"))

    @property
    def s3_requests(self) -> float:
        """Requests to the bucket of a step, without DELETEs, which are free."""
        return sum(self.each(operation) for operation in ("PutObject", "HeadObject", "GetObject"))


def append_fragments(table: ManifestTable, of: StreamId, numbers: Iterable[int]) -> Counts:
    """Commit the fragments of a stream with these numbers, in order, as the upload function does."""
    steps = 0
    with counted() as counts, Stopwatch() as stopwatch:
        for number in numbers:
            assert commit_fragment(table, of, entry_of(of, number), now_ms)
            steps += 1
    return Counts(steps, counts, stopwatch.seconds)


def look_up(
    table: ManifestTable, objects: ObjectStore, of: StreamId, fragments: int, lookups: int, *, by_time: bool
) -> Counts:
    """Look up random offsets, or timestamps, of a stream of so many fragments, as the resolver does.

    It has answered for the stream before, and asks no further time whether it is deleted.
    """
    resolver = Resolver(table, objects, URL_EXPIRY_S, clock=lambda: 0.0)
    resolver.ranges(RangesQuery(of.vhost, of.name, FIRST, of.incarnation))
    dice = random.Random(fragments)
    with counted() as counts, Stopwatch() as stopwatch:
        for _ in range(lookups):
            number = dice.randrange(fragments)
            spec = (
                AtTimestamp(TimestampMs(FIRST_TIMESTAMP + number * MS_A_FRAGMENT + 1))
                if by_time
                else AtOffset(Offset(number * OFFSETS_A_FRAGMENT))
            )
            resolver.ranges(RangesQuery(of.vhost, of.name, spec, of.incarnation))
    return Counts(lookups, counts, stopwatch.seconds)


class StreamArchive:
    """Archives the same segment as the first of one stream after the other, as agent and upload function do."""

    def __init__(self, table: ManifestTable, objects: ObjectStore, segment: SegmentSlice) -> None:
        self._objects = objects
        self._segment = segment
        self._keys = Keys()
        self._uploader = Uploader(table, objects, self._keys, 64 * MIB)

    def counted(self, numbers: Iterable[int]) -> Counts:
        """Archive the streams with these numbers, and count what that takes."""
        steps = 0
        with counted() as counts, Stopwatch() as stopwatch:
            for number in numbers:
                self._archive(number)
                steps += 1
        return Counts(steps, counts, stopwatch.seconds)

    def _archive(self, number: int) -> None:
        segment = stage(self._segment, stream(number), self._objects, self._keys)
        result = self._uploader.upload(segment)
        assert result.fragments_committed == 1, result


def list_streams(table: ManifestTable) -> Counts:
    """List all streams of the archive, as upkeep does."""
    with counted() as counts, Stopwatch() as stopwatch:
        streams = sum(1 for _ in iter_streams(table))
    return Counts(streams, counts, stopwatch.seconds)
