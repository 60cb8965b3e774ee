"""Jobs on EMR: started once, followed to each of their ends, paused, cancelled, and told with what they left out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from coldstream.dispatch.emr_jobs import EMR_PREFIX, EmrJobs, is_on_emr
from coldstream.dispatch.emr_report import EmrReport, report_name
from coldstream.errors import AccessDeniedError, RunnerError, UnavailableError
from coldstream.jobs.attempt import acquire
from coldstream.jobs.job import Job, JobState
from coldstream.lifecycle.deletion import delete_stream
from tests.dispatch.emr import MemoryEmr
from tests.upkeep.test_states import FIELDS, KINDS, world_of
from tests.upkeep.world import UpkeepWorld, stream_of


@dataclass
class OnEmr:
    """An archive with jobs, and EMR."""

    world: UpkeepWorld = field(default_factory=world_of)
    emr: MemoryEmr = field(default_factory=MemoryEmr)

    @property
    def jobs(self) -> EmrJobs:
        return EmrJobs(self.world.jobs, self.world.table, self.emr, 3600)

    def started(self, kind: str = "compact", **fields: Any) -> Job:
        job = self.jobs.start(self.world.create(kind, **fields))
        assert job is not None
        return job

    def followed(self, job: Job, state: str, details: str = "") -> Job:
        """Have EMR say something of the only run, and look at it."""
        self.emr.states[self.emr.only_run] = state
        self.emr.details[self.emr.only_run] = details
        after = self.jobs.follow(self.world.jobs.get(job.id))
        assert after is not None
        return after


def test_a_run_is_started_with_a_name_and_a_tag_and_its_state_is_shown() -> None:
    on_emr = OnEmr()
    job = on_emr.started()
    assert is_on_emr(job)
    assert job.lease is not None
    assert (job.state, job.lease.worker) == (JobState.RUNNING, f"{EMR_PREFIX}00run0")
    assert on_emr.emr.names == [f"coldstream compact {job.id}"]
    assert on_emr.emr.tags["00run0"] == {"coldstream-job": job.id}
    for state in ("PENDING", "SCHEDULED", "RUNNING"):
        after = on_emr.followed(job, state, "two executors")
        assert (after.state, after.runner_state) == (JobState.RUNNING, f"{state}: two executors")
    assert after.lease is not None
    assert after.lease.beat == job.lease.beat + 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_succeeds_ends_the_job_with_what_its_summary_says(kind: str) -> None:
    on_emr = OnEmr()
    job = on_emr.started(kind, **FIELDS[kind])
    on_emr.world.table.put_cursor(report_name(job), json.dumps({"messages": 17, "read_bytes": 4711}).encode())
    after = on_emr.followed(job, "SUCCESS")
    assert (after.state, after.runs, after.runner_state) == (JobState.SUCCEEDED, 1, "")
    assert (after.progress.messages, after.progress.bytes) == (17, 4711)
    assert on_emr.world.table.cursor(report_name(job)) is None


def test_a_run_that_fails_fails_the_job_with_what_emr_and_the_summary_say() -> None:
    on_emr = OnEmr()
    job = on_emr.started("scrub")
    summary = {"damages": {"ObjectMissing": 2}, "failures": [{"where": "stream 'a'", "message": "no answer"}]}
    on_emr.world.table.put_cursor(report_name(job), json.dumps(summary).encode())
    after = on_emr.followed(job, "FAILED", "exit code 5")
    assert after.state is JobState.FAILED
    assert after.reason == "the run 00run0 failed at EMR: exit code 5; stream 'a': no answer; damages: 2 ObjectMissing"


def test_a_failed_job_that_is_resumed_starts_another_run() -> None:
    on_emr = OnEmr()
    job = on_emr.started()
    on_emr.followed(job, "FAILED", "no capacity")
    on_emr.world.jobs.resume(job.id)
    again = on_emr.jobs.start(on_emr.world.jobs.get(job.id))
    assert again is not None
    assert again.lease is not None
    assert again.lease.worker == f"{EMR_PREFIX}00run1"


@pytest.mark.parametrize(("ask", "expected"), [("pause", JobState.PAUSED), ("cancel", JobState.CANCELLED)])
def test_pause_and_cancel_end_the_run_and_keep_the_cursor(ask: str, expected: JobState) -> None:
    on_emr = OnEmr()
    job = on_emr.started()
    getattr(on_emr.world.jobs, ask)(job.id)
    after = on_emr.followed(job, "RUNNING")
    assert (after.state, after.runner_state) == (JobState.RUNNING, "CANCELLING")
    after = on_emr.jobs.follow(after)
    assert after is not None
    assert after.state is expected
    assert after.cursor == job.cursor


def test_a_paused_job_that_is_resumed_is_started_anew_with_another_token() -> None:
    on_emr = OnEmr()
    job = on_emr.started()
    on_emr.world.jobs.pause(job.id)
    on_emr.followed(job, "CANCELLED")
    on_emr.world.jobs.resume(job.id)
    assert on_emr.jobs.start(on_emr.world.jobs.get(job.id)) is not None
    assert sorted(on_emr.emr.tokens) == [f"{job.id}-1", f"{job.id}-2"]


def test_a_run_that_ends_well_before_it_could_be_cancelled_has_succeeded() -> None:
    on_emr = OnEmr()
    job = on_emr.started()
    on_emr.world.jobs.pause(job.id)
    assert on_emr.followed(job, "SUCCESS").state is JobState.SUCCEEDED


def test_a_run_that_somebody_cancelled_at_emr_has_failed() -> None:
    on_emr = OnEmr()
    job = on_emr.started()
    after = on_emr.followed(job, "CANCELLED", "timed out")
    assert (after.state, after.reason) == (JobState.FAILED, "the run 00run0 was cancelled at EMR: timed out")


def test_a_run_that_emr_does_not_know_has_failed() -> None:
    on_emr = OnEmr()
    job = on_emr.started()
    on_emr.emr.states.clear()
    after = on_emr.jobs.follow(on_emr.world.jobs.get(job.id))
    assert after is not None
    assert (after.state, after.reason) == (JobState.FAILED, "EMR knows no run 00run0")


def test_a_schedule_starts_a_run_each_time() -> None:
    on_emr = OnEmr()
    job = on_emr.started(schedule="every 1h")
    after = on_emr.followed(job, "SUCCESS")
    assert (after.state, after.runs) == (JobState.WAITING, 1)
    assert on_emr.jobs.start(after) is None
    on_emr.world.clock.pass_ms(3600 * 1000)
    assert on_emr.jobs.start(on_emr.world.jobs.get(job.id)) is not None
    assert len(on_emr.emr.tokens) == 2


def test_a_call_whose_answer_is_lost_is_made_again_and_one_run_is_started() -> None:
    on_emr = OnEmr()
    on_emr.emr.lost_answers = [UnavailableError("no answer")]
    job = on_emr.started()
    assert (job.state, job.runner_state) == (JobState.RUNNING, "starting: no answer")
    after = on_emr.jobs.follow(job)
    assert after is not None
    assert after.lease is not None
    assert after.lease.worker == f"{EMR_PREFIX}00run0"
    assert len(on_emr.emr.tokens) == 1


def test_two_who_start_at_once_start_one_run() -> None:
    on_emr = OnEmr()
    job = on_emr.world.create("compact")
    assert on_emr.jobs.start(job) is not None
    assert on_emr.jobs.start(job) is None
    assert len(on_emr.emr.tokens) == 1


def test_whoever_is_late_writes_nothing() -> None:
    on_emr = OnEmr()
    job = on_emr.started()
    on_emr.followed(job, "FAILED")
    on_emr.world.jobs.resume(job.id)
    assert acquire(on_emr.world.jobs, on_emr.world.jobs.get(job.id), "host-1", now=on_emr.world.clock) is not None
    assert on_emr.jobs.follow(job) is None
    lease = on_emr.world.jobs.get(job.id).lease
    assert lease is not None
    assert lease.worker == "host-1"


@pytest.mark.parametrize("err", [RunnerError("EMR refuses the run: no such application"), AccessDeniedError("denied")])
def test_what_emr_refuses_for_good_fails_the_job(err: Any) -> None:
    on_emr = OnEmr()
    on_emr.emr.errors = [err]
    job = on_emr.started()
    assert (job.state, job.reason) == (JobState.FAILED, str(err))


def test_patterns_are_given_as_names_and_what_is_left_out_fails_the_job_in_the_end() -> None:
    on_emr = OnEmr()
    world = on_emr.world
    world.stream("orders.0", 2, declared=2)
    delete_stream(world.stores(), stream_of("orders.1").incarnation, grace_ms=0, by="eve")
    job = on_emr.started(streams=["orders.?", "gone", "x*"])
    call = on_emr.emr.calls["00run0"]
    assert sorted(one for one in call.arguments if one.startswith("--stream")) == [
        "--stream=orders.0",
        "--stream=orders.2",
    ]
    after = on_emr.followed(job, "SUCCESS")
    assert after.state is JobState.FAILED
    assert after.skipped.count == 3
    assert "takes the newest incarnation" in str(after.skipped.named)


def test_if_none_of_its_streams_is_there_no_run_is_started() -> None:
    on_emr = OnEmr()
    job = on_emr.started(streams=["gone"])
    assert job.state is JobState.FAILED
    assert "none of its streams is in the archive" in job.reason
    assert not on_emr.emr.tokens


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'"x"', b'{"messages": "many", "failures": 3}', b'{"damages": [1]}', b"\xff"]
)
def test_a_summary_that_makes_no_sense_says_nothing(data: bytes) -> None:
    assert EmrReport.from_bytes(data) == EmrReport()
