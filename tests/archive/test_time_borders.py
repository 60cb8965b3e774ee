"""A segment ends in the same archive as any slices of it that were taken at time borders."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest

from coldstream.archive.borders import HELD_BYTES
from coldstream.archive.commit import commit_fragment
from coldstream.archive.coverage import Coverage
from coldstream.archive.cutter import SegmentCutter
from coldstream.archive.segment_rolled import MAX_SEGMENT_BYTES, SegmentRolled
from coldstream.errors import CorruptionError, InvalidEventError, ObjectNotFoundError
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.fragment import FragmentTrailer
from coldstream.format.segment import SEGMENT_HEADER, SEGMENT_HEADER_BYTES
from coldstream.format.writer import make_chunk
from coldstream.manifest.entry import FragmentEntry
from coldstream.store.settings import MIN_FRAGMENT_BYTES
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.support.segments import START, STREAM, MemoryArchive

EVERY_MS = 5_000
FRAGMENT_BYTES = 4_000
FIRST = 1_000


@dataclass(frozen=True)
class Chunk:
    header: ChunkHeader
    data: bytes


def make(*specs: tuple[ChunkType, int, int], first: int = FIRST) -> list[Chunk]:
    """Make the chunks of a segment, each of a type, at a time, and with so many bytes of messages."""
    chunks: list[Chunk] = []
    for number, (kind, timestamp, size_bytes) in enumerate(specs):
        entries = [
            bytes([number % 256]) * (size_bytes // records) for records in [1 + number % 3] for _ in range(records)
        ]
        header, data = make_chunk(
            entries if kind is ChunkType.USER else [bytes(size_bytes)],
            chunk_id=ChunkId(chunks[-1].header.next_offset if chunks else first),
            timestamp=TimestampMs(timestamp),
            epoch=Epoch(1 + number // 20),
            kind=kind,
        )
        chunks.append(Chunk(header, data))
    return chunks


def user(timestamp: int, size_bytes: int = 500) -> tuple[ChunkType, int, int]:
    return ChunkType.USER, timestamp, size_bytes


def tracking(timestamp: int, size_bytes: int = 100) -> tuple[ChunkType, int, int]:
    return ChunkType.TRACKING_DELTA, timestamp, size_bytes


def random_segment(rng: random.Random) -> list[Chunk]:
    """Times stand still, jump, run backwards, lie before 1970; tracking chunks are small, large, or all there is."""
    now = rng.choice([START, 0, -7_000])
    specs = []
    only = rng.choice([None, None, None, None, None, ChunkType.USER, ChunkType.TRACKING_DELTA])
    for _ in range(rng.randrange(1, 60)):
        kind = only or rng.choice([ChunkType.USER] * 3 + [ChunkType.TRACKING_DELTA, ChunkType.TRACKING_SNAPSHOT])
        large = kind is not ChunkType.USER and rng.random() < 0.2
        specs.append((kind, now, rng.randrange(20_000, 50_000) if large else rng.randrange(3, 1_500)))
        now += rng.choice([0, 0, 1, 700, 2_000, 30_000, -900, -12_000])
    return make(*specs)


def border_numbers(chunks: Sequence[Chunk], every_ms: int = EVERY_MS) -> list[int]:
    """Count the chunks before each border, by the rule: the segment's start and end are borders as well."""
    users = [number for number, chunk in enumerate(chunks) if chunk.header.type is ChunkType.USER]
    borders = {0, len(chunks)}
    for here, following in pairwise([*users, None]):
        assert here is not None
        window = chunks[here].header.timestamp // every_ms
        between = sum(len(chunk.data) for chunk in chunks[here + 1 : following])
        if following is None or chunks[following].header.timestamp // every_ms != window or between > HELD_BYTES:
            borders.add(here + 1)
    return sorted(borders)


