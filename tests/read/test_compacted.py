"""Reading while fragments are compacted, held against a brute-force reading of all chunks.

A stream is appended to, holes in it are filled late, and neighbours are compacted, in either encoding; a compaction may
stop after any of its transactions, and another one finishes its work. After every transaction of any of them all
answers have to be those of the chunks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice

import pytest

from coldstream.archive.coverage import covered_to, read_coverage
from coldstream.errors import LostRaceError
from coldstream.format.chunk import ChunkType
from coldstream.manifest.entry import Encoding, FragmentEntry, Gap
from coldstream.manifest.groups import CompactionPolicy, Group, plan_groups
from coldstream.manifest.spec import FIRST, LAST, AtOffset, AtTimestamp, OffsetSpec
from coldstream.resolve.answer import Answer, AnswerOutcome, Bounds
from coldstream.resolve.cursor import Cursor
from coldstream.resolve.resolve import ResolveRequest, resolve
from coldstream.units import MAX_TIMESTAMP_MS, Offset, TimestampMs
from tests.support.archive import NOW, STREAM, ChunkArchive, Spec, StoredChunk, holes
from tests.support.compaction import DUE, Compaction, decoded

INCARNATION = STREAM.incarnation
EVERYTHING = Bounds(max_ranges=1000, max_bytes=1 << 40)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.manifest.groups.STEP_BYTES", 150)


class CompactedStream:
    """A stream that is appended to and compacted at random; `committed` holds its archived chunks."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.archive = ChunkArchive(sparse_bytes=self.rng.choice([60, 150, 400]))
        self.compaction = Compaction(self.archive)
        self.committed: dict[int, StoredChunk] = {}
        self.late: list[FragmentEntry] = []
        self.planned: list[tuple[Group, FragmentEntry]] = []
        self.named: set[str] = set()
        self.next_offset = self.rng.choice([0, 7])
        self.now = 20

    @property
    def chunks(self) -> list[StoredChunk]:
        return [self.committed[chunk_id] for chunk_id in sorted(self.committed)]

    def happen(self) -> Iterator[None]:
        """Do something, and stop after every transaction of it."""
        head = self.archive.table.head(INCARNATION)
        what = ["append"] * 6 + ["late"] * 2 + ["planned", "finish", "compact", "compact"]
        if head is not None and head.compacting is not None:
            # What comes between two transactions of a compaction matters most.
            what = ["append", "late", "late", "late", "planned", "finish", "compact"]
        match self.rng.choice(what):
            case "late" if self.late:
                self.commit(self.late.pop(self.rng.randrange(len(self.late))))
                yield
            case "planned" if self.planned:
                yield from self.replace(*self.planned.pop())
            case "finish":
                yield from self._stopping(self.compaction.finish())
            case "compact":
                yield from self.compaction.finish()
                yield from self._compact()
            case _:
                self._append()
                yield

    def settle(self) -> Iterator[None]:
        """Finish everything."""
        yield from self.compaction.finish()
        while self.late:
            self.commit(self.late.pop())
            yield

    def _append(self) -> None:
        specs = []
        for _ in range(self.rng.randrange(1, 4)):
            kind = self.rng.choice([ChunkType.USER] * 4 + [ChunkType.TRACKING_DELTA])
            specs.append(Spec(1 if kind is not ChunkType.USER else self.rng.randrange(1, 4), self.now, kind))
            self.now += self.rng.choice([0, 0, 1, 2])
            if self.rng.random() < 0.15:
                self.now -= self.rng.randrange(0, 15)
        entry = self.archive.put(self.next_offset, specs)
        self.next_offset = entry.next_offset
        if self.rng.random() < 0.3:
            self.late.append(entry)
        else:
            self.commit(entry)

    def commit(self, entry: FragmentEntry) -> None:
        self.archive.commit(entry)
        inside = (chunk for chunk in self.archive.chunks if chunk.key == entry.key)
        self.committed |= {chunk.header.chunk_id: chunk for chunk in inside}
        self.named.add(entry.key)

    def _compact(self) -> Iterator[None]:
        encoding = self.rng.choice([Encoding.IDENTITY, Encoding.ZSTD_SEEKABLE])
        policy = CompactionPolicy(TimestampMs(MAX_TIMESTAMP_MS), self.rng.choice([1000, 10_000, 10_000]), encoding)
        groups = list(plan_groups(self.compaction.log(), policy))
        if not groups:
            return
        group = self.rng.choice(groups)
        merged = self.compaction.store(group, encoding)
        if self.rng.random() < 0.2:
            self.planned.append((group, merged))
            return
        yield from self.replace(group, merged)

    def replace(self, group: Group, merged: FragmentEntry) -> Iterator[None]:
        with suppress(LostRaceError):
            for _ in self._stopping(self.compaction.replace(group, merged)):
                self.named.add(merged.key)
                yield

    def _stopping(self, steps: Iterator[None]) -> Iterator[None]:
        yield from islice(steps, self.rng.choice([1, 1, 1, 1, 2, 100]))


