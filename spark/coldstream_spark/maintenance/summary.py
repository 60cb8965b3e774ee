"""The summaries of tasks as one summary: numbers are added up, and of long lists the first items are kept."""

from __future__ import annotations

from typing import Any

MAX_TOLD = 1000
"""Items of each list in a summary."""


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return two summaries as one. Of lists that are cut off, `not_told` says how many items are left out."""
    found = dict(one)
    for name, value in other.items():
        there = found.get(name)
        if there is None:
            found[name] = value
        elif isinstance(value, bool):
            found[name] = there or value
        elif isinstance(value, int | float):
            found[name] = there + value
        elif isinstance(value, list):
            found[name] = (there + value)[:MAX_TOLD]
            if cut := len(there) + len(value) - MAX_TOLD:
                found["not_told"] = found.get("not_told", 0) + max(0, cut)
    return found
