"""The template's functions of jobs on this machine: a job that is created is done, without a worker."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from coldstream.dispatch.job_queue import SqsJobQueue
from coldstream.jobs.job import JobState
from coldstream.jobs.specs import parse_spec
from coldstream.jobs.store import JobStore
from coldstream.local.stack import EmulatedStack
from coldstream.store.table import DynamoTable

TIMEOUT_S = 60


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedStack]:
    with EmulatedStack(inherited={}, with_jobs=True) as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


def test_a_job_is_done_by_the_functions_and_a_message_starts_it_at_once(stack: EmulatedStack) -> None:
    assert {"JobRunnerFunction", "JobTickFunction"} <= set(stack.functions)
    store = JobStore(DynamoTable(stack.environment["COLDSTREAM_TABLE"]))
    job = store.create(parse_spec({"kind": "retention"}))
    # The tick comes once a minute; this is what it sends.
    SqsJobQueue(stack.environment["COLDSTREAM_JOBS_QUEUE"]).send(job.id)
    deadline = time.monotonic() + TIMEOUT_S
    while not store.get(job.id).state.has_ended:
        assert time.monotonic() < deadline, store.get(job.id)
        time.sleep(0.1)
    assert store.get(job.id).state is JobState.SUCCEEDED
    assert stack.dead_letters() == 0
    assert stack.check() == ()


def test_without_jobs_their_functions_do_not_run() -> None:
    with EmulatedStack(inherited={}) as running:
        assert not {"JobRunnerFunction", "JobTickFunction"} & set(running.functions)
        assert "COLDSTREAM_JOBS_QUEUE" not in running.environment
