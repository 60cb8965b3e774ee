"""What a table is: where it lies, its format, and what becomes a row of it."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.replay.left_out import LeftOutReport
from coldstream.replay.tables.directory import TableDirectory
from coldstream.replay.tables.layout import FileFormat, Partitioning
from coldstream.replay.tables.row_transform import RowTransform
from coldstream.replay.window import TimeWindow
from coldstream.rows.schema import SCHEMA
from coldstream.units import MIB

FILE_BYTES = 128 * MIB
"""About how many bytes of rows one file holds: bodies, and what `span_files` reckons for the rest of a row."""


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
