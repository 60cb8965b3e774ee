"""A job's log: its last 1000 lines, each an item of its own, written in the same transaction as the change it tells of.

    #job-log#{sha256 of the id}    {number % 1000, 4 digits}    JSON: number, at, text

An item's revision is how often its place was used, so the write of a line that somebody else wrote first fails.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Self

from coldstream.errors import CorruptionError, LostRaceError
from coldstream.jobs.short_text import short_text
from coldstream.manifest.state_item import StateItem
from coldstream.plain_json import read_json
from coldstream.store.ports import ManifestReads, ManifestTable
from coldstream.units import TimestampMs

KEPT_LINES = 1000
MAX_LINE = 2000
MAX_LINE_BYTES = 12 * MAX_LINE
MAX_LINES_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a job's log: the how many-th it is, when it was written, and what it says."""

    number: int
    at: TimestampMs
    text: str

    @classmethod
    def from_item(cls, item: StateItem) -> Self:
        """Decode it. Raises CorruptionError."""
        try:
            content = read_json(item.data)
            return cls(int(content["number"]), TimestampMs(int(content["at"])), str(content["text"]))
        except (ValueError, TypeError, KeyError) as err:
            raise CorruptionError(f"state item {item.partition} {item.key}", 0, f"malformed: {err}") from err


def partition_of(job: str) -> str:
    """Return the partition that has a job's lines."""
    return f"#job-log#{sha256(job.encode(errors='surrogatepass')).hexdigest()}"


def items_of(job: str, first: int, lines: Sequence[tuple[TimestampMs, str]]) -> list[StateItem]:
    """Encode lines that begin at a number."""
    return [
        StateItem(
            partition_of(job),
            f"{number % KEPT_LINES:04}",
            number // KEPT_LINES + 1,
            json.dumps({"number": number, "at": at, "text": short_text(text[:MAX_LINE], MAX_LINE_BYTES)}).encode(),
        )
        for number, (at, text) in enumerate(lines, first)
    ]


def read_lines(table: ManifestReads, job: str, *, after: int = -1) -> list[LogLine]:
    """Return the lines that are kept, past a number, in order. Cost: one Query a page. Raises CorruptionError."""
    lines = map(LogLine.from_item, table.state_items(partition_of(job)))
    return sorted((line for line in lines if line.number > after), key=lambda line: line.number)


def delete_lines(table: ManifestTable, job: str) -> int:
    """Delete all lines of a deleted job; return how many there were. Cost: one Query a page, and one DELETE a line."""
    found = list(table.state_items(partition_of(job)))
    for item in found:
        try:
            table.delete_state(item)
        except LostRaceError:
            continue  # somebody else deletes the same job
    return len(found)