def ask(stream: CompactedStream, start: OffsetSpec | Cursor, *, precise: bool = False) -> Answer:
    request = ResolveRequest(STREAM, start, EVERYTHING, precise)
    return resolve(request, stream.archive.table, stream.archive.objects, now=NOW, url_expiry_s=60)


def ask_once(stream: CompactedStream, start: OffsetSpec, *, precise: bool = False) -> Answer:
    """Ask, at the cost of one Query, two by time, a GetItem where there is a gap or no time so late, and no more."""
    table, objects = stream.archive.table, stream.archive.objects
    table.requests.clear()
    objects.requests.clear()
    answer = ask(stream, start, precise=precise)
    is_timed = isinstance(start, AtTimestamp)
    queries = 1 + (is_timed and answer.outcome is not AnswerOutcome.TAIL)
    gets = answer.outcome is AnswerOutcome.GAP or (is_timed and answer.outcome is AnswerOutcome.TAIL)
    assert table.requests == ({"Query": queries, "GetItem": 1} if gets else {"Query": queries})
    assert precise or not objects.requests
    return answer


def check_ranges(stream: CompactedStream, answer: Answer, first: StoredChunk) -> None:
    """Check that the ranges have all chunks from `first` on, and only their predecessors before it."""
    chunks = stream.chunks
    hole = next((hole for hole in holes(chunks) if hole[0] > first.header.chunk_id), None)
    end = chunks[-1].header.next_offset if hole is None else hole[0]
    found: list[StoredChunk] = []
    reached = answer.ranges[0].first_offset
    for part in answer.ranges:
        assert part.first_offset <= reached < part.next_offset
        for chunk in decoded(stream.archive.objects, part):
            stored = stream.committed[chunk.header.chunk_id]
            assert chunk.header == stored.header
            if chunk.header.chunk_id >= reached:
                assert chunk.header.chunk_id == reached
                reached = chunk.header.next_offset
                found.append(stored)
    number = chunks.index(first)
    expected = [chunk for chunk in chunks[number:] if chunk.header.chunk_id < end]
    assert found[-len(expected) :] == expected
    early = found[: -len(expected)]
    assert early == chunks[number - len(early) : number]
    if hole is None:
        assert answer.tail == end
    else:
        if answer.cursor is not None:
            # A page of the index by time does not say what is a gap.
            answer = ask(stream, Cursor.from_text(answer.cursor))
        assert answer.gap == Gap(Offset(hole[0]), Offset(hole[1]))


def check_offset(stream: CompactedStream, offset: int, *, precise: bool) -> None:
    chunks = stream.chunks
    answer = ask_once(stream, AtOffset(Offset(offset)), precise=precise)
    at = max(offset, chunks[0].header.chunk_id)
    holder = next((chunk for chunk in chunks if chunk.header.chunk_id <= at < chunk.header.next_offset), None)
    hole = next((hole for hole in holes(chunks) if hole[0] <= at < hole[1]), None)
    if holder is not None:
        check_ranges(stream, answer, holder)
    elif hole is not None:
        assert not answer.ranges
        assert answer.gap == Gap(Offset(hole[0]), Offset(hole[1]))
    else:
        assert not answer.ranges
        assert answer.tail == chunks[-1].header.next_offset


def check_timestamp(stream: CompactedStream, timestamp: int, *, precise: bool) -> None:
    chunks = stream.chunks
    answer = ask_once(stream, AtTimestamp(TimestampMs(timestamp)), precise=precise)
    found = next((chunk for chunk in chunks if chunk.header.timestamp >= timestamp), None)
    if found is None:
        assert not answer.ranges
        assert answer.tail == chunks[-1].header.next_offset
        return
    hole = next((hole for hole in holes(chunks) if hole[1] == found.header.chunk_id), None)
    if hole is None:
        check_ranges(stream, answer, found)
    else:
        assert not answer.ranges
        assert answer.gap == Gap(Offset(hole[0]), Offset(hole[1]))


def check_coverage(stream: CompactedStream) -> None:
    table, chunks = stream.archive.table, stream.chunks
    covered = {offset for chunk in chunks for offset in range(chunk.header.chunk_id, chunk.header.next_offset)}
    for chunk in stream.rng.choices(stream.archive.chunks, k=4):
        header = chunk.header
        coverage = read_coverage(table, INCARNATION, Offset(header.chunk_id), header.next_offset)
        assert (coverage.holder_of(header, source="x") is not None) == (header.chunk_id in stream.committed)
        first = Offset(stream.rng.randrange(stream.next_offset))
        following = Offset(stream.rng.randrange(first + 1, stream.next_offset + 2))
        wanted = set(range(first, following))
        assert read_coverage(table, INCARNATION, first, following).holds(first, following) == (wanted <= covered)
        reached = next((offset for offset in range(first, following) if offset not in covered), following)
        assert covered_to(table, INCARNATION, first, following) == reached


