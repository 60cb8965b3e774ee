"""Chunks into record batches: runs of plain messages at once, all others message by message."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from coldstream.format.chunk import Chunk, ChunkType
from coldstream.format.message import Message, messages
from coldstream.rows.cells import DECODED, cells
from coldstream.rows.plain import find_values, take_values
from coldstream.rows.schema import TIME, microseconds, schema_of
from coldstream.units import Offset

BATCH_ROWS = 1 << 16
_NO_TIME = -(1 << 63)
"""In the place of a time that is null."""


@dataclass(slots=True)
class _Run:
    """Consecutive rows of one kind. Offsets are kept as first ones and counts, times once a chunk."""

    firsts: list[tuple[int, int]] = field(default_factory=list)
    times: array[int] = field(default_factory=lambda: array("q"))
    bounds: array[int] = field(default_factory=lambda: array("i"))
    messages: list[Message] = field(default_factory=list)
    lacks_times: bool = False

    def add(self, first: int, count: int, timestamp: int) -> None:
        time = microseconds(timestamp)
        if time is None:
            time, self.lacks_times = _NO_TIME, True
        self.times.extend(array("q", (time,)) * count)
        if self.firsts and sum(self.firsts[-1]) == first:
            before, rows = self.firsts[-1]
            self.firsts[-1] = before, rows + count
        else:
            self.firsts.append((first, count))


def batches(
    chunks: Iterable[Chunk], stream: str, columns: Sequence[str], *, start: Offset, end: Offset, source: str
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of verified chunks, from `start` up to, not including, `end`, as batches of these columns.

    Chunks are of rising offsets; rows are in their order, at most BATCH_ROWS a batch. `source` is named in errors.
    Cost: about 0.3 us for a message that is data only, 20 us for one with properties. Raises CorruptionError where
    entries or sub-batches are not what the headers say.
    """
    schema = schema_of(columns)
    is_opened = not DECODED.keys().isdisjoint(columns)
    run, memory, memory_starts = _Run(), b"", 0
    for chunk in chunks:
        header = chunk.header
        if header.type is not ChunkType.USER:
            continue
        if chunk.data.obj is not memory:
            yield from _finish(run, memory, stream, schema)
            run, memory = _Run(), cast("bytes", chunk.data.obj)
            memory_starts = pa.py_buffer(memory).address
        first, stop = max(header.chunk_id, start), min(header.next_offset, end)
        if not is_opened:  # all that is wanted stands in the header
            run.add(first, stop - first, header.timestamp)
            continue
        bounds = find_values(chunk, memory, pa.py_buffer(chunk.data).address - memory_starts)
        if (bounds is None and run.bounds) or (bounds is not None and run.messages):
            yield from _finish(run, memory, stream, schema)
            run = _Run()
        if bounds is not None:
            if stop - first < header.records:
                bounds = bounds[2 * (first - header.chunk_id) : 2 * (stop - header.chunk_id)]
            run.bounds.extend(bounds)
        else:
            found = messages(chunk, source=source, from_offset=start)
            run.messages.extend(message for message in found if message.offset < end)
        run.add(first, stop - first, header.timestamp)
    yield from _finish(run, memory, stream, schema)


def _finish(run: _Run, memory: bytes, stream: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield a run as batches."""
    rows = len(run.times)
    if not rows:
        return
    made: dict[str, pa.Array] = {}
    if run.messages:
        decoded = [name for name in schema.names if name in DECODED]
        contents = [cells(message, decoded) for message in run.messages]
        for number, name in enumerate(decoded):
            made[name] = pa.array([content[number] for content in contents], schema.field(name).type)
    elif "value" in schema.names:
        made["value"] = take_values(run.bounds, memory)
    if "stream" in schema.names:
        made["stream"] = pa.repeat(pa.scalar(stream, pa.string()), rows)
    if "offset" in schema.names:
        made["offset"] = _offsets(run.firsts)
    if "chunk_timestamp" in schema.names:
        made["chunk_timestamp"] = _times(run)
    arrays = [made[column.name] if column.name in made else pa.nulls(rows, column.type) for column in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    for at in range(0, rows, BATCH_ROWS):
        yield batch.slice(at, BATCH_ROWS)


def _times(run: _Run) -> pa.Array:
    times = pa.Array.from_buffers(pa.int64(), len(run.times), [None, pa.py_buffer(run.times)])
    if run.lacks_times:
        times = pc.if_else(pc.equal(times, _NO_TIME), None, times)
    return times.view(TIME)


def _offsets(firsts: Sequence[tuple[int, int]]) -> pa.Array:
    one = pa.scalar(1, pa.int64())
    return pa.concat_arrays(
        [pc.cumulative_sum(pa.repeat(one, count), start=pa.scalar(first - 1, pa.int64())) for first, count in firsts]
    )
