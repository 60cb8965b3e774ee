"""What became of a replay into a table, and its summary as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from coldstream.manifest.entry import Gap
from coldstream.replay.request import ReplayRequest


@dataclass(slots=True)
class TableReport:
    """What became of a request: what was read and written, and what the table had already.

    `again` counts the spans that an interrupted run had begun, `present` the offsets that the table had, `read_bytes`
    the chunks. `gaps` were skipped.
    """

    request: ReplayRequest
    messages: int = 0
    rows: int = 0
    files: int = 0
    spans: int = 0
    again: int = 0
    present: int = 0
    read_bytes: int = 0
    is_complete: bool = False
    gaps: list[Gap] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        request = self.request
        return {
            "vhost": request.stream.vhost,
            "stream": request.stream.name,
            "incarnation": request.stream.incarnation,
            "from": request.start,
            "to": request.end,
            "messages": self.messages,
            "rows": self.rows,
            "files": self.files,
            "written_again": self.again,
            "present": self.present,
            "complete": self.is_complete,
            "gaps": [{"first_offset": gap.first_offset, "next_offset": gap.next_offset} for gap in self.gaps],
        }


def table_summary(reports: Iterable[TableReport], path: str, *, seconds: float) -> dict[str, Any]:
    """Return the summary of a run."""
    streams = [report.to_dict() for report in reports]
    totals = {name: sum(stream[name] for stream in streams) for name in ("messages", "rows", "files")}
    complete = all(stream["complete"] for stream in streams)
    return {"target": path, "streams": streams} | totals | {"complete": complete, "seconds": round(seconds, 3)}
