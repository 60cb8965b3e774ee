"""Each change of state, for each kind of upkeep: asked for in the midst of a run, and while nobody has the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coldstream.errors import UnavailableError
from coldstream.jobs.job import Job, JobState
from coldstream.jobs.specs import JobKind
from coldstream.lifecycle.policies import set_policy
from coldstream.manifest.policy import Policy
from coldstream.upkeep.kinds import UPKEEP_KINDS
from tests.support.compacting import Calls
from tests.upkeep.world import UpkeepWorld

FIELDS: dict[JobKind, dict[str, Any]] = {
    JobKind.COMPACT: {"target_size": "64KiB"},
    JobKind.SCRUB: {"streams": ["*"]},
    JobKind.ERASE: {"stream": "orders.1", "key": "user-3", "reason": "ticket 4711"},
    JobKind.RETENTION: {},
}
KINDS = [pytest.param(kind, id=kind.value) for kind in UPKEEP_KINDS]


def test_every_kind_of_upkeep_is_here() -> None:
    assert set(FIELDS) == set(UPKEEP_KINDS)


def world_of() -> UpkeepWorld:
    world = UpkeepWorld()
    for number in range(3):
        archive = world.stream(f"orders.{number}", 3, 3, 3)
        world.stores().control.write_stream(archive.stream)
    set_policy(world.stores(), Policy("small", "*/*", max_bytes=1))
    return world


def created(world: UpkeepWorld, kind: JobKind, **more: Any) -> Job:
    return world.create(kind.value, **FIELDS[kind], **more)


def in_the_midst(world: UpkeepWorld, job: Job, act: Callable[[], object]) -> Job:
    """Run a job that somebody does something to after its first safe place."""
    questions = iter(range(1000))

    def ask() -> bool:
        if next(questions) == 1:
            act()
        return False

    after = world.attempt(job.id, should_stop=ask, writes=lambda: True)
    assert after is not None
    return after


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_is_created_runs_and_succeeds(kind: JobKind) -> None:
    world = world_of()
    job = created(world, kind)
    assert job.state is JobState.CREATED
    after = world.finish(job.id)
    assert (after.state, after.runs, after.attempts) == (JobState.SUCCEEDED, 1, 1)
    assert after.lease is None
    assert "the run is done." in world.log(job.id)


@pytest.mark.parametrize("kind", KINDS)
def test_a_running_job_is_paused_and_resumed_at_its_cursor(kind: JobKind) -> None:
    world = world_of()
    job = created(world, kind)
    after = in_the_midst(world, job, lambda: world.jobs.pause(job.id))
    assert after.state is JobState.PAUSED
    assert world.attempt(job.id) is None
    cursor = after.cursor
    world.jobs.resume(job.id)
    assert world.jobs.get(job.id).cursor == cursor
    ended = world.finish(job.id)
    assert ended.state is JobState.SUCCEEDED
    assert ended.runs == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_running_job_is_cancelled_and_never_runs_again(kind: JobKind) -> None:
    world = world_of()
    job = created(world, kind)
    after = in_the_midst(world, job, lambda: world.jobs.cancel(job.id))
    assert after.state is JobState.CANCELLED
    assert world.attempt(job.id) is None
    assert "stopped: cancel was asked" in world.log(job.id)


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_nobody_has_is_paused_and_cancelled_at_once(kind: JobKind) -> None:
    world = world_of()
    job = created(world, kind)
    assert world.jobs.pause(job.id).state is JobState.PAUSED
    assert world.attempt(job.id) is None
    assert world.jobs.cancel(job.id).state is JobState.CANCELLED
    assert world.attempt(job.id) is None


@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_in_the_midst_of_a_run_changes_nothing_of_what_is_done(kind: JobKind) -> None:
    world = world_of()
    job = created(world, kind)
    after = in_the_midst(world, job, lambda: world.jobs.edit(job.id, {"name": "by night"}))
    assert after.state is JobState.SUCCEEDED, after.reason
    assert after.spec.name == "by night"
    assert "goes on as edited" in world.log(job.id)


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_attempt_is_tried_again_after_a_pause_and_too_many_fail_the_job(kind: JobKind) -> None:
    world = world_of()
    job = created(world, kind, max_attempts=2)

    def refuse(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  a callback
        if name == "head":
            raise UnavailableError("DynamoDB does not answer")

    for state in (JobState.WAITING, JobState.FAILED):
        after = world.attempt(job.id, calls=Calls(world.table, world.objects, refuse))
        assert after is not None
        assert after.state is state
        assert "DynamoDB does not answer" in after.reason
        world.clock.now = after.next_at or world.clock.now
    world.jobs.resume(job.id)
    assert world.finish(job.id).state is JobState.SUCCEEDED


@pytest.mark.parametrize("kind", KINDS)
def test_a_schedule_runs_it_again_and_again(kind: JobKind) -> None:
    world = world_of()
    job = created(world, kind, schedule="every 1h")
    for runs in (1, 2, 3):
        after = world.attempt(job.id)
        assert after is not None
        assert (after.state, after.runs, after.failed_runs) == (JobState.WAITING, runs, 0), after.reason
        assert dict(after.cursor) == {}
        assert world.attempt(job.id) is None
        world.clock.pass_ms(3600 * 1000)
    assert world.jobs.cancel(job.id).state is JobState.CANCELLED


@pytest.mark.parametrize("kind", KINDS)
def test_a_defect_fails_the_job_with_its_trace_in_the_log(kind: JobKind) -> None:
    world = world_of()
    job = created(world, kind)

    def break_down(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  a callback
        if name == "head":
            raise ZeroDivisionError("a defect")

    after = world.attempt(job.id, calls=Calls(world.table, world.objects, break_down))
    assert after is not None
    assert after.state is JobState.FAILED
    assert after.reason == "ZeroDivisionError: a defect"
    assert "raise ZeroDivisionError" in world.log(job.id)
