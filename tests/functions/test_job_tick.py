"""The job tick, as its schedule calls it, on an archive in memory."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest

from coldstream.dispatch.dispatcher import Dispatcher
from coldstream.dispatch.emr_jobs import EmrJobs, is_on_emr
from tests.dispatch.emr import MemoryEmr
from tests.dispatch.queues import MemoryJobQueue
from tests.support.functions import FunctionContext, load_function
from tests.upkeep.test_states import world_of
from tests.upkeep.world import UpkeepWorld


@pytest.fixture
def world() -> UpkeepWorld:
    return world_of()


@pytest.fixture
def queue() -> MemoryJobQueue:
    return MemoryJobQueue()


@pytest.fixture
def app(world: UpkeepWorld, queue: MemoryJobQueue, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load_function("job_tick")
    emr = EmrJobs(world.jobs, world.table, MemoryEmr(), 3600)
    dispatcher = Dispatcher(world.jobs, world.table, world.clock, queue, emr)
    monkeypatch.setattr(module, "dispatcher", lambda: dispatcher)
    return module


def called(app: ModuleType, remaining_ms: int = 55_000) -> dict[str, Any]:
    found: dict[str, Any] = app.lambda_handler({}, FunctionContext("job-tick", remaining_ms))
    return found


def test_it_sends_and_starts_what_is_due(app: ModuleType, world: UpkeepWorld, queue: MemoryJobQueue) -> None:
    small, large = world.create("compact"), world.create("compact", runner="emr")
    assert called(app) == {"sent": 1, "started": 1, "followed": 0, "failed": 0}
    assert queue.sent == [small.id]
    assert is_on_emr(world.jobs.get(large.id))
    assert called(app) == {"sent": 0, "started": 0, "followed": 1, "failed": 0}


def test_it_counts_jobs_by_state_and_their_sums(
    app: ModuleType, world: UpkeepWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    world.jobs.pause(world.create("compact").id)
    world.create("store", streams=["*"], runner="lambda")
    called(app)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    states = {line["State"]: line["JobsByState"][0] for line in lines if "JobsByState" in line}
    # The impossible one was counted as it was found.
    assert states == {"created": 1.0, "running": 0.0, "paused": 1.0, "waiting": 0.0, "failed": 1.0}
    (sums,) = [line for line in lines if "JobMessages" in line]
    names = ("JobMessages", "JobBytes", "JobsSkipped", "JobFailures")
    assert {name: sums[name][0] for name in names} == {**dict.fromkeys(names, 0.0), "JobFailures": 1.0}
    assert "JobLagMs" not in sums
    assert {line["service"] for line in lines if "_aws" in line} == {"jobs"}


def test_short_of_time_it_leaves_the_rest_to_the_next(app: ModuleType, world: UpkeepWorld) -> None:
    for _ in range(3):
        world.create("compact")
    assert called(app, remaining_ms=1)["sent"] == 1
    assert called(app)["sent"] == 3
