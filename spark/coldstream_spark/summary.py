"""What becomes of a replay into a table: told while it runs, and when it is over."""

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
    """What became of a replay: each source was read from where it is in `before` up to where it is in `now`.

    `messages` is what Spark read in this run; a batch that a killed run had begun is among them, unless all of it was
    in the table.
    """

    path: str
    sources: tuple[ReplayRequest, ...]
    before: Positions
    now: Positions
    messages: int
    batches: int

    @property
    def problems(self) -> list[str]:
        """What is not in the table, though it was archived when the run began."""
        return [
            f"{source.stream}: read to offset {self._reached(self.now, source)}, and not to {source.end}"
            for source in self.sources
            if not self._is_complete(source)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "target": self.path,
            "streams": [
                {
                    "vhost": source.stream.vhost,
                    "stream": source.stream.name,
                    "incarnation": source.stream.incarnation,
                    "from": source.start,
                    "to": source.end,
                    "resumed_at": self._reached(self.before, source),
                    "done_to": self._reached(self.now, source),
                    "complete": self._is_complete(source),
                }
                for source in self.sources
            ],
            "messages": self.messages,
            "batches": self.batches,
            "complete": not self.problems,
        }

    def _reached(self, positions: Positions, source: ReplayRequest) -> int:
        position = positions[source.stream.name]
        if position.stream != source.stream:
            return source.start
        return min(max(position.offset, source.start), source.end)

    def _is_complete(self, source: ReplayRequest) -> bool:
        return self._reached(self.now, source) == source.end


class Telling:
    """Counts what queries do, and says so every few seconds."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told_at = self._began_at = time.monotonic()
        self.messages = 0
        self.batches = 0

    def follow(self, query: StreamingQuery) -> None:
        """Wait for a query's end. Raises StreamingQueryException."""
        before, rows = self.messages, dict[int, int]()
        is_over = False
        while not is_over:
            is_over = bool(query.awaitTermination(1))
            for progress in query.recentProgress:
                rows[progress.batchId] = progress.numInputRows
            self.messages = before + sum(rows.values())
            now = time.monotonic()
            if now - self._told_at >= TELL_S:
                self._told_at = now
                self._tell(f"{self.messages:,} messages, {self.messages / (now - self._began_at):,.0f} a second")
        self.batches += sum(count > 0 for count in rows.values())