class Slices:
    """Stages and announces slices of one segment, as replicas do."""

    def __init__(self, chunks: Sequence[Chunk], every_ms: int | None = EVERY_MS) -> None:
        self.archive = MemoryArchive(FRAGMENT_BYTES)
        self._chunks = chunks
        self._every_ms = every_ms

    def announce(self, start: int, end: int) -> SegmentRolled:
        """Stage the chunks from number `start` up to `end`, and announce them."""
        part = self._chunks[start:end]
        first, following = Offset(part[0].header.chunk_id), part[-1].header.next_offset
        key = self.archive.keys.staged(STREAM.incarnation, first, following)
        staged = SEGMENT_HEADER + b"".join(chunk.data for chunk in part)
        self.archive.objects.objects.setdefault(key, staged)
        return SegmentRolled(
            STREAM, first, following, len(staged), self.archive.objects.bucket, key, cut_every_ms=self._every_ms
        )

    def upload(self, start: int, end: int) -> None:
        """Archive a slice as a queue would: again if another function has deleted the staged copy."""
        for _ in range(20):
            try:
                done = self.archive.uploader.upload(self.announce(start, end))
            except ObjectNotFoundError:
                continue
            assert done.quarantined is None, done.reason
            return
        raise AssertionError("never archived")


def whole(chunks: Sequence[Chunk], every_ms: int | None = EVERY_MS) -> MemoryArchive:
    slices = Slices(chunks, every_ms)
    slices.upload(0, len(chunks))
    return slices.archive


def random_slices(rng: random.Random, borders: Sequence[int]) -> list[tuple[int, int]]:
    """Choose slices that begin and end at borders, adjoin and overlap, and hold every chunk; in any order."""
    chosen = sorted({borders[0], borders[-1], *rng.sample(borders, rng.randrange(len(borders)))})
    slices = list(pairwise(chosen))
    for _ in range(rng.randrange(4)):
        start, end = sorted(rng.sample(borders, 2))
        slices.append((start, end))
    slices += rng.sample(slices, rng.randrange(len(slices)))
    rng.shuffle(slices)
    return slices


@pytest.mark.parametrize("seed", range(150))
def test_slices_in_any_order_and_number_end_in_the_archive_of_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    chunks = random_segment(rng)
    slices = Slices(chunks)
    for start, end in random_slices(rng, border_numbers(chunks)):
        slices.upload(start, end)
    assert slices.archive.state() == whole(chunks).state()
    assert set(slices.archive.objects.objects) == set(whole(chunks).objects.objects)


@pytest.mark.parametrize("seed", range(8))
def test_slices_and_the_whole_at_once_end_in_the_archive_of_the_whole(seed: int) -> None:
    rng = random.Random(1000 + seed)
    chunks = random_segment(rng)
    slices = Slices(chunks)
    events = [*random_slices(rng, border_numbers(chunks)), (0, len(chunks))]
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(slices.upload, start, end) for start, end in events]:
            future.result()
    assert slices.archive.state() == whole(chunks).state()
    assert set(slices.archive.objects.objects) == set(whole(chunks).objects.objects)


def trailer_of(archive: MemoryArchive, entry: FragmentEntry) -> FragmentTrailer:
    body = archive.body(entry.key)
    return FragmentTrailer.from_bytes(body, source=entry.key, object_bytes=len(body))


@pytest.mark.parametrize("seed", range(20))
def test_after_a_border_counting_starts_as_if_the_segment_had_rolled_there(seed: int) -> None:
    chunks = random_segment(random.Random(2000 + seed))
    archive = whole(chunks)
    starts = {int(chunks[number].header.chunk_id) for number in border_numbers(chunks)[:-1]}
    assert {int(entry.segment_offset) for entry in archive.log()} == starts
    number = chunks_before = position = 0
    for entry in archive.log():
        if entry.segment_offset == entry.first_offset:
            number, chunks_before, position = 0, 0, SEGMENT_HEADER_BYTES
        trailer = trailer_of(archive, entry)
        assert (trailer.sequence_number, trailer.chunks_before) == (number, chunks_before)
        assert trailer.data_position == position
        number, chunks_before, position = number + 1, chunks_before + entry.chunks, position + entry.data_bytes


