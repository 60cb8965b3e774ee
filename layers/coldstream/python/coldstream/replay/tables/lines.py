"""Rows as lines of JSON."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import datetime

from coldstream.replay.tables.row_transform import Row


def json_line(row: Row) -> bytes:
    """Write a row as JSON, without nulls: `value` if the body is UTF-8, else `value_base64`."""
    return f"{json.dumps(_readable(row), ensure_ascii=False)}\n".encode()


def _readable(row: Row) -> Row:
    readable: Row = {}
    for name, value in row.items():
        if value is None:
            continue
        if isinstance(value, dict):
            readable[name] = _readable(value)
        elif isinstance(value, datetime):
            readable[name] = value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        elif isinstance(value, bytes):
            try:
                readable[name] = value.decode()
            except UnicodeDecodeError:
                readable[f"{name}_base64"] = b64encode(value).decode()
        else:
            readable[name] = value
    return readable
