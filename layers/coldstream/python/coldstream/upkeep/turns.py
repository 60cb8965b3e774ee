"""A run's way through its streams, one after the other, and its cursor.

    {"after": key of the last stream that is done, "passed": of the unit, "within": {…}, "sums": {…}, …}

`within` is where the kind is in the stream that is under way, and `sums` what it has counted in the whole run. So a
run that was stopped, or whose worker died, begins with the stream after `after`, from where it was in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from coldstream.jobs.run import JobRun
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestReads
from coldstream.upkeep.choice import SpecOfStreams, StreamChoice, key_of
from coldstream.upkeep.survey import survey

FRAGMENTS = "fragments"
STREAMS = "streams"


class StreamTurns:
    """The streams of a run. Iterate over it once; call `done` for each stream, and `finish` after the last."""

    def __init__(self, run: JobRun, table: ManifestReads, spec: SpecOfStreams, unit: str = FRAGMENTS) -> None:
        """Begin, or go on. Cost: that of `StreamChoice.find`, and at the beginning of the run that of `survey`.

        The unit is streams, whatever is asked for, if there are too many to know how many fragments they have.
        """
        self.is_complete = False
        self._run = run
        self._table = table
        self.choice = StreamChoice.find(table, spec)
        cursor = run.cursor
        self._after: str | None = cursor.get("after")
        self._passed: int = cursor.get("passed", 0)
        self._within: dict[str, Any] = dict(cursor.get("within", {}))
        self._sums: dict[str, int] = dict(cursor.get("sums", {}))
        if "unit" in cursor:
            self._unit: str = cursor["unit"]
        else:
            found = survey(table, self.choice)
            is_known = found.is_complete and unit == FRAGMENTS
            self._unit = FRAGMENTS if is_known else STREAMS
            total = found.fragments if is_known else found.streams
            run.advance(cursor=self._cursor(), done=0, total=total, unit=self._unit)

    @property
    def within(self) -> Mapping[str, Any]:
        """Where the kind was in the stream that is under way; empty at its beginning."""
        return self._within

    @property
    def sums(self) -> Mapping[str, int]:
        """What the kind has counted in this run."""
        return self._sums

    @property
    def is_in_fragments(self) -> bool:
        """Whether the run's unit is fragments; else it is streams."""
        return self._unit == FRAGMENTS

    def __iter__(self) -> Iterator[StreamId]:
        """Yield the streams from where the run is; `is_complete` once all were, but not if the run is to stop."""
        for stream in self.choice.iter(self._table, self._after):
            if self._run.should_stop():
                return
            yield stream
        self.is_complete = True

    def live_head(self, stream: StreamId) -> Head | None:
        """Return the head of a stream, None for one that is deleted. Of one that was named, that is told as skipped."""
        head = self._table.head(stream.incarnation)
        if head is not None and not head.is_deleted:
            return head
        if head is not None and stream in self.choice.named:
            self._run.skip(str(stream), 1, "it was deleted meanwhile")
        return None

    def move(
        self, within: Mapping[str, Any], *, done: int = 0, messages: int = 0, bytes_: int = 0, **sums: int
    ) -> None:
        """Tell where in the stream the run is: of its fragments, `done` are; what else is told is added."""
        self._within = dict(within)
        self._add(sums)
        passed = self._passed + (done if self.is_in_fragments else 0)
        self._run.advance(cursor=self._cursor(), done=self._bounded(passed), messages=messages, bytes_=bytes_)

    def done(self, stream: StreamId, fragments: int, *, messages: int = 0, bytes_: int = 0, **sums: int) -> None:
        """Tell that a stream is done, which had so many fragments when its turn came."""
        self._after, self._within = key_of(stream), {}
        self._passed += fragments if self.is_in_fragments else 1
        self._add(sums)
        self._run.advance(cursor=self._cursor(), done=self._bounded(self._passed), messages=messages, bytes_=bytes_)

    def finish(self) -> None:
        """Tell of the names and patterns that no stream has, as skipped, and that all else is done."""
        for name, reason in self.choice.missing:
            self._run.skip(f"stream {name!r}", 1, reason)
        for pattern in self.choice.unmatched(self._table):
            self._run.skip(f"pattern {pattern!r}", 1, f"no stream in vhost {self.choice.vhost!r} matches")
        total = self._run.progress.total
        self._run.advance(done=self._run.progress.done if total is None else total)

    def _add(self, sums: Mapping[str, int]) -> None:
        for name, count in sums.items():
            self._sums[name] = self._sums.get(name, 0) + count

    def _bounded(self, done: int) -> int:
        """Return no more than the total: what was archived since it was counted is in none of it."""
        total = self._run.progress.total
        return done if total is None else min(done, total)

    def _cursor(self) -> dict[str, Any]:
        cursor: dict[str, Any] = {"after": self._after, "passed": self._passed, "unit": self._unit}
        return cursor | {"within": dict(self._within), "sums": dict(self._sums)}
