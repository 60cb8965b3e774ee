"""Record batches by the native module, in whose memory Arrow then finds the columns. Python decides what it declines.

The module declines a chunk, from an offset on, if anything about it is wrong or rare; or a single message, whose row is
null then, and is replaced here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from types import ModuleType
from typing import Any, cast

import pyarrow as pa

from coldstream.format.amqp.message import any_message, unpack_or_none
from coldstream.format.amqp.types import Value
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.format.stored import StoredChunks
from coldstream.rows import cells as cell_limits
from coldstream.rows.cells import DECODED, cells, content_bytes
from coldstream.rows.limits import RowLimits
from coldstream.rows.python_batches import batches_in_python
from coldstream.rows.schema import schema_of
from coldstream.units import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS, Offset, TimestampMs


class NativeBatches:
    """The rows of chunks from `start` up to, not including, `end`."""

    def __init__(
        self,
        native: ModuleType,
        stream: str,
        columns: Sequence[str],
        *,
        start: Offset,
        end: Offset,
        source: str,
        limits: RowLimits,
    ) -> None:
        self._native = native
        self._stream = stream
        self._columns = columns
        self._schema = schema_of(columns)
        self._decoded = [name for name in columns if name in DECODED]
        self._start = start
        self._end = end
        self._source = source
        self._limits = limits

    def of_chunks(self, chunks: Iterable[Chunk]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of verified chunks."""
        user_chunks = (chunk for chunk in chunks if chunk.header.type is ChunkType.USER)
        for _, group in groupby(user_chunks, lambda chunk: id(chunk.data.obj)):
            # The list keeps their memory alive, so no two groups in a row have the same `id`.
            shared = list(group)
            view, places = _places(shared)
            rows = self._rows(view, verified=places)
            yield from self._batches(rows, shared.__getitem__)

    def of_stored(
        self, content: StoredChunks, *, earliest: int = MIN_TIMESTAMP_MS, latest: int = MAX_TIMESTAMP_MS
    ) -> Iterator[pa.RecordBatch] | None:
        """Verify chunks, and return their rows; None if the module takes them for wrong."""
        rows = self._rows(content.view, first_offset=content.first_offset, earliest=earliest, latest=latest)
        if rows.next_offset != content.next_offset:
            return None
        return self._batches(rows, content.chunk_at)

    def _rows(
        self,
        view: memoryview,
        *,
        verified: Sequence[tuple[int, ...]] | None = None,
        first_offset: int = 0,
        earliest: int = MIN_TIMESTAMP_MS,
        latest: int = MAX_TIMESTAMP_MS,
    ) -> Any:
        return self._native.NativeRows(
            view,
            self._decoded,
            unpack_or_none,
            verified=verified,
            first_offset=first_offset,
            start=self._start,
            end=self._end,
            earliest=earliest,
            latest=latest,
            max_rows=self._limits.rows,
            max_bytes=self._limits.size_bytes,
            max_cell_bytes=cell_limits.MAX_CELL_BYTES,
            max_declined=self._limits.decoded_rows,
        )

    def _batches(self, rows: Any, chunk_at: Callable[[int], Chunk]) -> Iterator[pa.RecordBatch]:
        """Yield all that the module has, and from Python what it declines: the chunk of a number, or at a byte."""
        while True:
            while (found := rows.next_batch()) is not None:
                yield self._record_batch(found)
            if rows.declined is None:
                return
            place, _, offset = rows.declined
            yield from self._in_python(chunk_at(place), offset)
            rows.go_on()

    def _in_python(self, chunk: Chunk, offset: int) -> Iterator[pa.RecordBatch]:
        return batches_in_python(
            [chunk],
            self._stream,
            self._columns,
            start=Offset(offset),
            end=self._end,
            source=self._source,
            limits=self._limits,
        )

    def _record_batch(self, found: Any) -> pa.RecordBatch:
        columns, count = found.columns, found.rows
        numbers, rows = self._declined(found.declined)
        arrays: list[pa.Array] = []
        for field in self._schema:
            if field.name == "stream":
                array = pa.repeat(pa.scalar(self._stream, field.type), count)
            else:
                array = _array(field.type, columns[field.name], count)
            if numbers and field.name in DECODED:
                replaced = pa.array([row[self._decoded.index(field.name)] for row in rows], field.type)
                array = _with_rows(array, numbers, replaced)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _declined(self, declined: Iterable[tuple[int, int, int, bytes]]) -> tuple[list[int], list[list[Value]]]:
        """Return the numbers of the rows that the module left to Python, and their cells."""
        numbers: list[int] = []
        rows: list[list[Value]] = []
        for number, offset, timestamp, raw in declined:
            message = any_message(offset, TimestampMs(timestamp), raw, self._source)
            row = cells(message, self._decoded)
            content_bytes(row, message)
            numbers.append(number)
            rows.append(row)
        return numbers, rows


def _places(chunks: Sequence[Chunk]) -> tuple[memoryview, list[tuple[int, ...]]]:
    """Return the memory that chunks share, from the first one's data to the last one's, and where they are in it."""
    buffers = [pa.py_buffer(chunk.data) for chunk in chunks]
    base, last = buffers[0].address, buffers[-1]
    if len(chunks) == 1:
        view = chunks[0].data
    else:
        whole = memoryview(cast("bytes", chunks[0].data.obj))
        begin = base - pa.py_buffer(whole).address
        view = whole[begin : begin + last.address - base + last.size]
    places: list[tuple[int, ...]] = []
    for chunk, buffer in zip(chunks, buffers, strict=True):
        at, header = buffer.address - base, chunk.header
        place = (at, at + buffer.size, header.chunk_id, header.entries, header.records, header.timestamp)
        places.append(place)
    return view, places


def _array(kind: pa.DataType, parts: Any, count: int) -> pa.Array:
    """Return an array of the parts that the module made of it, without a copy; one of nulls if there are none."""
    if parts is None:
        return pa.nulls(count, kind)
    length, validity, contents, children = parts
    buffers = [None if validity is None else pa.py_buffer(validity), *map(pa.py_buffer, contents)]
    if pa.types.is_map(kind):
        # Keys and values are in the two children of one child.
        (entry_length, _, _, (keys, items)) = children[0]
        pairs = [_array(kind.key_type, keys, entry_length), _array(kind.item_type, items, entry_length)]
        entries = pa.StructArray.from_arrays(pairs, fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, length, buffers, children=[entries])
    if pa.types.is_struct(kind):
        fields = [_array(kind.field(number).type, child, length) for number, child in enumerate(children)]
        return pa.Array.from_buffers(kind, length, buffers, children=fields)
    return pa.Array.from_buffers(kind, length, buffers)


def _with_rows(array: pa.Array, numbers: Sequence[int], rows: pa.Array) -> pa.Array:
    """Return an array with some of its rows replaced by others, which are as many as `numbers`."""
    pieces, at, taken = [], 0, 0
    while taken < len(numbers):
        first = numbers[taken]
        # Rows that follow each other are one piece.
        stop = taken + 1
        while stop < len(numbers) and numbers[stop] == numbers[stop - 1] + 1:
            stop += 1
        pieces += [array.slice(at, first - at), rows.slice(taken, stop - taken)]
        at, taken = first + stop - taken, stop
    return pa.concat_arrays([*pieces, array.slice(at)])
