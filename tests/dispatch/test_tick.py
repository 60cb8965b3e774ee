"""The tick: which jobs it calls Lambdas for, starts at EMR, follows, fails, and counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from coldstream.dispatch.emr_jobs import EmrJobs, is_on_emr
from coldstream.dispatch.job_slice import MessageOutcome, run_slice
from coldstream.dispatch.runner import Runner
from coldstream.dispatch.tick import TickReport, gauges, tick
from coldstream.errors import UnavailableError
from coldstream.jobs.attempt import acquire
from coldstream.jobs.job import JOBS, Job, JobState
from coldstream.jobs.run import JobRun
from coldstream.manifest.state_item import StateItem
from coldstream.upkeep.archive import UpkeepArchive
from tests.dispatch.emr import MemoryEmr
from tests.dispatch.queues import MemoryJobQueue
from tests.dispatch.test_job_slice import OVER_MS
from tests.support.compacting import Calls, Killed
from tests.upkeep.test_states import world_of
from tests.upkeep.world import UpkeepWorld


@dataclass
class Stack:
    """An archive, its queue, and EMR."""

    world: UpkeepWorld = field(default_factory=world_of)
    queue: MemoryJobQueue = field(default_factory=MemoryJobQueue)
    emr: MemoryEmr = field(default_factory=MemoryEmr)
    has_queue: bool = True
    has_emr: bool = True

    def tick(self, **how: Any) -> TickReport:
        world = self.world
        emr = EmrJobs(world.jobs, world.table, self.emr, 3600) if self.has_emr else None
        return tick(world.jobs, world.table, world.clock(), self.queue if self.has_queue else None, emr, **how)

    def invoke_all(self) -> None:
        while self.queue.sent:
            job_id = self.queue.sent.pop(0)
            archive = UpkeepArchive(self.world.stores())
            run_slice(self.world.jobs, archive, self.queue, job_id, worker="x", remaining_ms=lambda: 900_000)


def test_a_job_for_a_lambda_that_is_due_gets_a_message_and_is_done() -> None:
    stack = Stack()
    job = stack.world.create("compact")
    assert stack.tick().sent == 1
    stack.invoke_all()
    assert stack.world.jobs.get(job.id).state is JobState.SUCCEEDED
    assert stack.tick().sent == 0


def test_a_job_that_waits_is_called_for_when_it_is_due() -> None:
    stack = Stack()
    job = stack.world.create("retention", schedule="every 1h")
    stack.tick()
    stack.invoke_all()
    assert stack.tick().sent == 0
    stack.world.clock.pass_ms(3600 * 1000)
    assert stack.tick().sent == 1
    stack.invoke_all()
    assert stack.world.jobs.get(job.id).runs == 2


def test_paused_jobs_and_those_of_workers_are_left_alone() -> None:
    stack = Stack()
    stack.world.jobs.pause(stack.world.create("compact").id)
    stack.world.create("compact", runner="worker")
    stack.world.create("load", streams=["orders.1"], target={"type": "stream", "name": "x"})
    report = stack.tick()
    assert (report.sent, report.started, report.failed, report.problems) == (0, 0, 0, [])


def test_a_lambda_that_died_is_revived_once_its_lease_is_over() -> None:
    stack = Stack()
    job = stack.world.create("compact")

    def die(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  a callback
        if name == "complete_upload" and is_done:
            raise Killed

    calls = Calls(stack.world.table, stack.world.objects, die)
    with pytest.raises(Killed):
        run_slice(
            stack.world.jobs,
            UpkeepArchive(stack.world.stores(calls)),
            stack.queue,
            job.id,
            worker="x",
            remaining_ms=lambda: 900_000,
        )
    assert stack.tick().sent == 0
    stack.world.clock.pass_ms(OVER_MS)
    assert stack.tick().sent == 1
    stack.invoke_all()
    assert stack.world.jobs.get(job.id).state is JobState.SUCCEEDED


def test_a_job_that_a_worker_has_is_never_revived() -> None:
    stack = Stack()
    job = stack.world.create("compact")
    assert acquire(stack.world.jobs, job, "host-1", now=stack.world.clock) is not None
    stack.world.clock.pass_ms(100 * OVER_MS)
    assert stack.tick().sent == 0


def test_what_waits_in_the_queue_already_is_not_sent_again() -> None:
    stack = Stack()
    for _ in range(5):
        stack.world.create("compact")
    assert [stack.tick().sent for _ in range(3)] == [5, 0, 0]
    stack.queue.sent.pop()
    assert stack.tick().sent == 5


def test_a_job_for_emr_is_started_and_followed_to_its_end() -> None:
    stack = Stack()
    job = stack.world.create("compact", runner="emr")
    assert stack.tick().started == 1
    assert is_on_emr(stack.world.jobs.get(job.id))
    stack.emr.states["00run0"] = "RUNNING"
    report = stack.tick()
    assert (report.started, report.followed) == (0, 1)
    assert stack.world.jobs.get(job.id).runner_state == "RUNNING"
    stack.emr.states["00run0"] = "SUCCESS"
    stack.tick()
    assert stack.world.jobs.get(job.id).state is JobState.SUCCEEDED


def test_a_large_job_goes_to_emr_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.dispatch.runner.LEAST_FOR_EMR", 1)
    stack = Stack()
    job = stack.world.create("compact")
    assert stack.tick().started == 1
    assert is_on_emr(stack.world.jobs.get(job.id))


def test_a_run_on_emr_is_left_alone_by_those_who_have_no_emr() -> None:
    stack = Stack()
    job = stack.world.create("compact", runner="emr")
    stack.tick()
    before = stack.world.jobs.get(job.id)
    stack.has_emr = False
    stack.world.clock.pass_ms(10 * 3600 * 1000)
    report = stack.tick()
    assert (report.followed, report.sent) == (0, 0)
    assert stack.world.jobs.get(job.id) == before


def test_the_impossible_is_failed_with_what_to_do() -> None:
    stack = Stack()
    job = stack.world.create("store", streams=["*"], runner="lambda")
    report = stack.tick()
    assert report.failed == 1
    failed = stack.world.jobs.get(job.id)
    assert failed.state is JobState.FAILED
    assert "and no store: leave out the runner, or say worker" in failed.reason


def test_what_only_is_not_configured_here_waits_and_says_for_what() -> None:
    stack = Stack(has_emr=False)
    job = stack.world.create("compact", runner="emr")
    for _ in range(2):
        stack.tick()
    waiting = stack.world.jobs.get(job.id)
    assert waiting.state is JobState.CREATED
    assert "waits for a runner: EMR Serverless is not configured" in waiting.reason
    assert len(stack.world.jobs.log(job.id)) == 2
    stack.has_emr = True
    assert stack.tick().started == 1


def test_what_fails_for_one_job_does_not_keep_the_others() -> None:
    stack = Stack()
    stack.world.create("compact", runner="emr")
    stack.tick()
    stack.emr.errors = [UnavailableError("EMR does not answer")]
    stack.world.create("compact")
    report = stack.tick()
    assert report.sent == 1
    assert report.problems[0].endswith("EMR does not answer")


def test_a_job_that_cannot_be_read_is_told_and_the_others_go_on() -> None:
    stack = Stack()
    job, other = stack.world.create("compact"), stack.world.create("compact")
    stack.world.table.put_state(StateItem(JOBS, job.id, 2, b"{}"))
    report = stack.tick()
    assert job.id in report.problems[0]
    assert stack.queue.sent == [other.id]


def test_jobs_are_counted_by_state_and_their_sums_are_told() -> None:
    stack = Stack()
    world = stack.world
    world.create("compact", runner="worker")
    world.jobs.pause(world.create("compact").id)
    running = acquire(world.jobs, world.create("load", streams=["x"], target={"type": "stream", "name": "y"}), "h")
    assert running is not None
    run = JobRun(world.jobs, running)
    run.advance(messages=7, bytes_=11, failures=1, lag_ms=1500)
    run.skip("stream 'x'", 3, "gone")
    run.checkpoint()
    world.finish(world.create("compact", streams=["gone"]).id)
    report = stack.tick()
    assert {state: count for state, count in gauges(report).items() if count} == {
        JobState.CREATED: 1,
        JobState.PAUSED: 1,
        JobState.RUNNING: 1,
        JobState.FAILED: 1,
    }
    assert (report.messages, report.bytes, report.failures, report.skipped, report.lag_ms) == (7, 11, 1, 3, 1500)


def test_the_size_of_a_job_that_waits_for_a_worker_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.dispatch.runner.MOST_FOR_LAMBDA", 0)
    stack = Stack()
    stack.world.create("compact")
    chosen: dict[str, Runner] = {}
    stack.tick(chosen=chosen)
    assert list(chosen.values()) == [Runner.WORKER]
    stack.world.table.requests.clear()
    stack.tick(chosen=chosen)
    assert stack.world.table.requests["Query"] <= 3


def test_a_tick_that_is_short_of_time_ends_and_the_next_one_does_the_rest() -> None:
    stack = Stack()
    for _ in range(3):
        stack.world.create("compact")
    assert stack.tick(should_stop=lambda: True).sent == 1
    assert stack.tick().sent == 3


def test_nothing_is_configured_and_jobs_are_only_counted() -> None:
    stack = Stack(has_queue=False, has_emr=False)
    job = stack.world.create("compact")
    report = stack.tick()
    assert (report.sent, report.started) == (0, 0)
    assert report.states[JobState.CREATED] == 1
    assert stack.world.jobs.get(job.id) == job


def test_a_message_for_a_job_that_emr_has_is_sent_away() -> None:
    stack = Stack()
    job: Job = stack.world.create("compact", runner="emr")
    stack.tick()
    report = run_slice(
        stack.world.jobs,
        UpkeepArchive(stack.world.stores()),
        stack.queue,
        job.id,
        worker="x",
        remaining_ms=lambda: 900_000,
    )
    assert report.outcome is MessageOutcome.NOT_OURS