def archived(archive: MemoryArchive) -> list[tuple[int, int]]:
    return [(entry.first_offset - FIRST, entry.next_offset - FIRST) for entry in archive.log()]


def counts(chunks: Sequence[Chunk], *groups: int) -> list[tuple[int, int]]:
    """List the offsets of groups of so many chunks."""
    numbers = [sum(groups[:number]) for number in range(len(groups) + 1)]
    offsets = [FIRST, *(int(chunk.header.next_offset) for chunk in chunks)]
    return [(offsets[start] - FIRST, offsets[end] - FIRST) for start, end in pairwise(numbers)]


@pytest.mark.parametrize(
    ("specs", "groups"),
    [
        ((user(0), user(4_999), user(5_000), user(9_999), user(10_000)), (2, 2, 1)),
        ((user(-1), user(0)), (1, 1)),
        ((user(7_000), user(3_000), user(4_000), user(8_000)), (1, 2, 1)),
        ((user(0), user(60_000)), (1, 1)),
        ((user(0), tracking(4_000), tracking(6_000), user(6_000)), (1, 3)),
        ((user(0), tracking(6_000), user(1_000)), (3,)),
        ((tracking(0), tracking(9_000), user(20_000)), (3,)),
        ((user(0), user(1), tracking(2), tracking(3)), (2, 2)),
        ((user(0), tracking(1, 40_000), tracking(2, 40_000), tracking(2, 10), user(3)), (1, 1, 1, 2)),
        ((tracking(0), tracking(7_000)), (2,)),
    ],
    ids=[
        "a span's first and last millisecond",
        "before and after 1970",
        "a clock that runs backwards",
        "a jump over many spans",
        "tracking chunks go with what follows",
        "tracking chunks have no say",
        "tracking chunks at the start stay with the first user chunk",
        "tracking chunks at the end are on their own",
        "many bytes of tracking chunks are not waited for",
        "nothing but tracking chunks",
    ],
)
def test_a_fragment_ends_at(specs: tuple[tuple[ChunkType, int, int], ...], groups: tuple[int, ...]) -> None:
    chunks = make(*specs)
    assert archived(whole(chunks)) == counts(chunks, *groups)


def test_without_time_borders_only_the_size_counts() -> None:
    chunks = make(user(0), tracking(5_000), user(90_000), user(3), tracking(7_000))
    assert archived(whole(chunks, None)) == counts(chunks, 5)


@pytest.mark.parametrize("less", [0, 1])
def test_a_fragment_of_just_the_target_size_takes_another_chunk(less: int, tmp_path: Path) -> None:
    chunks = make(user(0), user(0), user(0))
    event = Slices(chunks, None).announce(0, 3)
    cutter = SegmentCutter(event, Coverage(()), len(chunks[0].data) - less, tmp_path)
    found = []
    for fragment in [*cutter.feed(SEGMENT_HEADER + b"".join(chunk.data for chunk in chunks)), *cutter.finish()]:
        with fragment:
            found.append(fragment.chunks)
    assert found == ([2, 1] if less == 0 else [1, 1, 1])


def test_a_fragment_ends_before_a_chunk_that_the_manifest_holds() -> None:
    """The manifest holds part of it, as after an upload with another target size."""
    chunks = make(*[user(0)] * 8)
    slices = Slices(chunks, None)
    slices.upload(3, 5)
    slices.upload(0, 8)
    assert archived(slices.archive) == counts(chunks, 3, 2, 3)


def test_a_size_is_counted_from_the_last_time_border() -> None:
    chunks = make(*[user(0, 1_500)] * 2, *[user(5_000, 1_500)] * 4)
    assert archived(whole(chunks)) == counts(chunks, 2, 3, 1)