def check_state(stream: CompactedStream) -> None:
    table, chunks, log = stream.archive.table, stream.chunks, stream.compaction.log()
    assert [(gap.first_offset, gap.next_offset) for gap in table.gaps(INCARNATION, 1000)] == holes(chunks)
    head = table.head(INCARNATION)
    assert head is not None
    assert (head.fragments, head.object_bytes) == (len(log), sum(entry.object_bytes for entry in log))
    assert (head.chunks, head.data_bytes) == (len(chunks), sum(len(chunk.data) for chunk in chunks))
    running = [entry.running_timestamp for entry in log]
    assert running == sorted(running)
    tombstones = table.tombstones(INCARNATION, DUE, 10_000)
    assert not {tombstone.key for tombstone in tombstones} & {entry.key for entry in log}
    assert table.tombstones(INCARNATION, TimestampMs(DUE - 1), 10_000) == ()


def look(stream: CompactedStream, *, samples: int | None) -> None:
    chunks = stream.chunks
    if not chunks:
        return
    check_state(stream)
    check_coverage(stream)
    offsets = range(chunks[-1].header.next_offset + 2)
    times = [chunk.header.timestamp for chunk in chunks]
    timestamps = range(min(times) - 1, max(times) + 2)
    count = lambda those: len(those) if samples is None else min(samples, len(those))  # noqa: E731
    for offset in stream.rng.sample(offsets, count(offsets)):
        check_offset(stream, offset, precise=stream.rng.random() < 0.5)
    for timestamp in stream.rng.sample(timestamps, count(timestamps)):
        check_timestamp(stream, timestamp, precise=stream.rng.random() < 0.5)
    check_ranges(stream, ask_once(stream, FIRST), chunks[0])
    users = [chunk for chunk in chunks if chunk.header.type is ChunkType.USER]
    last = ask(stream, LAST)
    if users:
        check_ranges(stream, last, users[-1])
    else:
        assert last.tail == chunks[-1].header.next_offset


@pytest.mark.parametrize("seed", range(12))
def test_every_answer_is_right_after_every_transaction(seed: int) -> None:
    stream = CompactedStream(seed)
    for _ in range(60):
        for _ in stream.happen():
            look(stream, samples=4)
    look(stream, samples=None)
    for _ in stream.settle():
        look(stream, samples=6)
    look(stream, samples=None)
    log = stream.compaction.log()
    prior: FragmentEntry | None = None
    for entry in log:
        assert entry.prior_offset == (None if prior is None else prior.next_offset)
        assert entry.prior_timestamp == (None if prior is None else prior.running_timestamp)
        prior = entry
    gone = {tombstone.key for tombstone in stream.archive.table.tombstones(INCARNATION, DUE, 10_000)}
    assert gone == stream.named - {entry.key for entry in log}


def stopped(fragments: int = 9, encoding: Encoding = Encoding.IDENTITY) -> CompactedStream:
    """Make a stream of so many fragments, two holes before them, and a compaction just begun."""
    stream = CompactedStream(0)
    for number, first in enumerate([0, 20, *range(40, 40 + 5 * fragments, 5)]):
        entry = stream.archive.put(first, [Spec(2, 100 * number), Spec(3, 100 * number + 50)])
        stream.next_offset = entry.next_offset
        stream.commit(entry)
    group = Group(stream.compaction.log()[2:])
    next(stream.replace(group, stream.compaction.store(group, encoding)))
    left = range(40, 40 + 5 * (fragments - 4), 5)
    assert [entry.first_offset for entry in stream.compaction.log()] == [0, 20, *left, 40]
    return stream


@pytest.mark.parametrize("greatest", [150, 475, 1475])
@pytest.mark.parametrize("finish_first", [False, True])
@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_fragment_that_comes_right_before_a_compaction_under_way_is_linked(
    greatest: int, encoding: Encoding, *, finish_first: bool
) -> None:
    stream = stopped(encoding=encoding)
    late = stream.archive.put(25, [Spec(10, 120), Spec(5, greatest)])
    steps = stream.compaction.finish()
    if finish_first:
        next(steps)
        steps = stream.compaction.finish()
    stream.commit(late)
    look(stream, samples=40)
    for _ in steps:
        look(stream, samples=40)
    assert [entry.first_offset for entry in stream.compaction.log()] == [0, 20, 25, 40]
    assert stream.compaction.log()[-1].prior_offset == 40
    assert stream.compaction.log()[-1].prior_timestamp == greatest


def test_what_is_before_a_merged_entry_is_before_the_first_within_it() -> None:
    stream = stopped(6)
    stream.commit(stream.archive.put(30, [Spec(5, 1475)]))
    within, also_within, merged = stream.compaction.log()[-3:]
    assert (within.prior_offset, within.prior_timestamp) == (35, 1475)
    assert (also_within.prior_offset, also_within.prior_timestamp) == (45, 1475)
    assert (merged.prior_offset, merged.prior_timestamp) == (35, 1475)


def test_the_command_zstd_makes_the_identity_fragment_of_a_compressed_one(zstd: Callable[..., bytes]) -> None:
    stream = stopped()
    for _ in stream.compaction.finish():
        pass
    [*_, merged] = stream.compaction.log()
    group = Group((merged,))
    packed = stream.compaction.store(group, Encoding.ZSTD_SEEKABLE)
    assert len(packed.sparse.points) > 1
    objects = stream.archive.objects.objects
    assert zstd("-d", data=objects[packed.key]) == objects[merged.key]
