"""The job runner, as its queue calls it, on an archive in memory."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest

from coldstream.dispatch.job_queue import message_of
from coldstream.errors import InvalidSettingError, UnavailableError
from coldstream.jobs.job import JobState
from coldstream.upkeep.archive import UpkeepArchive
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
    module = load_function("job_runner")
    monkeypatch.setattr(module, "archive", lambda: UpkeepArchive(world.stores()))
    monkeypatch.setattr(module, "queue", lambda: queue)
    return module


def called(app: ModuleType, *bodies: str, context: FunctionContext | None = None) -> list[str]:
    """Call the function with messages; return the numbers of those that come again."""
    event = {"Records": [{"messageId": str(number), "body": body} for number, body in enumerate(bodies)]}
    answer = app.lambda_handler(event, context or FunctionContext("job-runner", 900_000))
    return [one["itemIdentifier"] for one in answer["batchItemFailures"]]


def counted(capsys: pytest.CaptureFixture[str], name: str) -> list[Any]:
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [line[name][0] for line in lines if name in line]


def test_a_message_has_its_job_run(app: ModuleType, world: UpkeepWorld, capsys: pytest.CaptureFixture[str]) -> None:
    job = world.create("compact")
    assert called(app, message_of(job.id)) == []
    assert world.jobs.get(job.id).state is JobState.SUCCEEDED
    assert counted(capsys, "JobSlices") == [1.0]
    assert "lambda:52fdfc07-2182-154f-163f-5f0f9a621d72 begins" in world.log(job.id)


def test_with_tiny_times_it_calls_itself_until_the_job_is_done(
    app: ModuleType, world: UpkeepWorld, queue: MemoryJobQueue
) -> None:
    class ShortOfTime(FunctionContext):
        asked = 0

        def get_remaining_time_in_millis(self) -> int:
            self.asked += 1
            return 900_000 if self.asked <= 2 else 0

    job = world.create("compact")
    queue.send(job.id)
    slices = 0
    while queue.sent:
        assert called(app, message_of(queue.sent.pop()), context=ShortOfTime("job-runner")) == []
        slices += 1
    assert slices == 3
    assert world.jobs.get(job.id).state is JobState.SUCCEEDED


def test_a_message_that_names_no_job_fails_alone(app: ModuleType, world: UpkeepWorld) -> None:
    job = world.create("compact")
    assert called(app, "{}", message_of(job.id), "no JSON") == ["0", "2"]
    assert world.jobs.get(job.id).state is JobState.SUCCEEDED


def test_a_message_about_a_job_that_is_gone_is_done_with(app: ModuleType) -> None:
    assert called(app, message_of("2sb1jww6fz-abcdef")) == []


def test_a_job_that_fails_is_counted_and_its_message_is_done_with(
    app: ModuleType, world: UpkeepWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    job = world.create("compact", streams=["gone"])
    assert called(app, message_of(job.id)) == []
    assert world.jobs.get(job.id).state is JobState.FAILED
    assert counted(capsys, "JobFailures") == [1.0]


def test_a_failed_run_of_a_schedule_is_counted_too(
    app: ModuleType, world: UpkeepWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    job = world.create("compact", streams=["gone"], schedule="every 1h")
    assert called(app, message_of(job.id)) == []
    assert world.jobs.get(job.id).failed_runs == 1
    assert counted(capsys, "JobFailures") == [1.0]


def test_a_table_that_does_not_answer_has_the_message_come_again(
    app: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent() -> UpkeepArchive:
        raise UnavailableError("no answer")

    monkeypatch.setattr(app, "archive", silent)
    assert called(app, message_of("2sb1jww6fz-abcdef")) == ["0"]


def test_without_a_queue_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLDSTREAM_JOBS_QUEUE", raising=False)
    with pytest.raises(InvalidSettingError, match="COLDSTREAM_JOBS_QUEUE"):
        load_function("job_runner").queue()
