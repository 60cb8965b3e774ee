"""Rows through a user's function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

Row = dict[str, Any]
"""A row by its columns' names: maps are dicts, timestamps datetimes."""

RowTransform = Callable[[Row], Row | None]
"""Returns a row in the place of one, or None to leave it out. The same for the same, each time."""


def to_dicts(rows: pa.RecordBatch) -> list[Row]:
    """Return rows as Python has them."""
    found: list[Row] = rows.to_pylist(maps_as_pydicts="strict")
    return found


def transformed(rows: pa.RecordBatch, transform: RowTransform) -> pa.RecordBatch:
    """Return rows as a function makes them; which stream, offset and time they are of, it does not change."""
    found: list[Row] = []
    for row in to_dicts(rows):
        origin = {name: row[name] for name in ("stream", "offset", "chunk_timestamp")}
        made = transform(row)
        if made is not None:
            found.append(made | origin)
    return pa.RecordBatch.from_pylist(found, schema=rows.schema)
