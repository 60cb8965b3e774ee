"""Jobs that Lambdas run slice by slice: continued, taken over, and never run by two."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from coldstream.dispatch.job_slice import (
    LAMBDA_PREFIX,
    LEASE_S,
    MARGIN_MS,
    MessageOutcome,
    SliceReport,
    is_over,
    run_slice,
)
from coldstream.errors import UnavailableError
from coldstream.jobs.attempt import acquire
from coldstream.jobs.job import Job, JobState, Lease
from coldstream.jobs.store import JobStore
from coldstream.units import TimestampMs
from coldstream.upkeep.archive import UpkeepArchive
from coldstream.upkeep.kinds import UPKEEP_KINDS
from tests.dispatch.queues import MemoryJobQueue
from tests.support.compacting import Calls, Killed
from tests.upkeep.test_states import FIELDS, KINDS, world_of
from tests.upkeep.world import UpkeepWorld

LONG_MS = 900_000
OVER_MS = round(LEASE_S * 1000) + MARGIN_MS + 1


@dataclass
class Lambdas:
    """A queue, and the function that it calls."""

    world: UpkeepWorld = field(default_factory=world_of)
    queue: MemoryJobQueue = field(default_factory=MemoryJobQueue)

    def create(self, kind: str = "compact", **fields: Any) -> Job:
        job = self.world.create(kind, **fields)
        self.queue.send(job.id)
        return job

    def invoke(
        self, job_id: str, *, remaining_ms: Callable[[], int] = lambda: LONG_MS, calls: Calls | None = None
    ) -> SliceReport:
        world = self.world
        store = world.jobs if calls is None else JobStore(calls.table, world.clock)
        archive = UpkeepArchive(world.stores(calls))
        return run_slice(store, archive, self.queue, job_id, worker="test", remaining_ms=remaining_ms)

    def invoke_next(self, **how: Any) -> SliceReport:
        return self.invoke(self.queue.sent.pop(0), **how)


def short_after(questions: int) -> Callable[[], int]:
    """Return the time that a Lambda has left, which is short from the so-and-so-many-th question on."""
    asked = iter(range(10**6))
    return lambda: LONG_MS if next(asked) < questions else 0


TINY = {"compact": 2, "scrub": 15, "erase": 2, "retention": 3}
"""Questions after which the time of a slice is short, but long enough for one step."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_is_done_slice_by_slice_with_a_tiny_time_for_each(kind: str) -> None:
    lambdas = Lambdas()
    job = lambdas.create(kind, **FIELDS[kind])
    slices = 0
    while lambdas.queue.sent:
        report = lambdas.invoke_next(remaining_ms=short_after(TINY[kind]))
        slices += 1
        assert report.outcome is MessageOutcome.RAN
        assert slices < 200
    ended = lambdas.world.jobs.get(job.id)
    assert ended.state is JobState.SUCCEEDED, ended.reason
    assert ended.epoch == slices
    assert slices > 1


def test_a_job_that_fits_one_slice_sends_no_message() -> None:
    lambdas = Lambdas()
    lambdas.create()
    report = lambdas.invoke_next()
    assert (report.outcome, report.is_continued) == (MessageOutcome.RAN, False)
    assert report.job is not None
    assert report.job.state is JobState.SUCCEEDED
    assert lambdas.queue.sent == []


def test_messages_that_come_twice_late_or_for_nothing_do_no_harm() -> None:
    lambdas = Lambdas()
    job = lambdas.create()
    lambdas.queue.send(job.id)
    assert lambdas.invoke_next().outcome is MessageOutcome.RAN
    assert lambdas.invoke_next().outcome is MessageOutcome.GONE
    assert lambdas.invoke("0000000000-nobody").outcome is MessageOutcome.GONE
    assert lambdas.invoke("\n").outcome is MessageOutcome.GONE
    paused = lambdas.create()
    lambdas.world.jobs.pause(paused.id)
    assert lambdas.invoke_next().outcome is MessageOutcome.NOT_DUE
    lambdas.world.jobs.resume(paused.id)
    assert lambdas.invoke(paused.id).outcome is MessageOutcome.RAN


def test_jobs_of_other_kinds_and_other_runners_are_left_alone() -> None:
    lambdas = Lambdas()
    load = lambdas.create("load", streams=["orders.1"], target={"type": "stream", "name": "again"})
    worker = lambdas.create("compact", runner="worker")
    for job in (load, worker):
        assert lambdas.invoke_next().outcome is MessageOutcome.NOT_OURS
        assert lambdas.world.jobs.get(job.id).state is JobState.CREATED


def test_two_invocations_at_once_run_it_once() -> None:
    lambdas = Lambdas()
    job = lambdas.create()
    reports: list[SliceReport] = []
    together = threading.Barrier(8, timeout=20)

    def invoke() -> None:
        together.wait()
        reports.append(lambdas.invoke(job.id))

    threads = [threading.Thread(target=invoke) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report.outcome for report in reports].count(MessageOutcome.RAN) == 1
    assert lambdas.world.jobs.get(job.id).epoch == 1


