"""One attempt of a job by one worker: taken, run under a lease that is kept, and let go of with what became of it."""

from __future__ import annotations

import logging
import secrets
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from coldstream.errors import ColdstreamError, LeaseLostError, LostRaceError
from coldstream.flow.boot_clock import boot_time_s
from coldstream.jobs import changes
from coldstream.jobs.job import Job, JobState
from coldstream.jobs.run import Finished, Interrupted, JobRun, RunEnd, WaitsUntil
from coldstream.jobs.specs import is_same_work
from coldstream.jobs.store import JobStore
from coldstream.units import TimestampMs, format_timestamp, now_ms

LEASE_S = 15.0
KEEP_EVERY_S = 2.0
FIRST_RETRY_MS = 2_000
MAX_RETRY_MS = 300_000

Kind = Callable[[JobRun], RunEnd]
"""Does a job's work. It raises ColdstreamError if it fails: one that is retryable is tried again after a pause."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SeenLease:
    """A lease as a watcher saw it: which beat of which epoch, since when by its own clock."""

    epoch: int
    beat: int
    since: float


class LeaseWatch:
    """What one worker has seen of the others' leases. No clock is compared with another one.

    A lease whose beat stands still for longer than it lasts is over: its worker knows by its own clock that it may not
    go on, and if it tries, the epoch is another.
    """

    PATIENCE = 1.25
    """Leases that a beat may stand still. What is more than one allows for clocks that differ in rate."""

    def __init__(self, clock: Callable[[], float] = boot_time_s) -> None:
        self._clock = clock
        self._seen: dict[str, SeenLease] = {}

    def is_dead(self, job: Job) -> bool:
        """Take note of a job that was just read; tell whether its worker is known to be gone."""
        lease = job.lease
        if job.state is not JobState.RUNNING or lease is None:
            self._seen.pop(job.id, None)
            return False
        now = self._clock()
        seen = self._seen.get(job.id)
        if seen is None or (seen.epoch, seen.beat) != (job.epoch, lease.beat):
            self._seen[job.id] = SeenLease(job.epoch, lease.beat, now)
            return False
        return now - seen.since > lease.length_ms / 1000 * self.PATIENCE

    def keep_only(self, job_ids: set[str]) -> None:
        """Forget all other jobs."""
        self._seen = {job_id: seen for job_id, seen in self._seen.items() if job_id in job_ids}


def acquire(
    store: JobStore,
    job: Job,
    worker: str,
    *,
    is_dead: bool = False,
    lease_s: float = LEASE_S,
    now: Callable[[], TimestampMs] = now_ms,
) -> Job | None:
    """Take a job as it was read: one that is due, or with `is_dead` one whose worker is gone; None if that is not so.

    What was asked for while nobody had it is done at once, and one that its workers died of too often has failed:
    then the answer is None, too. Cost: one transaction. Raises UnavailableError, OutcomeUnknownError.
    """
    if is_dead:
        if job.state is not JobState.RUNNING or job.lease is None:
            return None
        told = f"{job.lease.worker} is gone; {worker} takes over"
    else:
        if not job.is_due(now()):
            return None
        told = f"{worker} begins" if not job.epoch else f"{worker} goes on"
    # By chance: if no answer comes, what is there must not be what another worker of the same name wrote.
    beat = secrets.randbits(48)
    after = changes.acquired(job, worker, round(lease_s * 1000), now(), first_beat=beat)
    if job.wish is not None:
        after = changes.interrupted(after, now())
        told = f"{after.state}, as was asked"
    elif is_dead and job.attempts >= job.spec.max_attempts:
        reason = f"its worker died {job.attempts} times in a row without progress; the last one was {job.lease.worker}"  # type: ignore[union-attr]
        after = changes.failed(after, reason, now())
        told = f"{after.state}: {reason}"
    try:
        taken = store.write(job, after, [(now(), told)])
    except LostRaceError:
        return None
    return taken if taken.state is JobState.RUNNING else None


def run_attempt(
    store: JobStore,
    job: Job,
    kind: Kind,
    *,
    worker_stops: Callable[[], bool] = lambda: False,
    now: Callable[[], TimestampMs] = now_ms,
    keep_every_s: float = KEEP_EVERY_S,
    leased_since: float | None = None,
) -> Job | None:
    """Run a job that was acquired, and write how the attempt ended; return that, None if another has the job.

    `leased_since` is the worker's clock (`boot_time_s`) before it acquired the job. Raises UnavailableError or
    OutcomeUnknownError if the table cannot be told: the lease ends then, and another attempt goes on at the cursor.
    """
    run = JobRun(store, job, worker_stops=worker_stops, now=now, leased_since=leased_since)
    try:
        with _kept(run, keep_every_s):
            change, line = _run(run, kind, now)
        return run.finish(change, line)
    except LeaseLostError as err:
        _LOG.warning("%s", err)
        return None


def _run(run: JobRun, kind: Kind, now: Callable[[], TimestampMs]) -> tuple[Callable[[Job], Job], str]:
    """Run the kind, and return how the job changes at the end of this attempt, and what its log says of that."""
    while True:
        try:
            end = kind(run)
            if not isinstance(end, RunEnd):
                raise TypeError(f"a run ended with {end!r:.100}")
        except LeaseLostError:
            raise
        except ColdstreamError as err:
            return _failed(run, err, now)
        except Exception as err:  # noqa: BLE001  a defect of ours or of a library: the job must not stay without an end
            _LOG.error("a job's run failed", exc_info=err, extra={"job": run.job.id})
            run.say("".join(traceback.format_exception(err))[-1800:])
            return _given_up(f"{type(err).__name__}: {err}", now)
        if isinstance(end, Interrupted) and run.is_leased() and run.is_edited() and run.job.wish is None:
            run.restart()
            run.say("goes on as edited")
            continue
        return _ended(run, end, now)


def _ended(run: JobRun, end: RunEnd, now: Callable[[], TimestampMs]) -> tuple[Callable[[Job], Job], str]:
    def unless_edited(change: Callable[[Job], Job]) -> Callable[[Job], Job]:
        # An edit may come until the end is written. Whoever made it was told that the job goes on with it.
        return lambda job: change(job) if is_same_work(job.spec, run.spec) else changes.interrupted(job, now())

    match end:
        case Finished():
            line = f"the run is done. {end.note}".strip()
            return unless_edited(lambda job: changes.succeeded(job, now())), line
        case WaitsUntil():
            line = f"waits until {format_timestamp(end.until)}: {end.reason}"
            return unless_edited(lambda job: changes.waits(job, end.until, end.reason, now(), is_failure=False)), line
        case Interrupted():
            return lambda job: changes.interrupted(job, now()), _interruption(run)


def _interruption(run: JobRun) -> str:
    wish = run.job.wish
    return "let go of, for another worker" if wish is None else f"stopped: {wish} was asked"


def _given_up(reason: str, now: Callable[[], TimestampMs]) -> tuple[Callable[[Job], Job], str]:
    return lambda job: changes.failed(job, reason, now()), f"failed: {reason}"


def _failed(run: JobRun, err: ColdstreamError, now: Callable[[], TimestampMs]) -> tuple[Callable[[Job], Job], str]:
    """Try again later, with growing pauses, if that may help and was not done too often."""
    advice = "".join(f" ({note})" for note in getattr(err, "__notes__", ()))
    reason = f"{err}{advice}"
    if not err.retryable:
        return _given_up(reason, now)
    run.advance(failures=1)

    def again(job: Job) -> Job:
        if job.attempts >= job.spec.max_attempts:
            return changes.failed(job, f"{reason}; tried {job.attempts} times without progress", now())
        pause = min(FIRST_RETRY_MS * 2 ** (job.attempts - 1), MAX_RETRY_MS)
        until = TimestampMs(now() + pause)
        told = f"attempt {job.attempts} of {job.spec.max_attempts} failed: {reason}"
        return changes.waits(job, until, told, now(), is_failure=True)

    return again, f"an attempt failed: {reason}"


@contextmanager
def _kept(run: JobRun, every_s: float) -> Iterator[None]:
    """Write how far a run is, and renew its lease, in a thread of its own until the block ends."""
    ended = threading.Event()
    lease_s = run.job.lease.length_ms / 1000 if run.job.lease is not None else LEASE_S

    def keep() -> None:
        while not ended.wait(min(every_s, lease_s / 3)):
            try:
                run.checkpoint()
            except LeaseLostError:
                return
            except ColdstreamError as err:
                # The lease may outlast it. If not, `should_stop` says so.
                _LOG.warning("could not write how far job %s is: %s", run.job.id, err)
            except Exception:  # noqa: BLE001  a thread that ended in silence would let the lease run out
                _LOG.exception("could not write how far job %s is", run.job.id)

    keeper = threading.Thread(target=keep, name=f"lease of {run.job.id}", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join()
