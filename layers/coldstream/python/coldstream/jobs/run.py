"""What a kind of job is given while it runs: its spec and cursor, and where it tells how far it is.

What is told is kept in memory. A thread of the attempt writes it about every third of the lease, with the epoch of the
lease in each write, and reads what people asked for meanwhile. Whoever cannot be sure of the lease any more stops.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coldstream.errors import LeaseLostError, LostRaceError, OutcomeUnknownError, UnavailableError
from coldstream.flow.boot_clock import boot_time_s
from coldstream.jobs.job import Job, JobProgress, JobState, Skipped, check_cursor
from coldstream.jobs.log_lines import MAX_LINES_AT_ONCE
from coldstream.jobs.specs import JobSpec
from coldstream.jobs.store import JobStore
from coldstream.retry import retrying
from coldstream.units import TimestampMs, now_ms

WRITE_ATTEMPTS = 8
FINISH_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Finished:
    """The run is done: all of it is at its target."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The run stopped at a safe place, because `should_stop` said so."""


@dataclass(frozen=True, slots=True)
class WaitsUntil:
    """The run has done all that there is, and is to look again at a time."""

    until: TimestampMs
    reason: str = ""


RunEnd = Finished | Interrupted | WaitsUntil
"""How a kind's run ended, if it did not raise."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that a run leaves out: what it is, how many of the run's unit, and why."""

    what: str
    count: int
    reason: str