@pytest.mark.parametrize("seed", range(5))
def test_blocks_of_any_size_are_cut_alike(seed: int, tmp_path: Path) -> None:
    rng = random.Random(3000 + seed)
    chunks = random_segment(rng)
    slices = Slices(chunks)
    event = slices.announce(0, len(chunks))
    staged = slices.archive.body(event.staged_key)
    cutter = SegmentCutter(event, Coverage(()), FRAGMENT_BYTES, tmp_path)
    entries = []
    while staged:
        block, staged = staged[: (size := rng.randrange(1, 3_000))], staged[size:]
        for fragment in cutter.feed(block):
            with fragment:
                entries.append(fragment.entry_at("key", 0))
    for fragment in cutter.finish():
        with fragment:
            entries.append(fragment.entry_at("key", 0))
    described = [(entry.first_offset, entry.next_offset, entry.crc32) for entry in entries]
    assert described == [(entry.first_offset, entry.next_offset, entry.crc32) for entry in whole(chunks).log()]


def test_if_a_segment_fails_after_held_chunks_the_chunks_before_them_are_archived(tmp_path: Path) -> None:
    chunks = make(user(0), user(5_000), tracking(5_001), user(5_002))
    slices = Slices(chunks)
    event = slices.announce(0, 4)
    staged = slices.archive.body(event.staged_key)
    cutter = SegmentCutter(event, Coverage(()), FRAGMENT_BYTES, tmp_path)
    (fragment,) = cutter.feed(staged[:-1])
    with fragment:
        assert fragment.next_offset == chunks[0].header.next_offset
    with pytest.raises(CorruptionError):
        list(cutter.finish())
    cutter.close()


def test_the_rest_of_an_interrupted_upload_is_cut_as_if_it_had_not_been_interrupted() -> None:
    chunks = make(*[user(0, 1_500)] * 7, tracking(1), *[user(6_000, 1_500)] * 5)
    expected = whole(chunks)
    assert len(expected.log()) == 5
    for missing in range(5):
        slices = Slices(chunks)
        for entry in (*expected.log()[:missing], *expected.log()[missing + 1 :]):
            slices.archive.objects.objects[entry.key] = expected.body(entry.key)
            assert commit_fragment(slices.archive.table, STREAM, entry, lambda: START)
        slices.upload(0, len(chunks))
        assert slices.archive.state() == expected.state()


@pytest.mark.parametrize("every_ms", [0, -1, 999, 24 * 3600 * 1000 + 1])
def test_windows_that_are_too_short_or_too_long_are_refused(every_ms: int) -> None:
    event = Slices(make(user(0))).announce(0, 1)
    with pytest.raises(InvalidEventError, match="cut_every_ms"):
        replace(event, cut_every_ms=every_ms)
    for allowed in (None, 1_000, 24 * 3600 * 1000):
        assert replace(event, cut_every_ms=allowed).cut_every_ms == allowed


def test_the_fragments_of_the_largest_segment_are_numbered_in_16_bits() -> None:
    # Each but the last has more than the target size; a border only starts the count anew.
    data_bytes = MAX_SEGMENT_BYTES - SEGMENT_HEADER_BYTES
    assert data_bytes // (MIN_FRAGMENT_BYTES + 1) < 1 << 16


@pytest.mark.parametrize("every_ms", [None, EVERY_MS])
def test_no_chunk_after_the_announced_end_of_a_copy_is_archived(every_ms: int | None) -> None:
    """Nobody announced that chunk as committed."""
    chunks = make(*[user(at * 1_000, 3_000) for at in range(20)])
    slices = Slices(chunks, every_ms)
    longer = slices.announce(0, 20)
    staged = slices.archive.body(longer.staged_key)
    end = chunks[9].header.next_offset
    key = slices.archive.keys.staged(STREAM.incarnation, Offset(FIRST), end)
    slices.archive.objects.objects[key] = staged
    done = slices.archive.uploader.upload(replace(longer, next_offset=end, staged_key=key))
    assert done.quarantined is not None
    assert done.reason is not None
    assert "next offset" in done.reason
    assert all(entry.next_offset <= end for entry in slices.archive.log())
