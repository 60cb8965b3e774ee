"""Jobs: created by the command, run by a worker or by the function."""

from __future__ import annotations

import json
import time

import boto3
import pytest

from coldstream.jobs.attempt import LeaseWatch
from coldstream.jobs.job import Job, JobState
from coldstream.jobs.store import JobStore
from tests.faults.fault_acts import Act, ArgumentsOf, Outcome, command, function
from tests.faults.faulty_world import JOBS_QUEUE, FaultyWorld
from tests.faults.prepared_acts import pass_hours

_WORKER = command("worker", "--once", "--metrics", "-", more=lambda world: ("--state", str(world.scratch / "state")))


def open_queue(_: FaultyWorld) -> Outcome:
    """Create the queue of jobs that the environment names."""
    boto3.client("sqs").create_queue(QueueName=JOBS_QUEUE.rpartition("/")[2])
    return Outcome(b"")


def create_job(kind: str, *arguments: str, more: ArgumentsOf = lambda world: ()) -> Act:
    """Create a job, once however often this is done."""
    return command("jobs", "create", kind, "--idempotency-key", "a-key", "--by", "alice", *arguments, more=more)


def run_worker(create: Act) -> Act:
    """Return what runs a worker until nothing is due; that its job is not done is its problem then.

    `create` is how the job was created: it may have to be again.
    """

    def act(world: FaultyWorld) -> Outcome:
        is_another = "worker" in world.entered
        with world.network.in_order():
            _let_jobs_go_on(world, create)
        with pytest.MonkeyPatch.context() as patch:
            this_machine = time.time_ns
            patch.setattr(time, "time_ns", lambda: this_machine() + world.network.ahead_s * 1_000_000_000)
            if is_another:  # one that has looked long enough to know who is dead
                patch.setattr(LeaseWatch, "is_dead", lambda watch, job: job.state is JobState.RUNNING)
            outcome = _WORKER(world)
        return outcome if outcome.problem is not None else _unless_open(world, outcome)

    return act


def run_queued_job(create: Act) -> Act:
    """Return what invokes the function that runs jobs with a message about the one that there is."""

    def act(world: FaultyWorld) -> Outcome:
        with world.network.in_order():
            _let_jobs_go_on(world, create)
            (job,) = _jobs(world)
        record = {"messageId": "1", "body": json.dumps({"job": job.id})}
        outcome = function("job_runner", lambda _: {"Records": [record]})(world)
        return outcome if outcome.problem is not None else _unless_open(world, outcome)

    return act


def _jobs(world: FaultyWorld) -> tuple[Job, ...]:
    return JobStore(world.table).page(None, 10).jobs


def _let_jobs_go_on(world: FaultyWorld, create: Act) -> None:
    """Let an hour go by if a run has failed, as jobs wait then, and leases last; have those that gave up try again."""
    for job in _jobs(world):
        if job.attempts:
            pass_hours(world, 1)
        if job.state is JobState.FAILED and not job.skipped.count:
            _must_succeed(command("jobs", "resume", job.id, "--by", "alice")(world))
        elif job.state is JobState.FAILED:  # it would not go back to what it skipped
            _must_succeed(command("jobs", "delete", "--yes", job.id)(world))
            _must_succeed(create(world))


def _must_succeed(outcome: Outcome) -> None:
    assert outcome.problem is None, outcome.problem


def _unless_open(world: FaultyWorld, outcome: Outcome) -> Outcome:
    with world.network.in_order():
        open_ = [job for job in _jobs(world) if job.state is not JobState.SUCCEEDED]
    told = "; ".join(f"#job {job.id} is {job.state}: {job.reason}" for job in open_)
    return Outcome(outcome.shown, told or None)
