"""Files of a table: Parquet, or lines of JSON."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from coldstream.replay.tables.layout import FileFormat
from coldstream.replay.tables.lines import json_lines


class TableFile(Protocol):
    """An open file, to which rows are added."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        ...

    def end_row_group(self) -> None:
        """Write what is held back, if the format has row groups: what comes next begins one."""
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

    def write(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows.select(self._schema.names))

    def end_row_group(self) -> None:
        if self._held:
            # In one piece: where pages end would depend on where batches do.
            self._writer.write_table(pa.Table.from_batches(self._held, self._schema).combine_chunks())
        self._held = []

    def close(self) -> None:
        self.end_row_group()
        self._writer.close()


class _JsonLines:
    """One line of JSON a row, compressed with gzip if `zipped`; the same bytes for the same rows."""

    def __init__(self, path: Path, columns: list[str], *, zipped: bool) -> None:
        self._columns = columns
        self._raw = path.open("wb")
        # Without name and time: a file that is written again must have the same bytes.
        self._file = gzip.GzipFile("", "wb", 6, self._raw, mtime=0) if zipped else self._raw

    def write(self, rows: pa.RecordBatch) -> None:
        for lines in json_lines(rows.select(self._columns)):
            self._file.write(lines)

    def end_row_group(self) -> None:
        pass  # lines have none

    def close(self) -> None:
        self._file.close()
        self._raw.close()  # GzipFile does not close the file that it writes to
