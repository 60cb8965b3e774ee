"""One slice of a job: as much of it as fits the time that a Lambda has. The next message goes on from its cursor.

Who may run a job is decided by the lease, as among workers. But a Lambda has no memory in which it could see a beat
stand still. So it goes by the time until which the lease says it lasts, and only by that of another Lambda: both go by
AWS's clock. If that is wrong, because a Lambda was held up between renewals, two may believe that they have the job for
a moment. That does no harm: every write of a job is conditional on its revision, and says its epoch. The earlier one's
next write is refused, it stops by its own clock at its next safe place, and what it does to the archive until then is
safe beside any other writer. Of an erasure there is one, whoever begins it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from coldstream.dispatch.job_queue import JobQueue
from coldstream.errors import SliceError
from coldstream.flow.boot_clock import boot_time_s
from coldstream.jobs.attempt import acquire, run_attempt
from coldstream.jobs.job import Job, JobState, Lease
from coldstream.jobs.run import Interrupted, JobRun, RunEnd
from coldstream.jobs.specs import JobKind
from coldstream.jobs.store import JobStore
from coldstream.units import TimestampMs
from coldstream.upkeep.archive import UpkeepArchive
from coldstream.upkeep.kinds import UPKEEP_KINDS, UpkeepKind

LAMBDA_PREFIX = "lambda:"
"""The names of Lambdas as workers begin with this."""

LEASE_S = 30.0
KEEP_EVERY_S = 5.0
MARGIN_MS = 15_000
"""What a lease is over by before another Lambda takes the job: AWS's clock is heard up to two seconds late."""

STOP_BEFORE_MS = 60_000
"""Time that is left when a slice begins nothing more: a step that is under way is given up, and begun anew."""


class MessageOutcome(StrEnum):
    """What became of a message."""

    RAN = "ran"
    GONE = "gone"
    """The job was deleted, or has ended."""
    NOT_DUE = "not due"
    """It is paused, or waits until later."""
    TAKEN = "taken"
    """Another has it, or was faster."""
    NOT_OURS = "not for a Lambda"


@dataclass(frozen=True, slots=True)
class SliceReport:
    """What became of a message, and of the job if it ran: `job` is as it is then, None if another has it.

    `has_failed` tells that a run of it has ended by that, and failed.
    """

    outcome: MessageOutcome
    job: Job | None = None
    is_continued: bool = False
    has_failed: bool = False


def is_over(lease: Lease, now: TimestampMs) -> bool:
    """Tell whether the lease of a Lambda is over, by AWS's clock. That of another worker never is."""
    return lease.worker.startswith(LAMBDA_PREFIX) and now > lease.until + MARGIN_MS


def run_slice(
    store: JobStore,
    archive: UpkeepArchive,
    queue: JobQueue,
    job_id: str,
    *,
    worker: str,
    remaining_ms: Callable[[], int],
    kinds: Mapping[JobKind, UpkeepKind] = UPKEEP_KINDS,
) -> SliceReport:
    """Run a job until it ends, waits, or time is short; in the last case send the message that continues it.

    `worker` is this Lambda's name without the prefix. Raises UnavailableError if table or queue do not answer: the
    message comes again then, and the tick looks for the job, too.
    """
    job = store.find(job_id)
    if job is None or job.state.has_ended:
        return SliceReport(MessageOutcome.GONE)
    if job.kind not in kinds or job.spec.runner not in {"auto", "lambda"}:
        return SliceReport(MessageOutcome.NOT_OURS)
    is_dead = job.state is JobState.RUNNING
    if is_dead and (job.lease is None or not is_over(job.lease, store.now())):
        return SliceReport(MessageOutcome.TAKEN)
    if not is_dead and not job.is_due(store.now()):
        return SliceReport(MessageOutcome.NOT_DUE)
    began = boot_time_s()
    name = f"{LAMBDA_PREFIX}{worker}"
    taken = acquire(store, job, name, is_dead=is_dead, lease_s=LEASE_S, now=store.now)
    if taken is None:
        return SliceReport(MessageOutcome.TAKEN)
    is_short = lambda: remaining_ms() < STOP_BEFORE_MS  # noqa: E731
    after = run_attempt(
        store,
        taken,
        lambda run: _sliced(run, kinds[run.spec.kind], archive, is_short),
        worker_stops=is_short,
        now=store.now,
        keep_every_s=KEEP_EVERY_S,
        leased_since=began,
    )
    is_continued = after is not None and after.state is JobState.WAITING and after.is_due(store.now())
    if is_continued:
        queue.send(job_id)
    has_failed = after is not None and after.failed_runs > job.failed_runs
    return SliceReport(MessageOutcome.RAN, after, is_continued, has_failed)


def _sliced(run: JobRun, kind: UpkeepKind, archive: UpkeepArchive, is_short: Callable[[], bool]) -> RunEnd:
    """Run a kind. Raises SliceError if time was up before it got any further: the next slice would not, either."""
    before = run.cursor, run.progress
    end = kind(run, archive)
    if isinstance(end, Interrupted) and is_short() and run.job.wish is None and (run.cursor, run.progress) == before:
        raise SliceError("the time of a Lambda was too short for the next step: a job with the runner worker has more")
    return end
