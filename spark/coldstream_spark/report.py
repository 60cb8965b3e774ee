"""The summary of a script, left in the archive's table for whoever had the script run, and does not see its output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from coldstream.errors import ColdstreamError
from coldstream.store.ports import ManifestTable

MAX_BYTES = 100_000
ABOUT = (
    "Also leave the summary in the archive's table, as the cursor of this name: for whoever does not see the output."
)


def leave_report(table: ManifestTable, name: str | None, summary: Mapping[str, Any]) -> str | None:
    """Write a summary as the cursor of a name, if one is given; return why that failed, None if it did not.

    Lists make a summary large. If it is too large, they go. Cost: one PUT a KB.
    """
    if name is None:
        return None
    data = json.dumps(summary).encode()
    if len(data) > MAX_BYTES:
        data = json.dumps({key: value for key, value in summary.items() if not isinstance(value, list)}).encode()
    try:
        table.put_cursor(name, data)
    except ColdstreamError as err:
        # What the script did is done, and its own exit code says so.
        return f"the report was not left: {err}"
    return None
