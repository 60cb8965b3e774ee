"""Lookups attach where the broker's own log library does, on the same segments: every offset, every timestamp."""

from __future__ import annotations

import random
import shutil
from bisect import bisect_right
from pathlib import Path

import pytest

from coldstream.format.chunk import ChunkHeader, ChunkType, iter_chunks
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.resolve.answer import AnswerOutcome, RangesQuery
from coldstream.resolve.resolver import Resolver
from coldstream.units import Offset, TimestampMs
from tests.support.golden import golden_logs
from tests.support.segments import START, STREAM, MemoryArchive, write_stream

ROLLED = "__rolled_1763700000000000000"


class Rolled:
    """The rolled segments of a stream, in an archive, and alone in a directory that osiris can open."""

    def __init__(self, source: Path, directory: Path, fragment_bytes: int) -> None:
        self.archive = MemoryArchive(fragment_bytes)
        rolled = self.archive.announce(source)
        directory.mkdir()
        self.chunks: list[ChunkHeader] = []
        for segment in rolled:
            for suffix in ("segment", "index"):
                shutil.copy(source / f"{segment.first_offset:020}.{suffix}", directory)
            content = (source / f"{segment.first_offset:020}.segment").read_bytes()[SEGMENT_HEADER_BYTES:]
            self.chunks += [chunk.header for chunk in iter_chunks(content, source="segment")]
        self.directory = directory
        self.tail = self.chunks[-1].next_offset
        self._resolver = Resolver(self.archive.table, self.archive.objects, url_expiry_s=60, clock=lambda: 0.0)
        self._resolver.ranges(RangesQuery("/", STREAM.name, FIRST, STREAM.incarnation))  # it remembers whose that is

    def attach(self, spec: OffsetSpec) -> int:
        """Return the chunk at which the resolver attaches, or the tail."""
        query = RangesQuery("/", STREAM.name, spec, STREAM.incarnation, precise=True)
        self.archive.table.requests.clear()
        answer = self._resolver.ranges(query)
        assert self.archive.table.requests.total() == (2 if isinstance(spec, AtTimestamp) else 1)
        if answer.outcome is AnswerOutcome.TAIL:
            assert answer.tail is not None
            return answer.tail
        assert answer.outcome is AnswerOutcome.RANGES
        return answer.ranges[0].first_offset

    def offsets(self) -> list[AtOffset]:
        """Each chunk's first offset, its last one and one between, and some below the first and past the last."""
        inside = {
            at for one in self.chunks for at in (one.chunk_id, one.next_offset - 1, one.chunk_id + one.records // 2)
        }
        first = self.chunks[0].chunk_id
        around = {*range(max(0, first - 3), first), *range(self.tail, self.tail + 5)}
        return [AtOffset(Offset(offset)) for offset in sorted(inside | around)]

    def timestamps(self) -> list[TimestampMs]:
        """Every timestamp that a chunk has, and those next to it."""
        around = {header.timestamp + step for header in self.chunks for step in (-1, 0, 1)}
        return [TimestampMs(timestamp) for timestamp in sorted(around)]

    def by_the_rule(self, timestamp: TimestampMs) -> int:
        """Return the first chunk, in offset order, at or after a timestamp, or the tail if there is none."""
        return next((h.chunk_id for h in self.chunks if h.timestamp >= timestamp), self.tail)


@pytest.fixture(scope="module", params=["plain", "tracking", "generated", "repeated timestamps"])
def rolled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rolled:
    directory = tmp_path_factory.mktemp("rolled")
    logs = {log.stream: log.directory for log in golden_logs()}
    if request.param in logs:
        return Rolled(logs[request.param], directory / ROLLED, fragment_bytes=30_000)
    timestamps = None
    if request.param == "repeated timestamps":
        timestamps = [START + 10 * (number // 7) for number in range(300)]
    write_stream(directory / "stream", timestamps=timestamps, seed=11)
    return Rolled(directory / "stream", directory / ROLLED, fragment_bytes=20_000)


def test_offsets_at_every_border_and_inside_attach_at_the_chunk_that_osiris_attaches_at(rolled, osiris):
    specs = rolled.offsets()
    assert [rolled.attach(spec) for spec in specs] == osiris(rolled.directory).attach(specs)


def test_first_last_and_next_attach_where_osiris_does(rolled, osiris):
    specs = [FIRST, LAST, NEXT]
    assert [rolled.attach(spec) for spec in specs] == osiris(rolled.directory).attach(specs)


def test_a_timestamp_inside_one_segment_attaches_where_osiris_does(rolled, osiris):
    """The timestamps at which osiris keeps to the rule: neither between two segments, nor in both.

    With one millisecond on both sides of a border, osiris attaches after it, and skips what is before.
    """
    borders = segment_borders(rolled)
    inside = [
        timestamp
        for timestamp in rolled.timestamps()
        if timestamp < borders[0][0] or sum(first <= timestamp <= last for first, last in borders) == 1
    ]
    assert len(inside) > len(borders)
    specs = [AtTimestamp(timestamp) for timestamp in inside]
    assert [rolled.attach(spec) for spec in specs] == osiris(rolled.directory).attach(specs)


def segment_borders(rolled: Rolled) -> list[tuple[int, int]]:
    """Return each segment's first and last timestamp."""
    starts = sorted(int(path.stem) for path in rolled.directory.glob("*.segment"))
    spans: dict[int, list[int]] = {}
    for header in rolled.chunks:
        spans.setdefault(bisect_right(starts, header.chunk_id), []).append(header.timestamp)
    return [(span[0], span[-1]) for span in spans.values()]


def test_every_timestamp_attaches_at_the_first_chunk_at_or_after_it(rolled):
    for timestamp in rolled.timestamps():
        assert rolled.attach(AtTimestamp(timestamp)) == rolled.by_the_rule(timestamp)


@pytest.mark.parametrize("seed", range(6))
def test_clocks_that_step_back_change_nothing_about_the_rule(tmp_path, seed):
    rng = random.Random(seed)
    now, timestamps = START, []
    for _ in range(300):
        now += rng.randrange(0, 20) if rng.random() < 0.97 else -rng.randrange(200, 3000)
        timestamps.append(now)
    write_stream(tmp_path / "stream", timestamps=timestamps, seed=seed)
    rolled = Rolled(tmp_path / "stream", tmp_path / ROLLED, fragment_bytes=10_000)
    for timestamp in rolled.timestamps():
        assert rolled.attach(AtTimestamp(timestamp)) == rolled.by_the_rule(timestamp)


def test_last_passes_over_tracking_chunks(rolled):
    last_user = max(header.chunk_id for header in rolled.chunks if header.type is ChunkType.USER)
    assert rolled.attach(LAST) == last_user
