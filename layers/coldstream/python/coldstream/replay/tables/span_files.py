"""The files of one span of a table, and where one ends and the next begins.

A span that is written again has to give the same files, whatever compaction has made of its fragments since. So borders
of files, and of row groups in them, depend on the chunks and the rows that are kept of them alone: a border lies before
a chunk, once the rows since the last one weigh enough. What a row weighs follows from its chunk's header. Chunks whose
rows that does not bound are written alone, and have borders between their batches too, which the native module ends
elsewhere than Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from coldstream.format.chunk import Chunk, ChunkHeader
from coldstream.replay.tables.files import TableFile, create_file
from coldstream.replay.tables.layout import file_name
from coldstream.replay.tables.table import Table
from coldstream.rows.batches import BATCH_BYTES
from coldstream.rows.schema import SCHEMA
from coldstream.units import MIB

ROW_GROUP_BYTES = 16 * MIB
"""Weight of the rows that are held back until they make a row group."""

_ROW_BYTES = 100
"""What a row weighs besides its message: its stream, offset and time, and what says that it lacks the others."""


def is_alone(chunk: Chunk) -> bool:
    """Tell whether a chunk is written by itself: it is large, or has sub-batches, which unpack to any size."""
    return chunk.header.entries != chunk.header.records or chunk.header.data_bytes > BATCH_BYTES


class SpanFiles:
    """Writes files in the spool at `path`, and moves each into the table when it is full. One is open at a time."""

    def __init__(self, table: Table, stem: str, path: Path, open_files: ExitStack) -> None:
        self.names: list[str] = []
        self.rows = 0
        self._table = table
        self._stem = stem
        self._path = path
        self._open_files = open_files
        self._directory = ""
        self._file: TableFile | None = None
        self._file_bytes = self._group_bytes = 0
        self._last_chunk = -1

    def add(self, directory: str, chunks: Sequence[Chunk], rows: pa.RecordBatch) -> None:
        """Add rows, in order, that go to one directory and come from these chunks, of which none `is_alone`."""
        ends = np.searchsorted(rows["offset"].to_numpy(), [chunk.header.next_offset for chunk in chunks]).tolist()
        first = at = weight = 0
        for chunk, end in zip(chunks, ends, strict=True):
            if end == at:
                continue
            header = chunk.header
            # A chunk may be spread over two batches. No border is inside of it: where batches end depends on slices.
            if header.chunk_id != self._last_chunk and self._is_full(directory, weight):
                self._write(rows.slice(first, at - first), weight)
                self._begin(directory)
                first, weight = at, 0
            self._last_chunk = header.chunk_id
            weight += (end - at) * _row_weight(header)
            at = end
        self._write(rows.slice(first), weight)

    def add_alone(self, directory: str, rows: pa.RecordBatch) -> None:
        """Add a batch of the rows of a chunk that `is_alone`."""
        if not rows.num_rows:
            return
        if self._is_full(directory, 0):
            self._begin(directory)
        self._write(rows, rows.nbytes)

    def close(self) -> None:
        """Move the file that is open into the table."""
        if self._file is None:
            return
        self._file.close()
        self._open_files.pop_all()  # else the stack would keep every file of the span to its end
        self._file = None
        name = f"{self._directory}{file_name(self._stem, len(self.names), self._table.form)}"
        self._table.directory.put(name, self._path)
        self.names.append(name)

    def _is_full(self, directory: str, weight: int) -> bool:
        """Tell whether what comes after `weight` more bytes begins a file or a row group."""
        return (
            self._file is None
            or directory != self._directory
            or self._file_bytes + weight >= self._table.file_bytes
            or self._group_bytes + weight >= ROW_GROUP_BYTES
        )

    def _begin(self, directory: str) -> None:
        """Begin a row group, in a new file if the one that is open is full or is in another directory."""
        if self._file is not None:
            if directory == self._directory and self._file_bytes < self._table.file_bytes:
                self._file.end_row_group()
                self._group_bytes = 0
                return
            self.close()
        self._file = create_file(self._table.form, self._path, self._table.columns, SCHEMA)
        self._open_files.callback(self._file.close)  # also if the span ends in an error
        self._directory, self._file_bytes, self._group_bytes = directory, 0, 0

    def _write(self, rows: pa.RecordBatch, weight: int) -> None:
        if self._file is None or not rows.num_rows:
            return
        self._file.write(rows)
        self._file_bytes += weight
        self._group_bytes += weight
        self.rows += rows.num_rows


def _row_weight(header: ChunkHeader) -> int:
    return header.data_bytes // header.records + _ROW_BYTES
