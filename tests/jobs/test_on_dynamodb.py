"""Jobs in DynamoDB itself, as moto plays it: several workers and a user at once."""

from __future__ import annotations

import threading
from contextlib import suppress

from coldstream.errors import ColdstreamError, JobStateError
from coldstream.jobs.attempt import acquire, run_attempt
from coldstream.jobs.job import JOB_KEYS, JOBS, OPEN_JOBS, JobState
from coldstream.jobs.log_lines import partition_of
from coldstream.jobs.run import Finished, Interrupted, JobRun, RunEnd
from coldstream.jobs.specs import JobKind, parse_spec
from coldstream.jobs.store import JobStore
from coldstream.store.table import DynamoTable
from tests.jobs.test_specs import LEAST

SPEC = parse_spec({"kind": "load", **LEAST[JobKind.LOAD]})
MESSAGES = 300


class Workers:
    """Three workers that append messages to one target."""

    def __init__(self, store: JobStore) -> None:
        self.store = store
        self.target: list[int] = []
        self.is_over = threading.Event()
        self.errors: list[BaseException] = []
        self.threads = [threading.Thread(target=self._work, args=(f"worker-{number}",)) for number in range(3)]

    def _work(self, worker: str) -> None:
        try:
            while not self.is_over.wait(0.01):
                for job in self.store.open_jobs():
                    if (taken := acquire(self.store, job, worker)) is not None:
                        run_attempt(self.store, taken, self._kind, keep_every_s=0.02)
        except ColdstreamError as err:
            self.errors.append(err)

    def _kind(self, run: JobRun) -> RunEnd:
        while not run.should_stop():
            at = int(run.cursor.get("at", 0))
            if at == MESSAGES:
                return Finished()
            self.target.append(at)
            run.advance(cursor={"at": at + 1}, done=at + 1, messages=1)
            run.say(f"message {at}")
            self.is_over.wait(0.002)
        return Interrupted()


def test_workers_and_a_user_at_once_bring_a_job_to_its_end(dynamo_table: DynamoTable) -> None:
    store = JobStore(dynamo_table)
    job_id = store.create(SPEC, idempotency_key="k").id
    assert store.create(SPEC, idempotency_key="k").id == job_id
    workers = Workers(store)
    for thread in workers.threads:
        thread.start()
    for _ in range(10):
        with suppress(JobStateError):
            store.pause(job_id)
            store.resume(job_id)
    while not workers.errors and not (job := store.get(job_id)).state.has_ended:
        if job.state is JobState.PAUSED:  # the worker was faster than the resumption
            store.resume(job_id)
        workers.is_over.wait(0.05)
    workers.is_over.set()
    for thread in workers.threads:
        thread.join()
    assert not workers.errors
    assert (job.state, job.progress.messages) == (JobState.SUCCEEDED, MESSAGES)
    assert workers.target == list(range(MESSAGES))
    store.delete(job_id)
    left = [list(dynamo_table.state_items(one)) for one in (JOBS, OPEN_JOBS, JOB_KEYS, partition_of(job_id))]
    assert left == [[], [], [], []]
