"""Segments and indexes as brokers write them, and the chunks in them."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from zlib import crc32

from coldstream.errors import CorruptionError
from coldstream.format.amqp.message import messages
from coldstream.format.chunk import CHUNK_HEADER_BYTES, Chunk, ChunkHeader, iter_chunks
from coldstream.format.entry import SubBatch, iter_entries
from coldstream.format.entry_run import iter_entry_runs
from coldstream.format.index import INDEX_HEADER, INDEX_HEADER_BYTES, IndexRecord, iter_index
from coldstream.format.scanner import ChunkBytes, ChunkEnd, SegmentScanner
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.format.tracking import iter_tracking
from tests.fuzz.fuzz_target import CORRUPT, SOURCE, FuzzTarget, choose, chosen, same
from tests.fuzz.golden_bytes import golden_chunks, golden_segment_start
from tests.support.golden import golden_logs

_CRC_AT = 32


def with_crcs(data: bytes, start: int) -> bytes:
    """Return chunks from byte `start` on, with the right CRC in each: no fuzzer finds one."""
    out = bytearray(data)
    at = start
    while at + CHUNK_HEADER_BYTES <= len(out):
        try:
            header = ChunkHeader.from_bytes(memoryview(out)[at : at + CHUNK_HEADER_BYTES], source=SOURCE, position=at)
        except CorruptionError:
            break
        begin = at + CHUNK_HEADER_BYTES + header.bloom_bytes
        out[at + _CRC_AT : at + _CRC_AT + 4] = crc32(out[begin : begin + header.data_bytes]).to_bytes(4)
        at += header.total_bytes
    return bytes(out)


def _scanned(data: bytes, step: int) -> tuple[list[ChunkEnd], bytes, CorruptionError | None]:
    """Return what a scanner says of a segment that is fed in blocks, the chunks' bytes, and its error."""
    scanner = SegmentScanner(SOURCE)
    ends: list[ChunkEnd] = []
    content = bytearray()
    try:
        for at in range(0, len(data), step):
            for event in scanner.feed(data[at : at + step]):
                if isinstance(event, ChunkBytes):
                    content += event.view
                elif isinstance(event, ChunkEnd):
                    ends.append(event)
        scanner.close()
    except CorruptionError as err:
        return ends, bytes(content), err
    return ends, bytes(content), None


def _segment(data: bytes) -> None:
    is_mended, data = choose(data, (True, False))
    if is_mended:
        data = with_crcs(data, SEGMENT_HEADER_BYTES)
    whole = ends, content, problem = _scanned(data, len(data) or 1)
    # How the network cut a segment makes no difference to what is found in it.
    for step in (7, 61):
        same(_told(_scanned(data, step)), _told(whole))
    for end in ends:
        same(end.crc32, crc32(data[end.position : end.position + end.header.total_bytes]))
    if problem is None:
        same(content, data[SEGMENT_HEADER_BYTES:])
    chunks = iter_chunks(memoryview(data)[SEGMENT_HEADER_BYTES:], source=SOURCE, position=SEGMENT_HEADER_BYTES)
    same([chunk.header for _, chunk in zip(ends, chunks, strict=False)], [end.header for end in ends])
    if problem is not None:
        raise problem


def _told(scanned: tuple[list[ChunkEnd], bytes, CorruptionError | None]) -> tuple[list[ChunkEnd], str]:
    # Without the bytes: those of a chunk that is damaged come out as far as they were fed.
    return scanned[0], str(scanned[2])


def _index(data: bytes) -> None:
    records = list(iter_index(BytesIO(data), source=SOURCE))
    encoded = b"".join(record.to_bytes() for record in records)
    same(encoded, data[INDEX_HEADER_BYTES : INDEX_HEADER_BYTES + len(encoded)])


def _chunk(data: bytes) -> None:
    for chunk in iter_chunks(with_crcs(data, 0), source=SOURCE):
        same(ChunkHeader.from_bytes(chunk.header.to_bytes(), source=SOURCE, position=0), chunk.header)
        _entries(chunk)


def _entries(chunk: Chunk) -> None:
    """Read a chunk in each way that there is: all find the same, or all refuse it."""
    try:
        entries: list[memoryview | SubBatch] | None = list(iter_entries(chunk, source=SOURCE))
    except CorruptionError:
        entries = None
    try:
        runs = list(iter_entry_runs(chunk, max_bytes=100, max_records=10, source=SOURCE))
    except CorruptionError:
        same(entries, None)
    else:
        same(entries is not None or _has_reserved_bits(chunk), True)
        same([run.start for run in runs][1:], [run.end for run in runs][:-1])
    refused = None
    try:
        for record in iter_tracking(chunk, source=SOURCE):
            same(len(record.to_bytes()) >= len(record.id), True)
    except CorruptionError as err:
        refused = err
    offsets = [message.offset for message in messages(chunk, source=SOURCE)]
    same(offsets, list(range(chunk.header.chunk_id, chunk.header.chunk_id + len(offsets))))
    if refused is not None:
        raise refused


def _has_reserved_bits(chunk: Chunk) -> bool:
    # Runs forward sub-batches as they stand; only who reads them minds the reserved bits.
    return any(byte & 0x80 and byte & 0x0F for byte in chunk.data)


def _segment_seeds() -> Iterator[bytes]:
    yield chosen(0, golden_segment_start())
    yield chosen(1, golden_segment_start())
    header = golden_segment_start()[:SEGMENT_HEADER_BYTES]
    for chunk in golden_chunks():
        yield chosen(0, header + chunk)


def _index_seeds() -> Iterator[bytes]:
    for log in golden_logs():
        yield log.segments[0].with_suffix(".index").read_bytes()[:100]
    yield INDEX_HEADER + bytes(40)
    yield from (INDEX_HEADER + IndexRecord.of(_header(chunk), 8).to_bytes() for chunk in golden_chunks())


def _header(chunk: bytes) -> ChunkHeader:
    return ChunkHeader.from_bytes(chunk, source=SOURCE, position=0)


TARGETS = (
    FuzzTarget("segment", _segment, _segment_seeds, CORRUPT, runs=2000),
    FuzzTarget("index", _index, _index_seeds, CORRUPT, runs=30_000),
    FuzzTarget("chunk", _chunk, golden_chunks, CORRUPT, memory_bytes=2 << 20),
)
