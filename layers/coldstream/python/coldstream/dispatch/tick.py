"""The tick: once a minute, somebody looks at all open jobs, and sees that each that is not a worker's goes on.

- one for a Lambda that is due gets a message, and so does one whose Lambda's lease is over;
- one for EMR that is due is started, and one that runs there is looked at;
- one that no runner can run as it asks is failed, or says why it waits.

Everything is safe to do twice and by several at once. What a tick does not come to, the next one does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from coldstream.dispatch.emr_jobs import EmrJobs, is_on_emr
from coldstream.dispatch.job_queue import JobQueue
from coldstream.dispatch.job_slice import is_over
from coldstream.dispatch.runner import AvailableRunners, Runner, check_runner, runner_of
from coldstream.errors import ColdstreamError, CorruptionError, RunnerError
from coldstream.jobs import changes
from coldstream.jobs.job import Job, JobState
from coldstream.jobs.store import JobStore
from coldstream.store.ports import ManifestReads
from coldstream.units import TimestampMs

MOST_JOBS = 5000
"""Open jobs that a tick looks at."""

LATEST = 200
"""Of the jobs that were created last, so many are read for how many of them have failed."""

MOST_PROBLEMS = 20


@dataclass(slots=True)
class TickReport:
    """What a tick saw and did.

    `states` counts the open jobs by state, and those among the latest 200 that have failed. The sums are of the present
    runs of open jobs; `lag_ms` is the greatest. `problems` are the first of those that the next tick meets again.
    """

    states: Counter[JobState] = field(default_factory=Counter)
    messages: int = 0
    bytes: int = 0
    failures: int = 0
    skipped: int = 0
    lag_ms: int | None = None
    sent: int = 0
    started: int = 0
    followed: int = 0
    failed: int = 0
    problems: list[str] = field(default_factory=list)

    def problem(self, text: str) -> None:
        """Take note of a problem."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(text)

    def see(self, job: Job) -> None:
        """Count an open job."""
        self.states[job.state] += 1
        self.messages += job.progress.messages
        self.bytes += job.progress.bytes
        self.failures += job.progress.failures
        self.skipped += job.skipped.count
        if job.progress.lag_ms is not None:
            self.lag_ms = max(self.lag_ms or 0, job.progress.lag_ms)


def tick(
    store: JobStore,
    table: ManifestReads,
    now: TimestampMs,
    queue: JobQueue | None,
    emr: EmrJobs | None,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    chosen: dict[str, Runner] | None = None,
) -> TickReport:
    """See that the jobs of Lambdas and of EMR go on; `queue` or `emr` is None where it is not configured.

    `now` is AWS's time. `chosen` is the caller's memory of who runs what, from one tick to the next: without it, the
    size of a job that waits for a worker is looked up each time. What fails for one job is told in the report, and the
    others go on.

    Cost: a Query a page of open jobs and a GetItem each; that of `size_of` for each that is due and leaves the choice;
    a message, or the requests of `EmrJobs`, for each that is to go on; a Query for the latest. Raises UnavailableError
    if the table or the queue does not answer.
    """
    report = TickReport()
    work = _Tick(store, table, now, queue, emr, report, {} if chosen is None else chosen)
    waiting: list[str] = []
    seen = 0
    for seen, job in enumerate(store.open_jobs(work.unreadable), 1):
        report.see(job)
        try:
            if work.handle(job):
                waiting.append(job.id)
        except ColdstreamError as err:
            report.problem(f"job {job.id}: {err}")
        if seen == MOST_JOBS or should_stop():
            break
    if queue is not None and waiting:
        # What waits in the queue is these jobs, as a rule: without this, one that waits long for its turn would be sent
        # again each minute.
        for job_id in waiting if queue.waiting() < len(waiting) else ():
            queue.send(job_id)
            report.sent += 1
    try:
        report.states[JobState.FAILED] = len(store.page(limit=LATEST, states={JobState.FAILED}).jobs)
    except CorruptionError as err:
        work.unreadable(err)
    return report


@dataclass(frozen=True, slots=True)
class _Tick:
    """What a tick does with each job."""

    store: JobStore
    table: ManifestReads
    now: TimestampMs
    queue: JobQueue | None
    emr: EmrJobs | None
    report: TickReport
    chosen: dict[str, Runner]

    def unreadable(self, err: CorruptionError) -> None:
        """Take note of a job that a later release wrote, or that is damaged."""
        self.report.problem(str(err))

    def handle(self, job: Job) -> bool:
        """Have a job go on; return whether a Lambda is to be called for it."""
        if is_on_emr(job):
            if self.emr is not None:
                self.report.followed += 1
                self._told(self.emr.follow(job))
            return False
        if job.state is JobState.RUNNING:
            return job.lease is not None and is_over(job.lease, self.now)
        if not job.is_due(self.now):
            return False
        match self._runner(job):
            case Runner.LAMBDA:
                return True
            case Runner.EMR if self.emr is not None:
                self.report.started += 1
                self._told(self.emr.start(job))
        return False

    def _runner(self, job: Job) -> Runner | None:
        """Return who runs a job that is due, None if nobody can."""
        available = AvailableRunners(self.queue is not None, self.emr is not None)
        try:
            check_runner(job.spec)
        except RunnerError as err:
            reason = str(err)
            self._told(
                self.store.update(job.id, lambda current: self._failed(current, reason), say=f"failed: {reason}")
            )
            return None
        run = f"{job.id} {job.runs}"
        try:
            if run not in self.chosen:
                if len(self.chosen) > MOST_JOBS:
                    self.chosen.clear()
                self.chosen[run] = runner_of(self.table, job.spec, available)
            return self.chosen[run]
        except RunnerError as err:
            # Another process may have what is missing here, so it waits, and says for what.
            reason = f"waits for a runner: {err}"
            if job.reason != reason:
                self.store.update(job.id, lambda current: replace(current, reason=reason), say=reason)
            return None

    def _failed(self, current: Job, reason: str) -> Job:
        return changes.failed(current, reason, self.now) if current.is_due(self.now) else current

    def _told(self, after: Job | None) -> None:
        if after is not None and after.state is JobState.FAILED:
            self.report.failed += 1


def gauges(report: TickReport) -> Mapping[JobState, int]:
    """Return the count of each state that a job can be in for long, those that no job is in included."""
    states = (JobState.CREATED, JobState.RUNNING, JobState.PAUSED, JobState.WAITING, JobState.FAILED)
    return {state: report.states[state] for state in states}