class JobRun:
    """One attempt of a job by one worker. Its methods may be called from any thread.

    `should_stop` is cheap: call it at each safe place. `checkpoint` writes at once. A kind that sends where nobody can
    tell what is there twice calls `check_lease` before.
    """

    def __init__(
        self,
        store: JobStore,
        job: Job,
        *,
        worker_stops: Callable[[], bool] = lambda: False,
        now: Callable[[], TimestampMs] = now_ms,
        clock: Callable[[], float] = boot_time_s,
        leased_since: float | None = None,
    ) -> None:
        assert job.lease is not None
        self._store = store
        self._job = job
        self._spec = job.spec
        self._worker_stops = worker_stops
        self._now = now
        self._clock = clock
        self._lease_s = job.lease.length_ms / 1000
        self._leased_until = (clock() if leased_since is None else leased_since) + self._lease_s
        self._is_lost = False
        self._cursor: Mapping[str, Any] = job.cursor
        self._progress = job.progress
        self._skipped = job.skipped
        self._lines: list[tuple[TimestampMs, str]] = []
        self._left_out = 0
        self._values = threading.Lock()  # what is told; held for moments
        self._writing = threading.Lock()  # one write at a time, each over the one before

    @property
    def job(self) -> Job:
        """The job as it was last read or written."""
        return self._job

    @property
    def spec(self) -> JobSpec:
        """What this run is to do. An edit begins another run, with the same lease."""
        return self._spec

    @property
    def began_at(self) -> TimestampMs:
        """The moment that relative times of this run mean, the same in each attempt of it."""
        assert self._job.run_began_at is not None
        return self._job.run_began_at

    @property
    def cursor(self) -> Mapping[str, Any]:
        """Where the run is, in the kind's own words: what the last call of `advance` said, also before this attempt."""
        with self._values:
            return self._cursor

    @property
    def progress(self) -> JobProgress:
        """How far the run is."""
        with self._values:
            return self._progress

    @property
    def skipped(self) -> Skipped:
        """What the run has left out so far."""
        with self._values:
            return self._skipped

    def is_leased(self) -> bool:
        """Tell whether the job is certain to be this worker's at this moment."""
        return not self._is_lost and self._clock() < self._leased_until

    def check_lease(self) -> None:
        """Raise LeaseLostError unless the job is certain to be this worker's."""
        if not self.is_leased():
            raise LeaseLostError(self._job.id, self._job.epoch)

    def should_stop(self) -> bool:
        """Tell whether to stop at the next safe place: the worker ends, the lease may be over, or somebody asked."""
        return not self.is_leased() or self._job.wish is not None or self.is_edited() or self._worker_stops()

    def is_edited(self) -> bool:
        """Tell whether the spec has changed since this run began."""
        return self._job.spec != self._spec

    def advance(
        self,
        *,
        cursor: Mapping[str, Any] | None = None,
        done: int | None = None,
        total: int | None = None,
        unit: str | None = None,
        messages: int = 0,
        bytes_: int = 0,
        failures: int = 0,
        lag_ms: int | None = None,
        left_out: Sequence[LeftOut] = (),
    ) -> None:
        """Tell how far the run is. `cursor`, `done`, `total` and `lag_ms` replace, the others add.

        Cursor and counts of one call are written together, so give them in one call. `left_out` is as by `skip`: what
        lies before the cursor is then counted once, whenever the worker dies. Raises InvalidInputError for a cursor
        that is too large or no JSON.
        """
        # Checked and copied here: in the thread that writes it, nobody could tell the kind of it.
        copied = None if cursor is None else check_cursor(cursor)
        with self._values:
            now = self._progress
            new = self._leave_out(left_out)
            if copied is not None:
                self._cursor = copied
            self._progress = JobProgress(
                done=now.done if done is None else done,
                total=now.total if total is None else total,
                unit=now.unit if unit is None else unit,
                messages=now.messages + messages,
                bytes=now.bytes + bytes_,
                failures=now.failures + failures,
                lag_ms=now.lag_ms if lag_ms is None else lag_ms,
            )
        self._say_left_out(new)

    def skip(self, what: str, count: int, reason: str) -> None:
        """Tell of something that is left out: what it is, how many of the run's unit, and why.

        It fails the job in the end, unless the job allows it. The same thing told again counts once.
        """
        with self._values:
            new = self._leave_out([LeftOut(what, count, reason)])
        self._say_left_out(new)

    def _leave_out(self, left_out: Sequence[LeftOut]) -> list[LeftOut]:
        """Count what is left out, and return what was not counted before; under the lock."""
        new: list[LeftOut] = []
        for one in left_out:
            before = self._skipped
            self._skipped = before.plus(one.what, one.count, one.reason)
            if self._skipped != before:
                new.append(one)
        return new

    def _say_left_out(self, new: Sequence[LeftOut]) -> None:
        for one in new:
            self.say(f"skipped {one.count}: {one.what}: {one.reason}")

    def say(self, text: str) -> None:
        """Add a line to the job's log. It is written with the next write."""
        with self._values:
            if len(self._lines) < MAX_LINES_AT_ONCE:
                self._lines.append((self._now(), text))
            else:
                self._left_out += 1

    def checkpoint(self) -> None:
        """Write how far the run is, and renew the lease. Cost: one PUT, or a transaction with lines of the log.

        Raises LeaseLostError if another worker has the job; UnavailableError, OutcomeUnknownError.
        """
        with self._writing:
            self._write(lambda job: job)

    def finish(self, change: Callable[[Job], Job], line: str) -> Job:
        """Write how the attempt ended, with all that was told, and try that for as long as the lease holds.

        Else the table's trouble of a moment would make another worker count a death. Raises LeaseLostError,
        UnavailableError, OutcomeUnknownError.
        """
        with self._values:
            self._lines.append((self._now(), line))  # whatever else is left out
        calls = retrying(self._may_finish, attempts=FINISH_ATTEMPTS, first_delay_s=0.2, max_delay_s=1.0)
        with self._writing:
            return calls(lambda: self._write(change))

    def _may_finish(self, err: Exception) -> bool:
        return isinstance(err, UnavailableError | OutcomeUnknownError | LostRaceError) and self.is_leased()

    def restart(self) -> None:
        """Go on with an edited spec."""
        self._spec = self._job.spec

    def _write(self, change: Callable[[Job], Job]) -> Job:
        again = (LostRaceError, OutcomeUnknownError)
        calls = retrying(again, attempts=WRITE_ATTEMPTS, first_delay_s=0.02, max_delay_s=0.5)
        return calls(lambda: self._write_once(change))

    def _write_once(self, change: Callable[[Job], Job]) -> Job:
        began = self._clock()
        with self._values:
            lines = list(self._lines)
            if self._left_out:
                lines.append((self._now(), f"{self._left_out} lines were left out here"))
            told = (self._cursor, self._progress, self._skipped)
            count, left_out = len(self._lines), self._left_out
        try:
            after = self._store.write(self._job, change(self._beaten(self._job, *told)), lines)
        except LostRaceError:
            self._look_again()
            raise
        self._job = after
        with self._values:
            del self._lines[:count]
            self._left_out -= left_out
        self._leased_until = began + self._lease_s
        return after

    def _look_again(self) -> None:
        """Take over what somebody else wrote. Raises LeaseLostError if the job is another worker's."""
        there = self._store.find(self._job.id)
        mine = self._job.lease
        assert mine is not None
        if (
            there is None
            or there.epoch != self._job.epoch
            or there.lease is None
            or there.state is not JobState.RUNNING
        ):
            self._is_lost = True
            raise LeaseLostError(self._job.id, self._job.epoch)
        self._job = there

    def _beaten(self, job: Job, cursor: Mapping[str, Any], progress: JobProgress, skipped: Skipped) -> Job:
        lease = job.lease
        if self._is_lost or lease is None:
            raise LeaseLostError(job.id, job.epoch)
        now = self._now()
        has_progressed = cursor != job.cursor or progress.done > job.progress.done
        return replace(
            job,
            lease=replace(lease, beat=lease.beat + 1, until=TimestampMs(now + lease.length_ms)),
            cursor=cursor,
            progress=progress,
            skipped=skipped,
            attempts=1 if has_progressed else job.attempts,
        )
