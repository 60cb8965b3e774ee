"""Files of a table: Parquet, or lines of JSON."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from coldstream.replay.tables.layout import FileFormat
from coldstream.replay.tables.lines import json_line
from coldstream.replay.tables.row_transform import to_dicts
from coldstream.units import MIB

ROW_GROUP_BYTES = 16 * MIB
"""Memory of the rows that are held back until they make a row group."""


class TableFile(Protocol):
    """An open file, to which rows are added."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        ...

    def close(self) -> None:
        """Write the rest."""
        ...


def create_file(form: FileFormat, path: Path, columns: list[str], schema: pa.Schema) -> TableFile:
    """Create a file with some of the columns of a schema."""
    if form is FileFormat.PARQUET:
        return _Parquet(path, pa.schema([schema.field(name) for name in columns]))
    return _JsonLines(path, columns, zipped=form is FileFormat.JSONL_GZIP)


class _Parquet:
    """Parquet, compressed with Zstandard; the same bytes for the same rows."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows.select(self._schema.names))
        self._held_bytes += rows.nbytes
        if self._held_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, self._schema))
        self._held, self._held_bytes = [], 0


class _JsonLines:
    """One line of JSON a row, compressed with gzip if `zipped`; the same bytes for the same rows."""

    def __init__(self, path: Path, columns: list[str], *, zipped: bool) -> None:
        self._columns = columns
        self._raw = path.open("wb")
        # Without name and time: a file that is written again must have the same bytes.
        self._file = gzip.GzipFile("", "wb", 6, self._raw, mtime=0) if zipped else self._raw

    def write(self, rows: pa.RecordBatch) -> None:
        for row in to_dicts(rows.select(self._columns)):
            self._file.write(json_line(row))

    def close(self) -> None:
        self._file.close()
        self._raw.close()  # GzipFile does not close the file that it writes to
