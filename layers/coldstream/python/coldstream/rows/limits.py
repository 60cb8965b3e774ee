"""How large batches are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RowLimits:
    """At most so many rows, and bytes of values and texts unless one message has more.

    `decoded_rows` is the limit where messages are decoded in Python: until they are a batch, each takes some KiB.
    """

    rows: int
    decoded_rows: int
    size_bytes: int
