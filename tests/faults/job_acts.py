"""Jobs: created by the command, run by a worker or by the function."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import gettempdir

import boto3

from coldstream.jobs.job import JobState
from coldstream.jobs.store import JobStore
from tests.faults.fault_acts import Act, Outcome, command, function
from tests.faults.faulty_world import JOBS_QUEUE, FaultyWorld


def open_queue(_: FaultyWorld) -> Outcome:
    """Create the queue of jobs that the environment names."""
    boto3.client("sqs").create_queue(QueueName=JOBS_QUEUE.rpartition("/")[2])
    return Outcome(b"")


def create_job(kind: str, *arguments: str) -> Act:
    """Create a job, once however often this is done."""
    return command("jobs", "create", kind, "--idempotency-key", "a-key", "--by", "alice", *arguments)


def _directory(name: str) -> Path:
    return Path(gettempdir()) / f"coldstream-faults-{name}"


def export_job(world: FaultyWorld) -> Outcome:
    """Create a job that exports the stream to a directory, which is empty."""
    to = _directory("export")
    shutil.rmtree(to, ignore_errors=True)
    return create_job("export", "--stream", "orders", "--destination", str(to), "--format", "jsonl")(world)


def run_worker(world: FaultyWorld) -> Outcome:
    """Run a worker until nothing is due; what failed of its jobs is told as its problem."""
    outcome = command("worker", "--once", "--metrics", "-", "--state", str(_directory("state")))(world)
    if outcome.problem is not None:
        return outcome
    open_ = [job for job in JobStore(world.table).page(None, 10).jobs if job.state is not JobState.SUCCEEDED]
    told = "; ".join(f"#job {job.id} is {job.state}: {job.reason}" for job in open_)
    return Outcome(outcome.shown, told or None)


def run_queued_job(world: FaultyWorld) -> Outcome:
    """Invoke the function that runs jobs with a message about the one that there is."""
    job = next(iter(JobStore(world.table).page(None, 10).jobs))
    record = {"messageId": "1", "body": json.dumps({"job": job.id})}
    return function("job_runner", lambda _: {"Records": [record]})(world)
