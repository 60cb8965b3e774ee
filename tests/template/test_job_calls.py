"""The functions of jobs work on an emulated AWS: their roles allow every call that they make."""

from __future__ import annotations

from typing import Any

import pytest

from coldstream.dispatch.dispatcher import Dispatcher
from coldstream.dispatch.emr_jobs import EmrJobs
from coldstream.dispatch.job_queue import message_of
from coldstream.jobs.job import Job, JobState
from coldstream.jobs.specs import parse_spec
from coldstream.jobs.store import JobStore
from coldstream.lifecycle.policies import set_policy
from coldstream.manifest.entry import Encoding
from coldstream.manifest.policy import Policy
from coldstream.store.objects import S3Objects
from coldstream.store.open_archive import OpenArchive
from coldstream.store.settings import Settings
from coldstream.upkeep.archive import UpkeepArchive
from tests.dispatch.emr import MemoryEmr
from tests.dispatch.queues import MemoryJobQueue
from tests.support.archive import STREAM
from tests.support.cloudformation import DELETING, EVERYTHING, Stack
from tests.support.functions import FunctionContext
from tests.support.iam import Request
from tests.support.permitted import never_used, refused
from tests.template.test_upkeep_calls import GONE, Upkeep

ON = {**DELETING, "Jobs": "on", "WithSpark": "true"}
JOBS: list[dict[str, Any]] = [
    {"kind": "erase", "stream": STREAM.name, "key": "user-3", "reason": "x", "with_other_copies": True},
    {"kind": "compact", "target_size": "64KiB"},
    {"kind": "scrub", "deep": True, "repair": True},
    {"kind": "retention"},
    {"kind": "compact", "streams": ["gone*"], "schedule": "every 1h"},
]


@pytest.fixture
def upkeep(table_name: str, s3_locking: S3Objects, monkeypatch: pytest.MonkeyPatch) -> Upkeep:
    """On a bucket with versions and Object Lock."""
    return Upkeep(Stack(**ON), table_name, s3_locking, monkeypatch)


def store_of(upkeep: Upkeep) -> JobStore:
    return JobStore(upkeep.table, upkeep.now)


def test_the_job_runner_may_make_every_call_that_it_makes(upkeep: Upkeep) -> None:
    archive = upkeep.archive(STREAM, *[Encoding.IDENTITY] * 4)
    upkeep.archive(GONE, Encoding.IDENTITY)
    upkeep.put(upkeep.keys.fragment(STREAM.incarnation, archive.log[0].first_offset, 9))
    for note in [one.key for one in upkeep.objects.listed("") if f"{GONE.incarnation}/control/" in one.key]:
        upkeep.objects.delete(note)
    upkeep.later_ms = 60 * 24 * 3600 * 1000
    app = upkeep.load("job_runner")
    upkeep_archive = UpkeepArchive(upkeep.stores)
    app.archive, app.queue = (lambda: upkeep_archive), MemoryJobQueue
    done: list[Job] = []
    with upkeep.recorded() as requests:
        UpkeepArchive.open(OpenArchive(Settings.from_environment(), upkeep.table, upkeep.objects, upkeep.keys))
        for spec in JOBS:
            if spec["kind"] == "retention":
                last = archive.log[-1].object_bytes
                set_policy(upkeep.stores, Policy("all", "*/*", max_bytes=last // 2))
            job = store_of(upkeep).create(parse_spec(spec))
            event = {"Records": [{"messageId": "1", "body": message_of(job.id)}]}
            assert app.lambda_handler(event, FunctionContext("job-runner", 900_000)) == {"batchItemFailures": []}
            done.append(store_of(upkeep).get(job.id))
            upkeep.later_ms += 24 * 3600 * 1000
    assert [job.state for job in done] == [*[JobState.SUCCEEDED] * 4, JobState.WAITING], [job.reason for job in done]
    # What sets the policy of this test is an operator's.
    asked = [one for one in requests if "/control/policies/" not in one.resource]
    assert refused(upkeep.stack, "JobRunnerRole", asked) == []
    used = {"s3:PutObject", "s3:DeleteObject", "dynamodb:PutItem", "dynamodb:DeleteItem"}
    assert not used & never_used_at_all(upkeep.stack, "JobRunnerRole", asked)


def never_used_at_all(stack: Stack, role: str, requests: list[Request]) -> set[str]:
    """Return the actions that no request uses in any statement."""
    return never_used(stack, role, requests) - {one.action for one in requests}


def test_the_tick_may_make_every_call_that_it_makes(upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch) -> None:
    upkeep.archive(STREAM, *[Encoding.IDENTITY] * 2)
    app = upkeep.load("job_tick")
    emr, runs = MemoryEmr(), 0
    store = store_of(upkeep)
    runs_of = EmrJobs(store, upkeep.table, emr, 3600)
    dispatcher = Dispatcher(store, upkeep.table, upkeep.now, MemoryJobQueue(), runs_of)
    monkeypatch.setattr(app, "dispatcher", lambda: dispatcher)
    for spec in ({"kind": "compact"}, {"kind": "compact", "runner": "emr"}, {"kind": "store", "streams": ["*"]}):
        store_of(upkeep).create(parse_spec(spec))
    store_of(upkeep).create(parse_spec({"kind": "store", "streams": ["*"], "runner": "lambda"}))
    with upkeep.recorded() as requests:
        for state in ("SUBMITTED", "RUNNING", "SUCCESS"):
            emr.states = dict.fromkeys(emr.states, state)
            found = app.lambda_handler({}, FunctionContext("job-tick", 55_000))
            runs += found["started"] + found["followed"]
            (job,) = [one for one in store_of(upkeep).page().jobs if one.spec.runner == "emr"]
            upkeep.table.put_cursor(f"spark-{job.id}-{job.epoch}", b"{}")
    assert runs == 3
    assert job.state is JobState.SUCCEEDED
    assert refused(upkeep.stack, "JobTickRole", requests) == []


def test_without_jobs_the_tick_may_only_look(upkeep: Upkeep) -> None:
    off = Stack(**{**EVERYTHING, "Jobs": "off"})
    table = off.arn("Table")
    put = Request("dynamodb:PutItem", table, {"dynamodb:LeadingKeys": ["#jobs"]})
    assert refused(off, "JobTickRole", [put]) == [put]
    assert refused(off, "JobTickRole", [Request("dynamodb:Query", table)]) == []
