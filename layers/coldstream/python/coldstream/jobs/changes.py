"""How a job changes: what people ask of it, and what becomes of it under a worker. Pure.

Each function takes a job and returns the one that it becomes. It raises JobStateError where that cannot be, and says
what can.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from coldstream.errors import JobStateError
from coldstream.jobs.job import Job, JobProgress, JobState, Lease, Skipped, Wish
from coldstream.jobs.schedule import Schedule
from coldstream.jobs.short_text import short_text
from coldstream.jobs.specs import edited
from coldstream.units import TimestampMs

MAX_REASON = 2000
MAX_REASON_BYTES = 8000
TOLD = 3
"""So many of the skipped are in the reason; the job names more."""


def paused(job: Job, now: TimestampMs) -> Job:
    """Pause a job, or ask its worker to."""
    _check_open(job, "cannot be paused")
    if job.wish is Wish.CANCEL:
        raise JobStateError(job.id, "is being cancelled")
    if job.state is JobState.RUNNING:
        return replace(job, wish=Wish.PAUSE, changed_at=now)
    return replace(job, state=JobState.PAUSED, changed_at=now)


def resumed(job: Job, now: TimestampMs) -> Job:
    """Let a paused job go on, or a failed one try again, from its cursor. A pause that was only asked for is undone."""
    if job.state is JobState.RUNNING and job.wish is Wish.PAUSE:
        return replace(job, wish=None, changed_at=now)
    if job.state is JobState.PAUSED:
        # A schedule's next run stays where it was.
        return replace(job, state=JobState.WAITING, next_at=max(now, job.next_at or now), changed_at=now)
    if job.state is JobState.FAILED:
        # What was skipped before the cursor is not met again, and stays counted.
        return replace(job, state=JobState.WAITING, next_at=now, attempts=0, reason="", ended_at=None, changed_at=now)
    can = "create it again" if job.state.has_ended else "only paused and failed jobs can"
    raise JobStateError(job.id, f"is {job.state} and cannot be resumed: {can}")


def cancelled(job: Job, now: TimestampMs) -> Job:
    """Cancel a job, or ask its worker to."""
    _check_open(job, "cannot be cancelled")
    if job.state is JobState.RUNNING:
        return replace(job, wish=Wish.CANCEL, changed_at=now)
    return replace(job, state=JobState.CANCELLED, ended_at=now, next_at=None, changed_at=now)


def changed(job: Job, changes: Mapping[str, Any], now: TimestampMs) -> Job:
    """Edit some fields of a job; a running one goes on with them from its next safe place. Raises InvalidInputError.

    One that failed is edited, too, before it is tried again: its end, say, or whether it may skip something.
    """
    if job.state is not JobState.FAILED:
        _check_open(job, "cannot be edited")
    spec = edited(job.spec, changes)
    if job.run_began_at is None and job.spec.schedule is not None:
        # Before a run of a schedule: an edit begins none.
        next_at = job.next_at
        if spec.schedule is not None and spec.schedule != job.spec.schedule:
            next_at = Schedule.parse(spec.schedule).next_after(now, now)
    else:
        # One that waits for what has changed, such as its end, looks at once.
        next_at = now if job.state is JobState.WAITING else job.next_at
    return replace(job, spec=spec, next_at=next_at, changed_at=now)


def check_deletable(job: Job) -> None:
    """Raise JobStateError for a job that has not ended."""
    if not job.state.has_ended:
        raise JobStateError(job.id, f"is {job.state} and cannot be deleted: cancel it first")


def acquired(job: Job, worker: str, lease_ms: int, now: TimestampMs, *, first_beat: int = 0) -> Job:
    """Give a job to a worker: the epoch rises, and no earlier worker can write it any more.

    A run that begins anew has no cursor. Whoever dies at a job without progress has spent an attempt of it.
    """
    lease = Lease(worker, lease_ms, first_beat, TimestampMs(now + lease_ms))
    return replace(
        _fresh_run(job, now) if job.run_began_at is None else job,
        state=JobState.RUNNING,
        epoch=job.epoch + 1,
        lease=lease,
        attempts=job.attempts + 1,
        next_at=None,
        changed_at=now,
    )


def succeeded(job: Job, now: TimestampMs) -> Job:
    """End a run that is done. What it skipped fails it, unless that is allowed."""
    if job.skipped.count and not job.spec.allow_skipped:
        more = len(job.skipped.named) - TOLD + job.skipped.others
        told = "; ".join((*job.skipped.named[:TOLD], *([f"and {more} more"] if more > 0 else [])))
        return failed(job, f"{job.skipped.count} skipped: {told}", now)
    if job.spec.schedule is not None:
        return _until_next_run(replace(job, runs=job.runs + 1, reason=""), job.spec.schedule, now)
    return replace(_released(job, now), state=JobState.SUCCEEDED, runs=job.runs + 1, reason="", ended_at=now)


def failed(job: Job, reason: str, now: TimestampMs) -> Job:
    """End a run that has failed. One with a schedule keeps the reason and waits for its next run."""
    told = replace(
        job,
        reason=short_text(reason[:MAX_REASON], MAX_REASON_BYTES),
        runs=job.runs + 1,
        failed_runs=job.failed_runs + 1,
    )
    if job.spec.schedule is not None:
        return _until_next_run(told, job.spec.schedule, now)
    return replace(_released(told, now), state=JobState.FAILED, ended_at=now)


def interrupted(job: Job, now: TimestampMs) -> Job:
    """Let go of a job in the midst of a run: as its wish says, or for another worker to go on."""
    free = replace(_released(job, now), attempts=max(0, job.attempts - 1))
    if job.wish is Wish.PAUSE:
        return replace(free, state=JobState.PAUSED)
    if job.wish is Wish.CANCEL:
        return replace(free, state=JobState.CANCELLED, ended_at=now)
    return replace(free, state=JobState.WAITING, next_at=now)


def waits(job: Job, until: TimestampMs, reason: str, now: TimestampMs, *, is_failure: bool) -> Job:
    """Let go of a job until then: to try again after a failure, or to look for more."""
    attempts = job.attempts if is_failure else 0
    if job.wish is not None:
        return interrupted(job, now)
    free = replace(_released(job, now), attempts=attempts, reason=short_text(reason[:MAX_REASON], MAX_REASON_BYTES))
    return replace(free, state=JobState.WAITING, next_at=until)


def _until_next_run(job: Job, schedule: str, now: TimestampMs) -> Job:
    began = now if job.run_began_at is None else job.run_began_at
    free = replace(
        _released(job, now),
        state=JobState.WAITING,
        next_at=Schedule.parse(schedule).next_after(began, now),
        cursor=MappingProxyType({}),
        attempts=0,
        run_began_at=None,
    )
    if job.wish is Wish.CANCEL:
        return replace(free, state=JobState.CANCELLED, ended_at=now, next_at=None)
    return replace(free, state=JobState.PAUSED) if job.wish is Wish.PAUSE else free


def _fresh_run(job: Job, now: TimestampMs) -> Job:
    """Forget what the run before counted, as a new one begins."""
    return replace(job, progress=JobProgress(), skipped=Skipped(), run_began_at=now)


def _released(job: Job, now: TimestampMs) -> Job:
    return replace(job, lease=None, wish=None, changed_at=now, runner_state="")


def _check_open(job: Job, cannot: str) -> None:
    if job.state.has_ended:
        raise JobStateError(job.id, f"has ended ({job.state}) and {cannot}")
