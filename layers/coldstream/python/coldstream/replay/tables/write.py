"""Write one span of a stream into a table: its rows, in files whose borders depend on the rows alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from coldstream.manifest.stream import StreamId
from coldstream.read.scan import ScanSlice, read_slice
from coldstream.replay.tables.directory import TableDirectory
from coldstream.replay.tables.files import TableFile, create_file
from coldstream.replay.tables.layout import FileFormat, Partitioning, file_name, file_stem, leftovers
from coldstream.replay.tables.marks import OffsetSpan
from coldstream.replay.tables.row_transform import RowTransform, transform_rows
from coldstream.rows.batches import batches
from coldstream.rows.schema import SCHEMA
from coldstream.store.ports import ObjectReads
from coldstream.units import MIB, TimestampMs

FILE_BYTES = 128 * MIB
"""About how many bytes of rows, as they lie in memory, one file holds."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its directory, format and partitions, which never change, and the `transform` of this run."""

    directory: TableDirectory
    form: FileFormat
    partitioning: Partitioning
    transform: RowTransform | None = None
    file_bytes: int = FILE_BYTES

    @property
    def columns(self) -> list[str]:
        """Names of the columns in the files: not those that are directories."""
        return [name for name in SCHEMA.names if name not in self.partitioning.columns]


@dataclass(frozen=True, slots=True)
class WrittenSpan:
    """What became of a span: the number of messages that were read and of rows that were written, and the files."""

    messages: int
    rows: int
    files: tuple[str, ...]


def write_span(
    objects: ObjectReads,
    table: Table,
    stream: StreamId,
    span: OffsetSpan,
    slices: Iterable[ScanSlice],
    *,
    again: bool = False,
    on_messages: Callable[[int], None] = lambda _: None,
) -> WrittenSpan:
    """Write the rows of a span. With `again`, files of an earlier attempt may exist: they are replaced, or deleted.

    One file is open at a time. A new one begins when the partition changes, or at `file_bytes`. Memory: a slice and a
    row group. Raises what `read_slice` raises.
    """
    stem = file_stem(stream.incarnation, span.start)
    with table.directory.spool() as spool, ExitStack() as open_files:
        writer = _SpanWriter(spool, stem, table, open_files)
        found = 0
        for timestamp, rows in _rows(objects, stream, slices):
            kept = rows if table.transform is None else transform_rows(rows, table.transform)
            if kept.num_rows:
                writer.write(table.partitioning.directory(stream.name, timestamp), kept)
            found += rows.num_rows
            on_messages(rows.num_rows)
        writer.close()
    if again:
        # A transformation may leave out more than it did before: then the earlier attempt has more files.
        for name in leftovers(table.directory.names(table.partitioning.above(stream.name)), stem, writer.names):
            table.directory.delete(name)
    return WrittenSpan(found, writer.rows, tuple(writer.names))


def _rows(
    objects: ObjectReads, stream: StreamId, slices: Iterable[ScanSlice]
) -> Iterator[tuple[TimestampMs, pa.RecordBatch]]:
    """Yield the rows of each user chunk, with its timestamp."""
    for part in slices:
        for chunk in read_slice(objects, part):
            for rows in batches([chunk], stream.name, SCHEMA.names, start=part.start, end=part.end, source=part.key):
                yield chunk.header.timestamp, rows


class _SpanWriter:
    """Writes files in the spool, and moves each into the table when it is full."""

    def __init__(self, spool: Path, stem: str, table: Table, open_files: ExitStack) -> None:
        self.names: list[str] = []
        self.rows = 0
        self._path = spool / "file"
        self._stem = stem
        self._table = table
        self._open_files = open_files
        self._directory = ""
        self._file: TableFile | None = None
        self._file_bytes = 0

    def write(self, directory: str, rows: pa.RecordBatch) -> None:
        if self._file is not None and (directory != self._directory or self._file_bytes >= self._table.file_bytes):
            self.close()
        if self._file is None:
            self._file = create_file(self._table.form, self._path, self._table.columns, SCHEMA)
            self._open_files.callback(self._file.close)  # also if the span ends in an error
            self._directory, self._file_bytes = directory, 0
        self._file.write(rows)
        self._file_bytes += rows.nbytes
        self.rows += rows.num_rows

    def close(self) -> None:
        if self._file is None:
            return
        self._file.close()
        self._open_files.pop_all()  # else the stack would keep every file of the span to its end
        self._file = None
        name = f"{self._directory}{file_name(self._stem, len(self.names), self._table.form)}"
        self._table.directory.put(name, self._path)
        self.names.append(name)