def test_a_second_invocation_in_the_midst_of_the_first_is_sent_away() -> None:
    lambdas = Lambdas()
    job = lambdas.create()
    seen: list[MessageOutcome] = []

    def meanwhile(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  a callback
        if name == "complete_upload" and is_done:
            seen.append(lambdas.invoke(job.id).outcome)

    lambdas.invoke(job.id, calls=Calls(lambdas.world.table, lambdas.world.objects, meanwhile))
    assert set(seen) == {MessageOutcome.TAKEN}
    assert lambdas.world.jobs.get(job.id).state is JobState.SUCCEEDED


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", [12, 20, 26])
def test_a_lambda_that_dies_is_taken_over_once_its_lease_is_over(kind: str, at: int) -> None:
    lambdas = Lambdas()
    job = lambdas.create(kind, **FIELDS[kind])

    def die(number: int, _: str, is_done: bool) -> None:  # noqa: FBT001  a callback
        if number >= at and not is_done:
            raise Killed

    with pytest.raises(Killed):
        lambdas.invoke(job.id, calls=Calls(lambdas.world.table, lambdas.world.objects, die))
    assert lambdas.world.jobs.get(job.id).state is JobState.RUNNING
    assert lambdas.invoke(job.id).outcome is MessageOutcome.TAKEN
    lambdas.world.clock.pass_ms(OVER_MS)
    assert lambdas.invoke(job.id).outcome is MessageOutcome.RAN
    ended = lambdas.world.jobs.get(job.id)
    assert ended.state is JobState.SUCCEEDED, ended.reason
    assert "is gone; lambda:test takes over" in lambdas.world.log(job.id)


def test_a_lambda_that_was_only_held_up_can_write_nothing_any_more() -> None:
    lambdas = Lambdas()
    job = lambdas.create("compact", streams=["orders.0"])
    ended: list[Job] = []

    def meanwhile(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  a callback
        if name == "complete_upload" and is_done and not ended:
            lambdas.world.clock.pass_ms(OVER_MS)
            report = lambdas.invoke(job.id)
            assert report.job is not None
            ended.append(report.job)

    report = lambdas.invoke(job.id, calls=Calls(lambdas.world.table, lambdas.world.objects, meanwhile))
    assert (report.outcome, report.job) == (MessageOutcome.RAN, None)
    assert lambdas.world.jobs.get(job.id) == ended[0]
    assert ended[0].state is JobState.SUCCEEDED
    archive = next(one for one in lambdas.world.streams.values() if one.stream.name == "orders.0")
    assert len(archive.log) == 1
    assert archive.read() == archive.published


def test_the_lease_of_a_worker_is_never_over_for_a_lambda() -> None:
    lambdas = Lambdas()
    job = lambdas.create()
    assert acquire(lambdas.world.jobs, job, "host-1", now=lambdas.world.clock) is not None
    lambdas.world.clock.pass_ms(10 * OVER_MS)
    assert lambdas.invoke(job.id).outcome is MessageOutcome.TAKEN


def test_a_lease_is_over_after_its_time_and_a_margin() -> None:
    lease = Lease(f"{LAMBDA_PREFIX}x", 30_000, 3, TimestampMs(1000))
    assert not is_over(lease, TimestampMs(1000 + MARGIN_MS))
    assert is_over(lease, TimestampMs(1001 + MARGIN_MS))
    assert not is_over(replace(lease, worker="x"), TimestampMs(10**12))


def test_workers_that_die_of_a_job_again_and_again_fail_it() -> None:
    lambdas = Lambdas()
    job = lambdas.create(max_attempts=2)

    def die(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  a callback
        if name == "head":
            raise Killed

    for _ in range(2):
        with pytest.raises(Killed):
            lambdas.invoke(job.id, calls=Calls(lambdas.world.table, lambdas.world.objects, die))
        lambdas.world.clock.pass_ms(OVER_MS)
    assert lambdas.invoke(job.id).outcome is MessageOutcome.TAKEN
    failed = lambdas.world.jobs.get(job.id)
    assert failed.state is JobState.FAILED
    assert "its worker died 2 times in a row without progress" in failed.reason


def test_slices_that_get_nowhere_fail_the_job_with_what_to_do() -> None:
    lambdas = Lambdas()
    job = lambdas.create(max_attempts=2)
    for _ in range(10):
        lambdas.invoke(job.id, remaining_ms=short_after(1))
        after = lambdas.world.jobs.get(job.id)
        lambdas.world.clock.now = after.next_at or lambdas.world.clock.now
        if after.state.has_ended:
            break
    assert after.state is JobState.FAILED
    assert "too short for the next step: a job with the runner worker has more" in after.reason


def test_a_queue_that_does_not_answer_leaves_a_job_that_goes_on_with_the_next_message() -> None:
    lambdas = Lambdas()
    job = lambdas.create()
    lambdas.queue.fails = 1
    with pytest.raises(UnavailableError):
        lambdas.invoke(job.id, remaining_ms=short_after(2))
    assert lambdas.world.jobs.get(job.id).state is JobState.WAITING
    assert lambdas.invoke(job.id).outcome is MessageOutcome.RAN
    assert lambdas.world.jobs.get(job.id).state is JobState.SUCCEEDED


def test_a_failed_attempt_waits_and_sends_nothing() -> None:
    lambdas = Lambdas()
    job = lambdas.create()

    def refuse(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  a callback
        if name == "complete_upload":
            raise UnavailableError("S3 does not answer")

    lambdas.queue.sent.clear()
    report = lambdas.invoke(job.id, calls=Calls(lambdas.world.table, lambdas.world.objects, refuse))
    assert report.job is not None
    assert report.job.state is JobState.WAITING
    assert not report.is_continued
    assert lambdas.queue.sent == []
    assert lambdas.invoke(job.id).outcome is MessageOutcome.NOT_DUE


def test_every_kind_of_upkeep_runs_in_a_lambda() -> None:
    assert set(FIELDS) == set(UPKEEP_KINDS)
