"""Chunks into record batches of bounded size: plain messages by the chunk, all others one by one."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldstream.format.amqp.message import messages
from coldstream.format.amqp.types import Value
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.rows.cells import DECODED, cells, content_bytes
from coldstream.rows.plain import Bounds, ByteSpan, find_values, take_values
from coldstream.rows.schema import TIME, microseconds, schema_of
from coldstream.units import MIB, Offset

BATCH_ROWS = 1 << 16
DECODED_ROWS = 1 << 13
"""Of messages that are decoded: until they are a batch, each takes some KiB as Python's objects."""

BATCH_BYTES = 16 * MIB
"""Of values and texts, unless one message has more."""

_NO_TIME = -(1 << 63)
"""In the place of a time that is null."""


def batches(
    chunks: Iterable[Chunk], stream: str, columns: Sequence[str], *, start: Offset, end: Offset, source: str
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of verified chunks, from `start` up to, not including, `end`, as batches of these columns.

    Chunks are of rising offsets; rows are in their order, at most BATCH_ROWS and BATCH_BYTES a batch. However much
    there is in all, memory is that of the chunks, of a batch, and of one sub-batch unpacked. `source` is named in
    errors. Cost: about 0.3 us for a message that is data only, 20 us for one with properties. Raises CorruptionError
    where entries or sub-batches are not what the headers say, BadLengthError for a value that no column can hold.
    """
    schema = schema_of(columns)
    decoded = [name for name in columns if name in DECODED]
    wanted = (chunk for chunk in chunks if chunk.header.type is ChunkType.USER)
    for _, together in groupby(wanted, lambda chunk: id(chunk.data.obj)):
        shared = list(together)
        memory = cast("bytes", shared[0].data.obj)
        plain = _plain(shared, memory) if decoded else [None] * len(shared)
        run = _Run(stream, schema, decoded)
        for chunk, bounds in zip(shared, plain, strict=True):
            header = chunk.header
            first, stop = max(header.chunk_id, start), min(header.next_offset, end)
            if bounds is not None:
                pieces = _plain_pieces(bounds[first - header.chunk_id : stop - header.chunk_id], first)
            elif decoded:
                pieces = _decoded_pieces(chunk, decoded, start, end, source)
            else:  # all that is wanted stands in the header
                pieces = (_Piece(at, min(BATCH_ROWS, stop - at)) for at in range(first, stop, BATCH_ROWS))
            for piece in pieces:
                if not run.takes(piece):
                    yield run.batch(memory)
                    run = _Run(stream, schema, decoded)
                run.add(piece, header.timestamp)
        if run.rows:
            yield run.batch(memory)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Consecutive rows of one chunk: plain ones by their `bounds`, a decoded one by its `cells`."""

    first: int
    rows: int
    bounds: Bounds | None = None
    cells: list[Value] | None = None
    size_bytes: int = 0


def _plain_pieces(bounds: Bounds, first: int) -> Iterator[_Piece]:
    """Cut the values of a chunk where a batch would have too many of them, or too large ones."""
    ends = np.cumsum(bounds[:, 1] - bounds[:, 0], dtype=np.int64)
    at, taken = 0, 0
    while at < len(bounds):
        stop = int(np.searchsorted(ends, taken + BATCH_BYTES, "right"))
        stop = max(at + 1, min(stop, at + BATCH_ROWS))
        yield _Piece(first + at, stop - at, bounds[at:stop], size_bytes=int(ends[stop - 1]) - taken)
        at, taken = stop, int(ends[stop - 1])


def _decoded_pieces(chunk: Chunk, columns: list[str], start: Offset, end: Offset, source: str) -> Iterator[_Piece]:
    for message in messages(chunk, source=source, from_offset=start):
        if message.offset >= end:
            return
        found = cells(message, columns)
        yield _Piece(message.offset, 1, cells=found, size_bytes=content_bytes(found, message))


class _Run:
    """Consecutive rows of one kind, until they are a batch. Offsets are kept as first ones and counts."""

    def __init__(self, stream: str, schema: pa.Schema, decoded: list[str]) -> None:
        self._stream = stream
        self._schema = schema
        self._decoded = decoded
        self._firsts: list[tuple[int, int]] = []
        self._times = array("q")
        self._bounds: list[Bounds] = []
        self._cells: list[list[Value]] = []
        self._lacks_times = False
        self._size_bytes = 0

    @property
    def rows(self) -> int:
        """So far."""
        return len(self._times)

    def takes(self, piece: _Piece) -> bool:
        """Return whether a piece belongs to the same batch."""
        if not self.rows:
            return True
        if (piece.cells is None) != (not self._cells) or self._size_bytes + piece.size_bytes > BATCH_BYTES:
            return False
        return self.rows + piece.rows <= (DECODED_ROWS if self._cells else BATCH_ROWS)

    def add(self, piece: _Piece, timestamp: int) -> None:
        """Add a piece of a chunk of that time."""
        time = microseconds(timestamp)
        if time is None:
            time, self._lacks_times = _NO_TIME, True
        self._times.extend(array("q", (time,)) * piece.rows)
        if self._firsts and sum(self._firsts[-1]) == piece.first:
            first, rows = self._firsts[-1]
            self._firsts[-1] = first, rows + piece.rows
        else:
            self._firsts.append((piece.first, piece.rows))
        if piece.bounds is not None:
            self._bounds.append(piece.bounds)
        if piece.cells is not None:
            self._cells.append(piece.cells)
        self._size_bytes += piece.size_bytes

    def batch(self, memory: bytes) -> pa.RecordBatch:
        """Return the rows; values of plain ones are copied out of `memory`."""
        names, rows = self._schema.names, self.rows
        made: dict[str, pa.Array] = {}
        if self._cells:
            for name, column in zip(self._decoded, zip(*self._cells, strict=True), strict=True):
                made[name] = pa.array(column, self._schema.field(name).type)
        elif self._bounds and "value" in names:
            made["value"] = take_values(self._bounds, memory)
        if "stream" in names:
            made["stream"] = pa.repeat(pa.scalar(self._stream, pa.string()), rows)
        if "offset" in names:
            made["offset"] = _offsets(self._firsts)
        if "chunk_timestamp" in names:
            made["chunk_timestamp"] = self._chunk_times()
        arrays = [made[column.name] if column.name in made else pa.nulls(rows, column.type) for column in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _chunk_times(self) -> pa.Array:
        times = pa.Array.from_buffers(pa.int64(), self.rows, [None, pa.py_buffer(self._times)])
        if self._lacks_times:
            times = pc.if_else(pc.equal(times, _NO_TIME), None, times)
        return times.view(TIME)


def _plain(chunks: Sequence[Chunk], memory: bytes) -> list[Bounds | None]:
    """Return where the values of chunks that share memory are, of those that hold plain messages alone."""
    memory_starts = pa.py_buffer(memory).address
    simple = [chunk for chunk in chunks if chunk.header.entries == chunk.header.records]
    spans: list[ByteSpan] = []
    for chunk in simple:
        at = pa.py_buffer(chunk.data).address - memory_starts
        spans.append(ByteSpan(at, at + chunk.header.data_bytes, chunk.header.entries))
    found = dict(zip(map(id, simple), find_values(memory, spans), strict=True))
    return [found.get(id(chunk)) for chunk in chunks]


def _offsets(firsts: Sequence[tuple[int, int]]) -> pa.Array:
    one = pa.scalar(1, pa.int64())
    return pa.concat_arrays(
        [pc.cumulative_sum(pa.repeat(one, count), start=pa.scalar(first - 1, pa.int64())) for first, count in firsts]
    )
