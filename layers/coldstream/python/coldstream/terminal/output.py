"""Standard output: text in columns for people, JSON for programs.

Names of streams and contents of messages are untrusted: text for people goes through `printable`, so that they cannot
steer the terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any


class Format(StrEnum):
    """The form in which a command prints its results."""

    TEXT = "text"
    JSON = "json"


def write_json(value: Any) -> None:
    """Write a value as one line of JSON."""
    write_json_text(json.dumps(value, ensure_ascii=False))


def write_json_text(text: str) -> None:
    """Write JSON as a line of UTF-8, whatever the terminal's encoding. Lone surrogates are escaped."""
    sys.stdout.buffer.write(f"{text}\n".encode(errors="backslashreplace"))


def write(line: str) -> None:
    """Write one line of text. Characters that the terminal's encoding lacks are escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def write_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write rows in columns. Nothing is cut off, and columns of numbers are aligned to the right."""
    rows = list(rows)
    texts = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    numeric = [bool(rows) and all(isinstance(row[at], int) for row in rows) for at in range(len(heads))]
    for line in [list(heads), *texts]:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        )
        write("  ".join(cells).rstrip())


def printable(value: object) -> str:
    """Return a value as text for a terminal: control characters escaped, None as a dash."""
    if value is None:
        return "-"
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in str(value))


UNEXPLAINED = "not archived yet, or lost"
"""What is said of a gap that has no reason."""


def gap_text(first_offset: int, next_offset: int, reason: str | None) -> str:
    """Describe a gap: its offsets, and the reason if one is known."""
    return f"offsets {first_offset} to {next_offset - 1} ({printable(reason or UNEXPLAINED)})"


def duration_text(seconds: float | None) -> str | None:
    """Return a duration in the unit that suits it."""
    if seconds is None:
        return None
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:  # "119 min" says more than "2 h"
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def count_text(number: int, noun: str) -> str:
    """Return a number of things: `1 object`, `1,200 objects`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


PRICES = "in US dollars, list prices of us-east-1"
"""What amounts of money are, said once beside them."""


def usd_text(amount: float) -> str:
    """Return US dollars, to the cent; less than a cent to the millionth."""
    return f"{amount:,.2f}" if abs(amount) >= 0.01 or amount == 0 else f"{amount:,.6f}"  # noqa: PLR2004  a cent


def size_text(size_bytes: int) -> str:
    """Return a size in the unit that suits it."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":  # noqa: PLR2004  the ratio of two units
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
