"""The scanner: whole segments, cut and damaged in every way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from zlib import crc32

import pytest

from coldstream.errors import (
    BadCountError,
    BadCrcError,
    BadLengthError,
    BadMagicError,
    BadSequenceError,
    BadVersionError,
    CorruptionError,
    TruncatedError,
)
from coldstream.format import scanner as scanner_module
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.compression import Compression
from coldstream.format.entry import SubBatch
from coldstream.format.scanner import ChunkBegin, ChunkBytes, ChunkEnd, SegmentScanner, WholeChunk
from coldstream.format.segment import MAX_POSITION, SEGMENT_HEADER
from coldstream.format.writer import make_chunk, make_sub_batch
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.support.memory import peak_bytes
from tests.support.native import native_module
from tests.support.random_messages import damaged, random_chunk_bytes

SOURCE = "ström/00000000000000000100.segment"
FIRST = Offset(100)


@dataclass(frozen=True)
class Scanned:
    header: ChunkHeader
    position: int
    crc32: int
    data: bytes


def scan(data: bytes, block_bytes: int = 1 << 20, first_offset: Offset | None = FIRST) -> Iterator[Scanned]:
    scanner = SegmentScanner(SOURCE, first_offset=first_offset)
    begun: ChunkBegin | None = None
    parts: list[bytes] = []
    for start in range(0, len(data), block_bytes):
        for event in scanner.feed(data[start : start + block_bytes]):
            match event:
                case ChunkBegin():
                    assert begun is None
                    begun, parts = event, []
                case ChunkBytes(view):
                    assert begun
                    assert view
                    parts.append(bytes(view))
                case ChunkEnd(header, position, whole_crc):
                    assert begun == ChunkBegin(header, position)
                    yield Scanned(header, position, whole_crc, b"".join(parts))
                    begun = None
    scanner.close()


def scan_whole(data: bytes, block_bytes: int = 1 << 20) -> Iterator[Scanned]:
    """As `scan`, by `feed_whole`."""
    scanner = SegmentScanner(SOURCE, first_offset=FIRST)
    parts: list[bytes] = []
    for start in range(0, len(data), block_bytes):
        for event in scanner.feed_whole(data[start : start + block_bytes]):
            match event:
                case WholeChunk(header, position, whole_crc, view):
                    assert not parts
                    yield Scanned(header, position, whole_crc, bytes(view))
                case ChunkBegin():
                    assert not parts
                case ChunkBytes(view):
                    parts.append(bytes(view))
                case ChunkEnd(header, position, whole_crc):
                    yield Scanned(header, position, whole_crc, b"".join(parts))
                    parts = []
    scanner.close()


def outcome_of(chunks: Iterator[Scanned]) -> tuple[list[Scanned], str]:
    """Return the chunks before the first fault, and what is said of it."""
    found: list[Scanned] = []
    try:
        found.extend(chunks)
    except CorruptionError as err:
        return found, repr(err)
    return found, ""


def segment(*chunks: bytes) -> bytes:
    return SEGMENT_HEADER + b"".join(chunks)


def chunk(chunk_id: int, *entries: bytes | SubBatch, epoch: int = 3, **parts: bytes) -> bytes:
    return make_chunk(
        entries, chunk_id=ChunkId(chunk_id), timestamp=TimestampMs(1_700_000_000_000), epoch=Epoch(epoch), **parts
    )[1]


def tracking(chunk_id: int, message: bytes, kind: ChunkType) -> bytes:
    return make_chunk([message], chunk_id=ChunkId(chunk_id), timestamp=TimestampMs(-5), epoch=Epoch(3), kind=kind)[1]


def changed(data: bytes, **fields: object) -> bytes:
    header = ChunkHeader.from_bytes(data, source="", position=0)
    return replace(header, **fields).to_bytes() + data[48:]


def small_segment() -> tuple[bytes, list[bytes]]:
    """Every kind of chunk and entry, a bloom filter and a trailer; the last chunk cannot be mistaken for tracking."""
    chunks = [
        tracking(100, b"\x01\x01r" + bytes(8), ChunkType.TRACKING_SNAPSHOT),
        chunk(101, b"one", b"", trailer=b"\0\x01p" + bytes(8)),
        chunk(103, make_sub_batch([b"two", "drü".encode()], Compression.LZ4), b"x" * 60, bloom=b"B" * 16),
        tracking(106, b"\x01\x01r" + bytes(8), ChunkType.TRACKING_DELTA),
        chunk(107, b"four", b"five"),
    ]
    return segment(*chunks), chunks


def test_chunks_come_out_whole_with_positions_and_the_crc_of_all_their_bytes():
    data, chunks = small_segment()
    found = list(scan(data))
    assert [each.data for each in found] == chunks
    assert [each.position for each in found] == [8 + sum(map(len, chunks[:n])) for n in range(len(chunks))]
    assert [each.crc32 for each in found] == [crc32(each) for each in chunks]
    assert [each.header.chunk_id for each in found] == [100, 101, 103, 106, 107]


@pytest.mark.parametrize("block_bytes", [*range(1, 130), 500])
def test_the_result_does_not_depend_on_the_size_of_blocks(block_bytes):
    data, _ = small_segment()
    assert list(scan(data, block_bytes)) == list(scan(data))


@pytest.mark.parametrize("block_bytes", [1, 47, 48, 49, 100, 101, 113, 150, 500])
def test_chunks_in_one_piece_are_those_in_many(block_bytes):
    data, _ = small_segment()
    assert list(scan_whole(data, block_bytes)) == list(scan(data))


def test_only_a_chunk_that_two_blocks_share_is_not_in_one_piece():
    data, chunks = small_segment()
    border = 8 + len(chunks[0]) + 60
    scanner = SegmentScanner(SOURCE)
    kinds = [type(event) for block in (data[:border], data[border:]) for event in scanner.feed_whole(block)]
    shared = [ChunkBegin, ChunkBytes, ChunkBytes, ChunkEnd]
    assert kinds == [WholeChunk, *shared, *[WholeChunk] * (len(chunks) - 2)]


def test_the_bytes_of_a_chunk_in_one_block_are_one_event():
    data, chunks = small_segment()
    kinds = [type(event) for event in SegmentScanner(SOURCE).feed(data)]
    assert kinds == [ChunkBegin, ChunkBytes, ChunkEnd] * len(chunks)


def test_chunks_and_errors_are_the_same_with_the_native_module_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    native = native_module()
    for seed in range(600):
        random = Random(seed)
        data = SEGMENT_HEADER
        following = FIRST
        for _ in range(random.randrange(1, 5)):
            one = random_chunk_bytes(random, chunk_id=following)
            following = Offset(ChunkHeader.from_bytes(one, source="made", position=0).next_offset)
            data += one
        if random.random() < 0.5:
            data = damaged(random, data)
        block_bytes = random.choice((100, 1000, 1 << 20))
        monkeypatch.setattr(scanner_module, "NATIVE", None)
        expected = outcome_of(scan_whole(data, block_bytes))
        monkeypatch.setattr(scanner_module, "NATIVE", native)
        assert outcome_of(scan_whole(data, block_bytes)) == expected, f"seed {seed}"


def test_a_sub_batch_in_a_tracking_chunk_is_refused_by_the_native_module_as_well():
    native_module()
    batch = chunk(100, make_sub_batch([b"one"], Compression.NONE))
    wrong = segment(changed(batch, type=ChunkType.TRACKING_DELTA))
    assert "BadCountError" in outcome_of(scan_whole(wrong))[1]
    assert outcome_of(scan_whole(wrong)) == outcome_of(scan(wrong))


def test_no_crc_of_data_is_compared_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    native_module()
    monkeypatch.setattr(scanner_module, "count_simple_entries", lambda *_: pytest.fail("the native module did that"))
    data = segment(chunk(100, b"one", b"two"), chunk(102, make_sub_batch([b"two"], Compression.GZIP), b"three"))
    assert len(list(scan_whole(data))) == 2


@pytest.mark.parametrize("has_native", [False, True])
@pytest.mark.parametrize("block_bytes", [64, 200, 1000])
def test_the_same_is_wrong_with_a_chunk_in_one_piece_and_in_many(block_bytes, has_native, monkeypatch):
    monkeypatch.setattr(scanner_module, "NATIVE", native_module() if has_native else None)
    data, _ = small_segment()
    for at in range(len(data)):
        wrong = bytearray(data)
        wrong[at] ^= 1 << at % 8
        found = outcome_of(scan_whole(bytes(wrong), block_bytes))
        assert found == outcome_of(scan(wrong, block_bytes)), at


def test_wrong_counts_and_wrong_entries_are_told_apart_from_a_wrong_crc_in_one_piece_too():
    wrong = chunk(100, b"one", b"two")
    for fields in ({"entries": 1}, {"entries": 3}, {"records": 3}, {"entries": 3, "records": 3}):
        data = segment(changed(wrong, **fields))
        found = outcome_of(scan_whole(data))
        assert "BadCountError" in found[1]
        assert found == outcome_of(scan(data))


def test_blocks_of_any_bytes_like_kind_and_empty_ones_will_do():
    data, chunks = small_segment()
    scanner = SegmentScanner(SOURCE)
    blocks = [bytearray(data[:70]), b"", memoryview(data)[70:]]
    events = [event for block in blocks for event in scanner.feed(block)]
    scanner.close()
    assert sum(isinstance(event, ChunkEnd) for event in events) == len(chunks)


def test_bytes_are_views_of_the_block_fed():
    data, _ = small_segment()
    views = [event.view for event in SegmentScanner(SOURCE).feed(data) if isinstance(event, ChunkBytes)]
    assert all(view.obj is data for view in views)


def test_a_segment_without_chunks_is_a_segment():
    assert list(scan(SEGMENT_HEADER)) == []


def test_every_truncation_ends_at_a_chunk_border_or_is_noticed():
    data, chunks = small_segment()
    borders = {8 + sum(map(len, chunks[:n])) for n in range(len(chunks) + 1)}
    for size in range(len(data)):
        if size in borders:
            assert sum(len(each.data) for each in scan(data[:size])) == size - 8
            continue
        with pytest.raises(TruncatedError) as caught:
            list(scan(data[:size]))
        assert caught.value.position == max((border for border in borders if border <= size), default=0)


def unchecked_bits(data: bytes) -> set[int]:
    """The bits whose change nothing in the format can tell, of a segment of one epoch."""
    bits: set[int] = set()
    found = list(scan(data))
    for number, each in enumerate(found):
        at, header = each.position * 8, each.header
        bits |= {at + bit for bit in range(8 * 8, 16 * 8)}  # timestamp
        for bit in range(64):
            falls = bool(header.epoch >> (63 - bit) & 1)
            # Nothing comes before the first chunk that a lower epoch would contradict, nor after the last.
            if number == (0 if falls else len(found) - 1):
                bits.add(at + 16 * 8 + bit)
        if (header.entries, header.records) == (1, 1):
            bits |= {at + 8 + bit for bit in range(8) if int(header.type) ^ 1 << 7 - bit in set(map(int, ChunkType))}
        bloom_end = 48 + header.bloom_bytes
        bits |= {at + bit for bit in range(48 * 8, bloom_end * 8)}
        if header.trailer_bytes:  # one record of type 0: types 1 and 2 look alike, its length does not
            trailer = at + (header.total_bytes - header.trailer_bytes) * 8
            bits |= {trailer + 6, trailer + 7, *range(trailer + 16, trailer + header.trailer_bytes * 8)}
    return bits


def test_every_flipped_bit_is_noticed_but_those_that_nothing_covers():
    data, _ = small_segment()
    unnoticed: set[int] = set()
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << 7 - bit % 8
        try:
            list(scan(bytes(flipped)))
        except CorruptionError as err:
            assert err.source == SOURCE  # noqa: PT017  most flips raise, some must not
        else:
            unnoticed.add(bit)
    assert unnoticed == unchecked_bits(data)


@pytest.mark.parametrize(
    ("data", "error", "position"),
    [
        (b"OSII\0\0\0\1", BadMagicError, 0),
        (b"OSIL\0\0\0\2", BadVersionError, 0),
        (segment(chunk(100, b"a")[:-1] + b"b"), BadCrcError, 8),
        (segment(chunk(100, b"a"), chunk(102, b"b")), BadSequenceError, 8 + 53),
        (segment(chunk(100, b"a"), chunk(100, b"b")), BadSequenceError, 8 + 53),
        (segment(chunk(101, b"a")), BadSequenceError, 8),
        (segment(chunk(100, b"a", epoch=3), chunk(101, b"b", epoch=2)), BadSequenceError, 8 + 53),
        (segment(changed(chunk(100, b"a", b"b"), entries=1)), BadCountError, 8),
        (segment(changed(chunk(100, b"a", b"b"), records=3)), BadCountError, 8),
        (segment(changed(chunk(100, b"\x80"), crc=crc32(b"\0\0\0\2\x80"))), BadCrcError, 8),
        (segment(chunk(100, b"a", trailer=b"\3\0" + bytes(8))), BadVersionError, 8 + 53),
        (segment(chunk(100, b"a", trailer=bytes(9))), BadLengthError, 8 + 53),
        (segment(chunk(100, b"a", trailer=b"\0")), BadLengthError, 8 + 53),
        (
            segment(chunk(100, b"a", trailer=b"\0\0" + bytes(8)), chunk(101, b"b", trailer=bytes(9))),
            BadLengthError,
            8 + 53 + 10 + 53,
        ),
        (segment(changed(chunk(100, make_sub_batch([b"a"])), type=ChunkType.TRACKING_DELTA)), BadCountError, 8),
    ],
)
def test_what_is_wrong_is_told_by_its_kind_and_position(data, error, position):
    for block_bytes in (1, 7, 1 << 20):
        with pytest.raises(error) as caught:
            list(scan(data, block_bytes))
        assert type(caught.value) is error
        assert (caught.value.source, caught.value.position) == (SOURCE, position)


def test_an_entry_past_the_end_of_the_data_is_told_when_the_crc_is_right():
    data = b"\0\0\0\2\x80"
    header, _ = make_chunk([b"a"], chunk_id=ChunkId(100), timestamp=TimestampMs(0), epoch=Epoch(0))
    with pytest.raises(BadLengthError):
        list(scan(segment(replace(header, crc=crc32(data)).to_bytes() + data)))


def test_a_crc_that_differs_is_told_before_entries_that_make_no_sense():
    data, _ = small_segment()
    damaged = bytearray(data)
    damaged[8 + 48] ^= 0xFF
    with pytest.raises(BadCrcError):
        list(scan(bytes(damaged)))


def test_without_a_first_offset_any_first_chunk_will_do():
    assert [each.header.chunk_id for each in scan(segment(chunk(7, b"a")), first_offset=None)] == [7]


def test_chunks_before_the_damage_come_out():
    data, chunks = small_segment()
    scanned = scan(data[:-1] + b"!")
    assert [next(scanned).data for _ in chunks[:-1]] == chunks[:-1]
    with pytest.raises(BadCrcError):
        next(scanned)


@pytest.mark.parametrize(("position", "fits"), [(MAX_POSITION, True), (MAX_POSITION + 1, False)])
def test_a_chunk_must_begin_where_an_index_record_can_say(position, fits):
    scanner = SegmentScanner(SOURCE)
    list(scanner.feed(SEGMENT_HEADER))
    scanner._position = position  # 4 GiB of chunks would take a while
    if fits:
        assert list(scanner.feed(chunk(0, b"a")))[-1].position == position
        return
    with pytest.raises(BadLengthError) as caught:
        list(scanner.feed(chunk(0, b"a")))
    assert caught.value.position == position


BLOCK_BYTES = 1 << 16


def feeding_one_chunk(messages: int) -> Callable[[], None]:
    entries = [bytes(BLOCK_BYTES)] * messages
    header, data = make_chunk(
        entries, chunk_id=ChunkId(0), timestamp=TimestampMs(0), epoch=Epoch(0), trailer=bytes(1_000_000)
    )
    whole = memoryview(segment(data))

    def feed() -> None:
        scanner = SegmentScanner(SOURCE)
        for start in range(0, len(whole), BLOCK_BYTES):
            for event in scanner.feed(whole[start : start + BLOCK_BYTES]):
                if isinstance(event, ChunkEnd):
                    assert event.header == header
        scanner.close()

    return feed


def test_memory_does_not_grow_with_the_size_of_a_chunk():
    assert peak_bytes(feeding_one_chunk, 256) < BLOCK_BYTES
