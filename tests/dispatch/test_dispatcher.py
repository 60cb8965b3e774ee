"""Which jobs a process leaves to Lambdas and EMR, and which are a worker's."""

from __future__ import annotations

from typing import Any

import pytest

from coldstream.dispatch.dispatcher import Dispatcher
from coldstream.dispatch.emr_jobs import EmrJobs, is_on_emr
from coldstream.dispatch.runner import check_creatable
from coldstream.errors import InvalidInputError
from coldstream.jobs.job import JobState
from coldstream.jobs.run import Finished
from coldstream.jobs.specs import parse_spec
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.open_archive import OpenArchive
from coldstream.store.settings import Settings
from coldstream.store.table import DynamoTable
from coldstream.worker.options import WorkerOptions
from coldstream.worker.worker import Worker
from tests.dispatch.emr import MemoryEmr
from tests.dispatch.queues import MemoryJobQueue
from tests.upkeep.test_states import world_of
from tests.upkeep.world import UpkeepWorld


@pytest.fixture
def world() -> UpkeepWorld:
    return world_of()


def dispatcher(world: UpkeepWorld, *, has_queue: bool = True) -> Dispatcher:
    emr = EmrJobs(world.jobs, world.table, MemoryEmr(), 3600)
    return Dispatcher(world.jobs, world.table, world.clock, MemoryJobQueue() if has_queue else None, emr)


def test_a_small_job_of_upkeep_is_left_to_a_lambda_and_others_are_the_workers(world: UpkeepWorld) -> None:
    found = dispatcher(world)
    assert not found.is_for_worker(world.create("compact"))
    assert found.is_for_worker(world.create("compact", runner="worker"))
    assert not found.is_for_worker(world.create("compact", runner="lambda"))
    assert not found.is_for_worker(world.create("compact", runner="emr"))
    assert found.is_for_worker(world.create("store", streams=["*"]))
    assert dispatcher(world, has_queue=False).is_for_worker(world.create("compact"))


def test_a_job_that_runs_on_emr_is_not_taken_over(world: UpkeepWorld) -> None:
    found = dispatcher(world)
    job = world.create("compact", runner="emr")
    assert found.tick().started == 1
    job = world.jobs.get(job.id)
    assert is_on_emr(job)
    assert not found.is_for_worker(job)


def test_a_worker_whose_environment_names_a_queue_calls_lambdas(world: UpkeepWorld) -> None:
    found = dispatcher(world)
    left, own = world.create("compact"), world.create("scrub", runner="worker")
    done: list[str] = []

    def kind(run: Any) -> Any:
        done.append(run.job.id)
        return Finished()

    Worker(world.jobs, dict.fromkeys(type(own.kind), kind), WorkerOptions(once=True), dispatcher=found).run()
    assert done == [own.id]
    assert isinstance(found.queue, MemoryJobQueue)
    assert found.queue.sent == [left.id]
    assert world.jobs.get(left.id).state is JobState.CREATED


def test_what_is_not_configured_is_not_opened() -> None:
    settings = Settings("bucket", "table")
    archive = OpenArchive(settings, DynamoTable("table"), S3Objects("bucket"), Keys(""))
    found = Dispatcher.of_environment(archive, {})
    assert (found.queue, found.emr, found.has_others) == (None, None, False)


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "store", "streams": ["*"], "runner": "lambda"},
        {"kind": "store", "streams": ["*"], "runner": "emr"},
        {"kind": "load", "streams": ["*"], "runner": "emr", "target": {"type": "stream", "name": "x"}},
    ],
)
def test_a_job_that_its_runner_can_never_run_is_refused_before_it_is_created(spec: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="say worker") as raised:
        check_creatable(parse_spec(spec))
    assert raised.value.field == "runner"
