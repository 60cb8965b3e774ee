"""Write one span of a stream into a table: its rows, in files whose borders depend on the rows alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from coldstream.format.amqp.message import messages
from coldstream.format.chunk import Chunk
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import ScanSlice, read_slice
from coldstream.replay.left_out import LeftOutMessages, LeftOutReason, LeftOutReport
from coldstream.replay.tables.directory import TableDirectory
from coldstream.replay.tables.files import TableFile, create_file
from coldstream.replay.tables.layout import FileFormat, Partitioning, file_name, file_stem, leftovers
from coldstream.replay.tables.marks import OffsetSpan
from coldstream.replay.tables.row_transform import RowTransform, transform_rows
from coldstream.replay.window import TimeWindow
from coldstream.rows.batches import batches
from coldstream.rows.schema import SCHEMA
from coldstream.store.ports import ObjectReads
from coldstream.units import MIB, Offset, TimestampMs

FILE_BYTES = 128 * MIB
"""About how many bytes of rows, as they lie in memory, one file holds."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its directory, format and partitions, which never change, and the `transform` of this run.

    Only messages of the `window` become rows. `window_identity` tells the spans of one window from those of others, and
    stays the same if a window's end is moved. With `on_left_out`, erased messages become no rows and are told.
    """

    directory: TableDirectory
    form: FileFormat
    partitioning: Partitioning
    transform: RowTransform | None = None
    file_bytes: int = FILE_BYTES
    window: TimeWindow | None = None
    window_identity: str = ""
    on_left_out: LeftOutReport | None = None

    @property
    def columns(self) -> list[str]:
        """Names of the columns in the files: not those that are directories."""
        return [name for name in SCHEMA.names if name not in self.partitioning.columns]


@dataclass(frozen=True, slots=True)
class WrittenSpan:
    """What became of a span: how many messages were read and rows written, the files, and the bytes of the chunks."""

    messages: int
    rows: int
    files: tuple[str, ...]
    read_bytes: int = 0


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
    stem = file_stem(stream.incarnation, span.start, table.window_identity)
    planned = list(slices)
    with table.directory.spool() as spool, ExitStack() as open_files:
        writer = _SpanWriter(spool, stem, table, open_files)
        found = 0
        for timestamp, rows in _rows(objects, table, stream, planned):
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
    return WrittenSpan(found, writer.rows, tuple(writer.names), sum(part.data_bytes for part in planned))


def _rows(
    objects: ObjectReads, table: Table, stream: StreamId, slices: Iterable[ScanSlice]
) -> Iterator[tuple[TimestampMs, pa.RecordBatch]]:
    """Yield the rows of each user chunk, with its timestamp."""
    for part in slices:
        for chunk in read_slice(objects, part):
            dropped = pa.array(_dropped(chunk, part, table), pa.int64())
            for rows in batches([chunk], stream.name, SCHEMA.names, start=part.start, end=part.end, source=part.key):
                is_dropped = pc.is_in(rows["offset"], value_set=dropped) if len(dropped) else None
                yield chunk.header.timestamp, rows if is_dropped is None else rows.filter(pc.invert(is_dropped))


def tell_left_out(objects: ObjectReads, table: Table, part: ScanSlice) -> None:
    """Tell what becomes no rows of a slice, and write nothing. Cost: a GET if there may be anything."""
    if table.window is not None or part.erased:
        for chunk in read_slice(objects, part):
            _dropped(chunk, part, table)


def _dropped(chunk: Chunk, part: ScanSlice, table: Table) -> list[int]:
    """Return the offsets of the messages of a chunk that become no rows; tell why."""
    window, report = table.window, table.on_left_out
    if window is None and not (part.erased and report is not None):
        return []
    found: list[int] = []
    for message in messages(chunk, source=part.key, from_offset=part.start):
        if message.offset >= part.end:
            break
        reason: LeftOutReason | None = None
        time = None if window is None else window.time_of(message)
        if window is not None and time is not None and not window.takes_time(time):
            found.append(message.offset)
            reason = LeftOutReason.LATE if window.is_late(time) else None
        elif report is not None and message.raw == ERASED_MESSAGE:
            found.append(message.offset)
            reason, time = LeftOutReason.ERASED, None
        if report is not None and reason is not None:
            report(LeftOutMessages(message.offset, Offset(message.offset + 1), reason, time))
    return found


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
