"""Entry runs: the data of a chunk in few large pieces, none of them decoded.

A run is either consecutive simple entries, whose bytes are also the data of an uncompressed sub-batch that holds them,
or one sub-batch as it stands. To forward runs costs one step per message where to decode costs several. Where the
native module is installed, it takes the steps (native/src/runs.rs); what it declines is cut here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from coldstream.format.chunk import Chunk
from coldstream.format.compression import Compression
from coldstream.format.entry import (
    RESERVED_BITS,
    SIMPLE_HEADER,
    SIMPLE_HEADER_BYTES,
    SUB_BATCH_HEADER,
    SUB_BATCH_HEADER_BYTES,
    SUB_BATCH_KIND,
    iter_entries,
    simple_entry,
)
from coldstream.format.native import NATIVE


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Records `first_offset` up to `next_offset` of a chunk, in bytes `start` up to `end` of its data."""

    first_offset: int
    next_offset: int
    start: int
    end: int
    is_sub_batch: bool


def iter_entry_runs(chunk: Chunk, *, max_bytes: int, max_records: int, source: str) -> Iterator[EntryRun]:
    """Cut the data of a chunk into runs.

    A run of simple entries has at most `max_records`, and at most `max_bytes` unless one entry alone has more. Where
    runs end depends on the chunk alone. Cost: about 0.15 us an entry, a tenth of it with the native module. Raises the
    errors of `iter_entries`, after yielding what there is.
    """
    header = chunk.header
    found = None
    if NATIVE is not None:
        found = NATIVE.entry_runs(chunk.data, header.entries, header.records, max_bytes, max_records)
    if found is None:
        return runs_in_python(chunk, max_bytes=max_bytes, max_records=max_records, source=source)
    return _numbered(header.chunk_id, found)


def _numbered(first_offset: int, found: list[tuple[int, int, int, bool]]) -> Iterator[EntryRun]:
    for records, start, end, is_sub_batch in found:
        yield EntryRun(first_offset, first_offset + records, start, end, is_sub_batch)
        first_offset += records


def runs_in_python(chunk: Chunk, *, max_bytes: int, max_records: int, source: str) -> Iterator[EntryRun]:
    """Do what `iter_entry_runs` does."""
    data = bytes(chunk.data)  # a read of bytes is quicker than one of a view
    end = len(data)
    first_offset: int = chunk.header.chunk_id
    at = entries = 0
    while at < end:
        stop, records = _simple_run(data, at, max_bytes, max_records)
        is_sub_batch = not records
        if is_sub_batch:
            if at + SUB_BATCH_HEADER_BYTES > end:
                break
            kind, records, _, length = SUB_BATCH_HEADER.unpack_from(data, at)
            stop = at + SUB_BATCH_HEADER_BYTES + length
            if not kind & SUB_BATCH_KIND or kind & RESERVED_BITS or stop > end:
                break
        yield EntryRun(first_offset, first_offset + records, at, stop, is_sub_batch)
        first_offset += records
        entries += 1 if is_sub_batch else records
        at = stop
    if (at, entries, first_offset) != (end, chunk.header.entries, chunk.header.next_offset):
        deque(iter_entries(chunk, source=source), maxlen=0)  # raises what is wrong


def uncompressed_header(size_bytes: int, records: int) -> bytes:
    """Return what makes a run of simple entries, which follows it, one sub-batch. At most 65,535 records."""
    return SUB_BATCH_HEADER.pack(SUB_BATCH_KIND + (Compression.NONE << 4), records, size_bytes, size_bytes)


def message_runs(messages: list[bytes], *, max_bytes: int, max_records: int) -> Iterator[tuple[memoryview, int]]:
    """Encode messages as runs of simple entries, and yield each with the number of its messages.

    Runs end as those of `iter_entry_runs`. Raises OverflowError as `simple_entry`.
    """
    joined: bytes | None = None if NATIVE is None else NATIVE.join_messages(messages)
    if joined is None:
        joined = b"".join(map(simple_entry, messages))
    data = memoryview(joined)
    found = None
    if NATIVE is not None:
        found = NATIVE.entry_runs(data, len(messages), len(messages), max_bytes, max_records)
    for records, start, end, _ in _cut(joined, max_bytes, max_records) if found is None else found:
        yield data[start:end], records


def _cut(data: bytes, max_bytes: int, max_records: int) -> Iterator[tuple[int, int, int, bool]]:
    at = 0
    while at < len(data):
        stop, records = _simple_run(data, at, max_bytes, max_records)
        yield records, at, stop, False
        at = stop


def _simple_run(data: bytes, at: int, max_bytes: int, max_records: int) -> tuple[int, int]:
    """Return where the run of simple entries that begins at a byte ends, and how many entries it has."""
    # A loop over every message: one read per message tells where it ends.
    end, length_of = len(data), SIMPLE_HEADER.unpack_from
    limit, last = min(at + max_bytes, end), end - SIMPLE_HEADER_BYTES
    for records in range(max_records):
        if at > last or (length := length_of(data, at)[0]) < 0:
            return at, records
        stop = at + SIMPLE_HEADER_BYTES + length
        if stop > limit:
            # An entry larger than a run goes alone.
            return (stop, 1) if not records and stop <= end else (at, records)
        at = stop
    return at, max_records
