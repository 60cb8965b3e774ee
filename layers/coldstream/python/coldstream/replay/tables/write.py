"""Write one span of a stream into a table: its rows, in files whose borders depend on the rows alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from coldstream.format.amqp.message import messages
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import ScanSlice, read_slice
from coldstream.replay.left_out import LeftOutMessages, LeftOutReason
from coldstream.replay.tables.layout import Partitioning, file_stem, leftovers
from coldstream.replay.tables.marks import OffsetSpan
from coldstream.replay.tables.row_transform import transform_rows
from coldstream.replay.tables.span_files import SpanFiles, is_alone
from coldstream.replay.tables.table import Table
from coldstream.rows.batches import batches
from coldstream.rows.schema import SCHEMA
from coldstream.store.ports import ObjectReads
from coldstream.units import Offset

_HOUR_MS = 3_600_000
"""No partition is finer than an hour."""


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

    One file is open at a time, and where one ends and the next begins depends on the rows and their chunks alone: see
    `SpanFiles`. Memory: a slice and a row group. Raises what `read_slice` raises.
    """
    stem = file_stem(stream.incarnation, span.start, table.window_identity)
    planned = list(slices)
    with table.directory.spool() as spool, ExitStack() as open_files:
        files = SpanFiles(table, stem, spool / "file", open_files)
        found = 0
        for part in planned:
            for directory, chunks in _runs(read_slice(objects, part), table.partitioning, stream):
                for rows in _rows(table, stream, part, chunks):
                    kept = rows if table.transform is None else transform_rows(rows, table.transform)
                    if is_alone(chunks[0]):
                        files.add_alone(directory, kept)
                    else:
                        files.add(directory, chunks, kept)
                    found += rows.num_rows
                    on_messages(rows.num_rows)
        files.close()
    if again:
        # A transformation may leave out more than it did before: then the earlier attempt has more files.
        for name in leftovers(table.directory.names(table.partitioning.above(stream.name)), stem, files.names):
            table.directory.delete(name)
    return WrittenSpan(found, files.rows, tuple(files.names), sum(part.data_bytes for part in planned))


def _runs(
    chunks: Iterable[Chunk], partitioning: Partitioning, stream: StreamId
) -> Iterator[tuple[str, Sequence[Chunk]]]:
    """Yield user chunks in a row that go to one directory: together, small chunks cost no more than large ones."""
    run: list[Chunk] = []
    directory, hour = "", -1
    for chunk in chunks:
        header = chunk.header
        if header.type is not ChunkType.USER:
            continue
        before = directory
        if not run or header.timestamp // _HOUR_MS != hour:
            hour = header.timestamp // _HOUR_MS
            directory = partitioning.directory(stream.name, header.timestamp)
        if run and (directory != before or is_alone(chunk) or is_alone(run[0])):
            yield before, run
            run = []
        run.append(chunk)
    if run:
        yield directory, run


def _rows(table: Table, stream: StreamId, part: ScanSlice, chunks: Sequence[Chunk]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some chunks of a slice, less those that are left out."""
    dropped = pa.array([offset for chunk in chunks for offset in _dropped(chunk, part, table)], pa.int64())
    for rows in batches(chunks, stream.name, SCHEMA.names, start=part.start, end=part.end, source=part.key):
        yield rows.filter(pc.invert(pc.is_in(rows["offset"], value_set=dropped))) if len(dropped) else rows


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
