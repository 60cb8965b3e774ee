"""What a worker counts, as Prometheus reads it.

coldstream_jobs{kind,state}                      open jobs of the archive, as this worker saw them last
coldstream_worker_running{kind}                  jobs that this worker runs
coldstream_worker_ended_total{kind,state}        attempts that have ended here, by what the job was after them
coldstream_worker_messages_total{kind}           what its jobs have dealt with, as all that follows
coldstream_worker_bytes_total{kind}
coldstream_worker_failures_total{kind}
coldstream_worker_skipped_total{kind}
coldstream_worker_lag_seconds{kind,job_id}          of each job that goes on and says so
coldstream_worker_looked_seconds                 since the last look at the table that succeeded
coldstream_worker_table_failures_total           looks that failed
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from coldstream.jobs.job import Job, JobState
from coldstream.jobs.run import JobRun
from coldstream.jobs.specs import JobKind

_OPEN = (JobState.CREATED, JobState.RUNNING, JobState.PAUSED, JobState.WAITING)
_LOST = "lost"
"""Of a job that is another worker's now, or of which nobody knows."""


@dataclass(frozen=True, slots=True)
class _Amounts:
    messages: int = 0
    bytes: int = 0
    failures: int = 0
    skipped: int = 0

    @classmethod
    def of(cls, run: JobRun) -> _Amounts:
        progress = run.progress
        return cls(progress.messages, progress.bytes, progress.failures, run.skipped.count)

    def minus(self, other: _Amounts) -> _Amounts:
        # A run that begins anew counts from 0 again.
        return _Amounts(
            max(0, self.messages - other.messages),
            max(0, self.bytes - other.bytes),
            max(0, self.failures - other.failures),
            max(0, self.skipped - other.skipped),
        )


class WorkerMetrics:
    """The counts of one worker. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: Counter[tuple[str, str]] = Counter()
        self._ended: Counter[tuple[str, str]] = Counter()
        self._totals: Counter[tuple[str, str]] = Counter()
        self._running: dict[int, tuple[JobRun, _Amounts]] = {}
        self._table_failures = 0
        self._looked_at = self._turned_at = time.monotonic()
        self.problem: str | None = None

    @property
    def looked_s(self) -> float:
        """Seconds since the last look at the table that succeeded."""
        return time.monotonic() - self._looked_at

    @property
    def turned_s(self) -> float:
        """Seconds since the last look at the table, whatever came of it."""
        return time.monotonic() - self._turned_at

    def seen(self, jobs: Iterable[Job]) -> None:
        """Take over which jobs are open."""
        with self._lock:
            self._jobs = Counter((job.kind.value, job.state.value) for job in jobs)

    def looked(self) -> None:
        """Note that the table was read."""
        self._looked_at = self._turned_at = time.monotonic()
        self.problem = None

    def table_failed(self, problem: str) -> None:
        """Count a look that failed."""
        with self._lock:
            self._table_failures += 1
            self._turned_at = time.monotonic()
        self.problem = problem

    def ended(self, job: Job, after: Job | None) -> None:
        """Count an attempt that has ended, None if it was not written how."""
        with self._lock:
            self._ended[job.kind.value, _LOST if after is None else after.state.value] += 1
            if after is not None:
                # What the end itself added, such as the failure that ended it.
                failed = after.state is JobState.FAILED
                self._totals["failures", job.kind.value] += failed

    @contextmanager
    def following(self, run: JobRun) -> Iterator[None]:
        """Count what a run does while the block runs."""
        with self._lock:
            self._running[id(run)] = (run, _Amounts.of(run))
        try:
            yield
        finally:
            with self._lock:
                _, before = self._running.pop(id(run))
                self._add(self._totals, run, before)

    def text(self) -> str:
        """Return everything."""
        with self._lock:
            totals = Counter(self._totals)
            for run, before in self._running.values():
                self._add(totals, run, before)
            running = [run for run, _ in self._running.values()]
            lines = ["# TYPE coldstream_jobs gauge"]
            for kind in JobKind:
                for state in _OPEN:
                    count = self._jobs[kind.value, state.value]
                    lines.append(f'coldstream_jobs{{kind="{kind.value}",state="{state.value}"}} {count}')
            lines.append("# TYPE coldstream_worker_ended_total counter")
            for (name, after), count in sorted(self._ended.items()):
                lines.append(f'coldstream_worker_ended_total{{kind="{name}",state="{after}"}} {count}')
            failures = self._table_failures
        lines.append("# TYPE coldstream_worker_running gauge")
        for kind in JobKind:
            count = sum(run.job.kind is kind for run in running)
            lines.append(f'coldstream_worker_running{{kind="{kind.value}"}} {count}')
        for what in ("messages", "bytes", "failures", "skipped"):
            lines.append(f"# TYPE coldstream_worker_{what}_total counter")
            lines += [
                f'coldstream_worker_{what}_total{{kind="{kind.value}"}} {totals[what, kind.value]}' for kind in JobKind
            ]
        lines.append("# TYPE coldstream_worker_lag_seconds gauge")
        for run in running:
            if run.progress.lag_ms is not None:
                labels = f'kind="{run.job.kind.value}",job_id="{run.job.id}"'
                lines.append(f"coldstream_worker_lag_seconds{{{labels}}} {run.progress.lag_ms / 1000:.3f}")
        lines += [
            "# TYPE coldstream_worker_looked_seconds gauge",
            f"coldstream_worker_looked_seconds {self.looked_s:.3f}",
            "# TYPE coldstream_worker_table_failures_total counter",
            f"coldstream_worker_table_failures_total {failures}",
        ]
        return "\n".join(lines) + "\n"

    @staticmethod
    def _add(totals: Counter[tuple[str, str]], run: JobRun, before: _Amounts) -> None:
        new = _Amounts.of(run).minus(before)
        for what in ("messages", "bytes", "failures", "skipped"):
            totals[what, run.job.kind.value] += getattr(new, what)
