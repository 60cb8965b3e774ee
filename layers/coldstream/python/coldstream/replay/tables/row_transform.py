"""Transformation: a user's function that filters or changes the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

Row = dict[str, Any]
"""The values of a row by the names of its columns. Maps are dicts, timestamps are datetimes."""

RowTransform = Callable[[Row], Row | None]
"""Returns the row to write instead, or None to leave it out. It must return the same for the same row each time."""


_PIECE_ROWS = 1 << 12
"""So many rows are Python's values at a time: each takes a KiB and more."""


def iter_dicts(rows: pa.RecordBatch) -> Iterator[Row]:
    """Yield rows as Python's values."""
    for at in range(0, rows.num_rows, _PIECE_ROWS):
        yield from rows.slice(at, _PIECE_ROWS).to_pylist(maps_as_pydicts="strict")


def transform_rows(rows: pa.RecordBatch, transform: RowTransform) -> pa.RecordBatch:
    """Return rows as a function returns them; their stream, offset and time stay, whatever it does."""
    found: list[Row] = []
    for row in iter_dicts(rows):
        origin = {name: row[name] for name in ("stream", "offset", "chunk_timestamp")}
        changed = transform(row)
        if changed is not None:
            found.append(changed | origin)
    return pa.RecordBatch.from_pylist(found, schema=rows.schema)
