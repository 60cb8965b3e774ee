"""Seeds from the recorded logs of a real broker: whole chunks, as small as they come."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from coldstream.format.chunk import Chunk, iter_chunks
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from tests.support.golden import golden_logs

MAX_CHUNK_BYTES = 2000


@cache
def golden_chunks() -> tuple[bytes, ...]:
    """Return the smallest chunks of each log: of each type, and of one entry, of several, and of sub-batches."""
    found: dict[tuple[object, ...], bytes] = {}
    for log in golden_logs():
        for path in log.segments:
            data = path.read_bytes()
            for chunk in iter_chunks(memoryview(data)[SEGMENT_HEADER_BYTES:], source=path.name):
                header, start = chunk.header, SEGMENT_HEADER_BYTES + chunk.position
                whole = data[start : start + header.total_bytes]
                first = chunk.data[0] >> 4
                kind = (log.stream, header.type, first, min(header.entries, 3), bool(header.trailer_bytes))
                if len(whole) <= MAX_CHUNK_BYTES and len(whole) < len(found.get(kind, bytes(MAX_CHUNK_BYTES + 1))):
                    found[kind] = whole
    return tuple(found.values())


def parsed_chunks() -> Iterator[Chunk]:
    """Yield the same, parsed."""
    for data in golden_chunks():
        yield from iter_chunks(data, source="golden")


@cache
def golden_segment_start() -> bytes:
    """Return the beginning of a segment: its header and three chunks that follow each other."""
    data = golden_logs()[0].segments[0].read_bytes()
    chunks = iter_chunks(memoryview(data)[SEGMENT_HEADER_BYTES:], source="golden")
    end = SEGMENT_HEADER_BYTES
    for chunk, _ in zip(chunks, range(2), strict=False):
        end += chunk.header.total_bytes
    return data[:end]
