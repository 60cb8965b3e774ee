"""Record batches out of chunks, in Python: plain messages a chunk at a time, all others one by one."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldstream.format.amqp.message import messages
from coldstream.format.amqp.types import Value
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.rows.cells import DECODED, cells, content_bytes
from coldstream.rows.limits import RowLimits
from coldstream.rows.plain import Bounds, ByteSpan, find_values, take_values
from coldstream.rows.schema import TIME, microseconds, schema_of
from coldstream.units import Offset

_NO_TIME = -(1 << 63)
"""Stands for a time that is null."""


def batches_in_python(
    chunks: Iterable[Chunk],
    stream: str,
    columns: Sequence[str],
    *,
    start: Offset,
    end: Offset,
    source: str,
    limits: RowLimits,
) -> Iterator[pa.RecordBatch]:
    """Do what `batches` does (batches.py)."""
    schema = schema_of(columns)
    decoded = [name for name in columns if name in DECODED]
    user_chunks = (chunk for chunk in chunks if chunk.header.type is ChunkType.USER)
    # Chunks of one range share its memory. Plain values are found in all of it at once, and a batch takes them from
    # there, so no batch spans two ranges.
    for _, group in groupby(user_chunks, lambda chunk: id(chunk.data.obj)):
        # The list keeps its memory alive while the next chunk is made, so no two groups in a row have the same `id`.
        shared = list(group)
        memory = cast("bytes", shared[0].data.obj)
        plain = _plain(shared, memory) if decoded else [None] * len(shared)
        builder = _BatchBuilder(stream, schema, decoded, limits)
        for chunk, bounds in zip(shared, plain, strict=True):
            header = chunk.header
            first, stop = max(header.chunk_id, start), min(header.next_offset, end)
            if bounds is not None:
                runs = _plain_runs(bounds[first - header.chunk_id : stop - header.chunk_id], first, limits)
            elif decoded:
                runs = _decoded_runs(chunk, decoded, start, end, source)
            else:  # the header alone has every column
                runs = (_RowRun(at, min(limits.rows, stop - at)) for at in range(first, stop, limits.rows))
            for run in runs:
                if not builder.has_room(run):
                    yield builder.batch(memory)
                    builder = _BatchBuilder(stream, schema, decoded, limits)
                builder.add(run, header.timestamp)
        if builder.rows:
            yield builder.batch(memory)


@dataclass(frozen=True, slots=True)
class _RowRun:
    """Consecutive rows of one chunk: plain ones with their `bounds`, a decoded one with its `cells`, or neither."""

    first: int
    rows: int
    bounds: Bounds | None = None
    cells: list[Value] | None = None
    size_bytes: int = 0


def _plain_runs(bounds: Bounds, first: int, limits: RowLimits) -> Iterator[_RowRun]:
    """Cut the values of a chunk into runs that fit into a batch."""
    if not len(bounds):
        return
    size_bytes = int(bounds[-1, 1] - bounds[0, 0])  # and the few bytes between them
    if size_bytes <= limits.size_bytes and len(bounds) <= limits.rows:
        yield _RowRun(first, len(bounds), bounds, size_bytes=size_bytes)
        return
    ends = np.cumsum(bounds[:, 1] - bounds[:, 0], dtype=np.int64)
    at, bytes_before = 0, 0
    while at < len(bounds):
        stop = int(np.searchsorted(ends, bytes_before + limits.size_bytes, "right"))
        stop = max(at + 1, min(stop, at + limits.rows))  # a value larger than a batch goes alone
        yield _RowRun(first + at, stop - at, bounds[at:stop], size_bytes=int(ends[stop - 1]) - bytes_before)
        at, bytes_before = stop, int(ends[stop - 1])


def _decoded_runs(chunk: Chunk, columns: list[str], start: Offset, end: Offset, source: str) -> Iterator[_RowRun]:
    wanted = max(0, end - max(start, chunk.header.chunk_id))
    # Not one message more: whatever is wrong after `end` is nobody's business here.
    for message in islice(messages(chunk, source=source, from_offset=start), wanted):
        row = cells(message, columns)
        yield _RowRun(message.offset, 1, cells=row, size_bytes=content_bytes(row, message))


class _BatchBuilder:
    """Rows of one kind, plain or decoded, until they are a batch. Offsets are kept as runs: the first, and how many."""

    def __init__(self, stream: str, schema: pa.Schema, decoded: list[str], limits: RowLimits) -> None:
        self._stream = stream
        self._schema = schema
        self._decoded = decoded
        self._limits = limits
        self._offset_runs: list[tuple[int, int]] = []
        self._times = array("q")
        self._bounds: list[Bounds] = []
        self._cells: list[list[Value]] = []
        self._lacks_times = False
        self._size_bytes = 0

    @property
    def rows(self) -> int:
        """How many there are so far."""
        return len(self._times)

    def has_room(self, run: _RowRun) -> bool:
        """Tell whether a run fits into this batch, by its kind and its size."""
        if not self.rows:
            return True
        if (run.cells is None) != (not self._cells) or self._size_bytes + run.size_bytes > self._limits.size_bytes:
            return False
        return self.rows + run.rows <= (self._limits.decoded_rows if self._cells else self._limits.rows)

    def add(self, run: _RowRun, timestamp: int) -> None:
        """Add a run out of a chunk of that time."""
        time = microseconds(timestamp)
        if time is None:
            time, self._lacks_times = _NO_TIME, True
        self._times.extend(array("q", (time,)) * run.rows)
        if self._offset_runs and sum(self._offset_runs[-1]) == run.first:
            first, rows = self._offset_runs[-1]
            self._offset_runs[-1] = first, rows + run.rows
        else:
            self._offset_runs.append((run.first, run.rows))
        if run.bounds is not None:
            self._bounds.append(run.bounds)
        if run.cells is not None:
            self._cells.append(run.cells)
        self._size_bytes += run.size_bytes

    def batch(self, memory: bytes) -> pa.RecordBatch:
        """Return the rows as a batch. The values of plain ones are copied out of `memory`."""
        names, rows = self._schema.names, self.rows
        columns: dict[str, pa.Array] = {}
        if self._cells:
            for name, values in zip(self._decoded, zip(*self._cells, strict=True), strict=True):
                columns[name] = pa.array(values, self._schema.field(name).type)
        elif self._bounds and "value" in names:
            columns["value"] = take_values(self._bounds, memory)
        if "stream" in names:
            columns["stream"] = pa.repeat(pa.scalar(self._stream, pa.string()), rows)
        if "offset" in names:
            columns["offset"] = _offsets(self._offset_runs)
        if "chunk_timestamp" in names:
            columns["chunk_timestamp"] = self._chunk_times()
        arrays = [
            columns[field.name] if field.name in columns else pa.nulls(rows, field.type) for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _chunk_times(self) -> pa.Array:
        times = pa.Array.from_buffers(pa.int64(), self.rows, [None, pa.py_buffer(self._times)])
        if self._lacks_times:
            times = pc.if_else(pc.equal(times, _NO_TIME), None, times)
        return times.view(TIME)


def _plain(chunks: Sequence[Chunk], memory: bytes) -> list[Bounds | None]:
    """Return where the values of each chunk are in the memory they share; None for one that is not plain."""
    memory_starts = pa.py_buffer(memory).address
    # With as many entries as records, no entry is a sub-batch of several messages.
    simple = [chunk for chunk in chunks if chunk.header.entries == chunk.header.records]
    spans: list[ByteSpan] = []
    for chunk in simple:
        at = pa.py_buffer(chunk.data).address - memory_starts
        spans.append(ByteSpan(at, at + chunk.header.data_bytes, chunk.header.entries))
    bounds = dict(zip(map(id, simple), find_values(memory, spans), strict=True))
    return [bounds.get(id(chunk)) for chunk in chunks]


def _offsets(runs: Sequence[tuple[int, int]]) -> pa.Array:
    # Arrow counts, from one before the first offset of each run: no Python integer for each row.
    one = pa.scalar(1, pa.int64())
    return pa.concat_arrays(
        [pc.cumulative_sum(pa.repeat(one, count), start=pa.scalar(first - 1, pa.int64())) for first, count in runs]
    )
