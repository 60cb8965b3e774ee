"""Each change of state, for each kind of job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import JobStateError
from coldstream.jobs import changes
from coldstream.jobs.job import Job, JobState, Lease, Skipped, Wish
from coldstream.jobs.specs import JobKind, parse_spec
from coldstream.units import TimestampMs
from tests.jobs.test_specs import LEAST

NOW = TimestampMs(1_800_000_000_000)
LATER = TimestampMs(NOW + 5000)
ENDED = [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED]


def job(kind: JobKind, state: JobState = JobState.CREATED, **fields: object) -> Job:
    lease = Lease("worker-1", 15_000, 0, NOW) if state is JobState.RUNNING else None
    spec = parse_spec({"kind": kind.value, **LEAST[kind]})
    return replace(Job("1", spec, NOW, state=state, lease=lease, attempts=1), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", JobKind)
def test_a_job_that_nobody_has_is_paused_resumed_and_cancelled_at_once(kind: JobKind) -> None:
    for state in (JobState.CREATED, JobState.WAITING):
        paused = changes.paused(job(kind, state), NOW)
        assert paused.state is JobState.PAUSED
        assert not paused.is_due(LATER)
        resumed = changes.resumed(paused, NOW)
        assert resumed.state is JobState.WAITING
        assert resumed.is_due(LATER)
        assert changes.cancelled(resumed, NOW).state is JobState.CANCELLED
        assert changes.cancelled(paused, NOW).ended_at == NOW


@pytest.mark.parametrize("kind", JobKind)
def test_what_is_asked_of_a_running_job_is_done_when_its_worker_lets_go(kind: JobKind) -> None:
    running = job(kind, JobState.RUNNING)
    pausing, cancelling = changes.paused(running, NOW), changes.cancelled(running, NOW)
    assert (pausing.state, pausing.wish) == (JobState.RUNNING, Wish.PAUSE)
    assert changes.interrupted(pausing, LATER).state is JobState.PAUSED
    assert changes.interrupted(cancelling, LATER).state is JobState.CANCELLED
    assert changes.resumed(pausing, LATER).wish is None
    with pytest.raises(JobStateError, match="being cancelled"):
        changes.paused(cancelling, NOW)


@pytest.mark.parametrize("kind", JobKind)
@pytest.mark.parametrize("state", ENDED)
def test_a_job_that_has_ended_is_only_deleted_or_tried_again(kind: JobKind, state: JobState) -> None:
    ended = job(kind, state)
    for change in (changes.paused, changes.cancelled):
        with pytest.raises(JobStateError, match="has ended"):
            change(ended, NOW)
    if state is not JobState.FAILED:
        with pytest.raises(JobStateError, match="has ended"):
            changes.changed(ended, {"name": "x"}, NOW)
    changes.check_deletable(ended)
    if state is JobState.FAILED:
        again = changes.resumed(replace(ended, cursor={"at": 7}), NOW)
        assert (again.state, again.attempts, again.cursor) == (JobState.WAITING, 0, {"at": 7})
    else:
        with pytest.raises(JobStateError, match="create it again"):
            changes.resumed(ended, NOW)


@pytest.mark.parametrize("kind", JobKind)
@pytest.mark.parametrize("state", sorted(set(JobState) - set(ENDED)))
def test_a_job_that_has_not_ended_is_not_deleted(kind: JobKind, state: JobState) -> None:
    with pytest.raises(JobStateError, match="cancel it first"):
        changes.check_deletable(job(kind, state))


@pytest.mark.parametrize("kind", JobKind)
def test_a_run_is_taken_done_and_fails(kind: JobKind) -> None:
    taken = changes.acquired(job(kind), "worker-2", 15_000, LATER)
    assert (taken.state, taken.epoch, taken.run_began_at) == (JobState.RUNNING, 1, LATER)
    assert changes.succeeded(taken, LATER).state is JobState.SUCCEEDED
    failed = changes.failed(taken, "no such stream", LATER)
    assert (failed.state, failed.reason, failed.lease) == (JobState.FAILED, "no such stream", None)


@pytest.mark.parametrize("kind", JobKind)
def test_what_was_skipped_fails_a_job_that_does_not_allow_it(kind: JobKind) -> None:
    taken = changes.acquired(job(kind), "worker-2", 15_000, LATER)
    taken = replace(taken, skipped=Skipped().plus("offsets 5 to 9", 5, "never archived"))
    failed = changes.succeeded(taken, LATER)
    assert failed.state is JobState.FAILED
    assert failed.reason == "5 skipped: offsets 5 to 9: never archived"
    allowed = replace(taken, spec=taken.spec.model_copy(update={"allow_skipped": True}))
    assert changes.succeeded(allowed, LATER).state is JobState.SUCCEEDED


@pytest.mark.parametrize("kind", JobKind)
def test_a_schedule_goes_on_after_a_run_that_was_done_or_failed(kind: JobKind) -> None:
    spec = job(kind).spec.model_copy(update={"schedule": "every 1h"})
    taken = changes.acquired(replace(job(kind), spec=spec), "worker-2", 15_000, NOW)
    taken = replace(taken, cursor={"at": 1})
    done = changes.succeeded(taken, LATER)
    assert (done.state, done.next_at, done.runs, done.cursor) == (JobState.WAITING, NOW + 3_600_000, 1, {})
    failed = changes.failed(taken, "broken", LATER)
    assert (failed.state, failed.reason, failed.failed_runs) == (JobState.WAITING, "broken", 1)
    assert changes.succeeded(replace(taken, wish=Wish.PAUSE), LATER).state is JobState.PAUSED
    assert changes.succeeded(replace(taken, wish=Wish.CANCEL), LATER).state is JobState.CANCELLED
    fresh = changes.acquired(replace(done, skipped=Skipped(3)), "worker-2", 15_000, LATER)
    assert (fresh.skipped, fresh.run_began_at) == (Skipped(), LATER)


@pytest.mark.parametrize("kind", JobKind)
def test_a_run_that_waits_keeps_its_cursor_and_its_moment(kind: JobKind) -> None:
    taken = replace(changes.acquired(job(kind), "worker-2", 15_000, NOW), cursor={"at": 3})
    waiting = changes.waits(taken, LATER, "nothing new", NOW, is_failure=False)
    assert not waiting.is_due(NOW)
    again = changes.acquired(waiting, "worker-3", 15_000, LATER)
    assert (again.cursor, again.run_began_at, again.epoch) == ({"at": 3}, NOW, 2)


def test_pausing_a_schedule_keeps_its_next_time() -> None:
    waiting = replace(job(JobKind.SCRUB, JobState.WAITING), next_at=LATER)
    assert changes.resumed(changes.paused(waiting, NOW), NOW).next_at == LATER


def test_an_edit_of_a_waiting_job_makes_it_look_at_once() -> None:
    waiting = replace(job(JobKind.LOAD, JobState.WAITING), next_at=LATER)
    assert changes.changed(waiting, {"end": "500"}, NOW).is_due(NOW)


def test_an_edit_between_two_runs_of_a_schedule_begins_none() -> None:
    spec = job(JobKind.RETENTION).spec.model_copy(update={"schedule": "every 1h"})
    taken = changes.acquired(replace(job(JobKind.RETENTION), spec=spec), "worker-2", 15_000, NOW)
    between = changes.succeeded(taken, LATER)
    assert changes.changed(between, {"name": "nightly"}, LATER).next_at == between.next_at
    assert changes.changed(between, {"schedule": "every 2h"}, LATER).next_at == LATER + 7_200_000
    assert changes.changed(between, {"schedule": None}, LATER).next_at == between.next_at
    pausing = changes.paused(between, LATER)
    assert changes.changed(pausing, {"schedule": "every 2h"}, LATER).next_at == LATER + 7_200_000
    assert changes.changed(pausing, {"schedule": "every 2h"}, LATER).state is JobState.PAUSED


@pytest.mark.parametrize("kind", JobKind)
def test_a_failed_job_is_allowed_to_skip_before_it_is_tried_again(kind: JobKind) -> None:
    taken = changes.acquired(job(kind), "worker-2", 15_000, NOW)
    skipping = replace(taken, skipped=Skipped().plus("offsets 5 to 9", 5, "never archived"))
    allowed = changes.changed(changes.succeeded(skipping, NOW), {"allow_skipped": True}, LATER)
    assert allowed.state is JobState.FAILED
    again = changes.acquired(changes.resumed(allowed, LATER), "worker-2", 15_000, LATER)
    assert changes.succeeded(again, LATER).state is JobState.SUCCEEDED
