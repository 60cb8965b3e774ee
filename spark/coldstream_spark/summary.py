"""The progress of a replay into a table while it runs, and its summary afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from coldstream.replay.request import ReplayRequest
from coldstream_spark.positions import Positions

TELL_S = 5


@dataclass(frozen=True, slots=True)
class TableSummary:
    """What became of a replay: each request was read from its position in `before` up to that in `now`.

    `messages` is how many Spark read in this run. It includes a batch that a killed run had begun, unless all of that
    batch was in the table.
    """

    path: str
    requests: tuple[ReplayRequest, ...]
    before: Positions
    now: Positions
    messages: int
    batches: int

    @property
    def problems(self) -> list[str]:
        """The requests that are not complete, although everything was archived when the run began."""
        return [
            f"{request.stream}: read to offset {self._reached(self.now, request)}, and not to {request.end}"
            for request in self.requests
            if not self._is_complete(request)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        return {
            "target": self.path,
            "streams": [
                {
                    "vhost": request.stream.vhost,
                    "stream": request.stream.name,
                    "incarnation": request.stream.incarnation,
                    "from": request.start,
                    "to": request.end,
                    "resumed_at": self._reached(self.before, request),
                    "done_to": self._reached(self.now, request),
                    "complete": self._is_complete(request),
                }
                for request in self.requests
            ],
            "messages": self.messages,
            "batches": self.batches,
            "complete": not self.problems,
        }

    def _reached(self, positions: Positions, request: ReplayRequest) -> int:
        position = positions[request.stream.name]
        if position.stream != request.stream:
            return request.start
        return min(max(position.offset, request.start), request.end)

    def _is_complete(self, request: ReplayRequest) -> bool:
        return self._reached(self.now, request) == request.end


class QueryProgress:
    """Counts what queries read, and tells it every few seconds."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told_at = self._began_at = time.monotonic()
        self.messages = 0
        self.batches = 0

    def follow(self, query: StreamingQuery) -> None:
        """Wait for the end of a query. Raises StreamingQueryException."""
        before, rows = self.messages, dict[int, int]()
        is_over = False
        while not is_over:
            is_over = bool(query.awaitTermination(1))
            for progress in query.recentProgress:
                # By batch: Spark shows the last hundred each time, and a plain sum would count them again.
                rows[progress.batchId] = progress.numInputRows
            self.messages = before + sum(rows.values())
            now = time.monotonic()
            if now - self._told_at >= TELL_S:
                self._told_at = now
                self._tell(f"{self.messages:,} messages, {self.messages / (now - self._began_at):,.0f} a second")
        self.batches += sum(count > 0 for count in rows.values())
