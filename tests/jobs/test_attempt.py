"""One attempt of a job: taken, run, and let go of with what became of it; and two workers that want the same one."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from coldstream.errors import GapError, LeaseLostError, OutcomeUnknownError, UnavailableError
from coldstream.jobs.attempt import Kind, acquire, run_attempt
from coldstream.jobs.job import Job, JobState
from coldstream.jobs.run import Finished, Interrupted, JobRun, RunEnd, WaitsUntil
from coldstream.jobs.specs import JobKind, parse_spec
from coldstream.jobs.store import JobStore
from coldstream.manifest.state_item import StateItem
from coldstream.store.memory.table import MemoryTable
from coldstream.units import TimestampMs, now_ms
from tests.jobs.test_specs import LEAST

SPEC = parse_spec({"kind": "load", **LEAST[JobKind.LOAD]})


@pytest.fixture
def store() -> JobStore:
    return JobStore(MemoryTable())


def taken(store: JobStore, job: Job | None = None, worker: str = "worker-1", **given: object) -> Job:
    found = acquire(store, store.create(SPEC) if job is None else job, worker, **given)  # type: ignore[arg-type]
    assert found is not None
    return found


def attempt(store: JobStore, kind: Kind, job: Job | None = None) -> Job:
    after = run_attempt(store, taken(store) if job is None else job, kind, keep_every_s=0.01)
    assert after is not None
    assert store.get(after.id) == after
    return after


def texts(store: JobStore, job: Job) -> str:
    return "\n".join(line.text for line in store.log(job.id))


def test_what_a_run_told_is_there_when_it_is_done(store: JobStore) -> None:
    def kind(run: JobRun) -> RunEnd:
        run.advance(cursor={"at": 9}, done=9, total=9, messages=9, bytes_=900)
        run.say("nine of nine")
        return Finished("all of it")

    job = attempt(store, kind)
    assert (job.state, job.cursor, job.progress.messages, job.lease) == (JobState.SUCCEEDED, {"at": 9}, 9, None)
    assert "nine of nine" in texts(store, job)
    assert "all of it" in texts(store, job)


def test_a_failure_that_may_pass_is_tried_again_as_often_as_allowed_and_then_fails(store: JobStore) -> None:
    def kind(_: JobRun) -> RunEnd:
        raise UnavailableError("the broker does not answer")

    job = store.create(SPEC.model_copy(update={"max_attempts": 3}))
    for number in (1, 2):
        job = attempt(store, kind, taken(store, job))
        assert (job.state, job.attempts, job.progress.failures) == (JobState.WAITING, number, number)
        assert f"attempt {number} of 3 failed: the broker does not answer" in job.reason
        assert job.next_at is not None
        assert job.next_at > now_ms()
        job = store.update(job.id, lambda one: replace(one, next_at=None))
    job = attempt(store, kind, taken(store, job))
    assert (job.state, job.reason) == (
        JobState.FAILED,
        "the broker does not answer; tried 3 times without progress",
    )


def test_progress_begins_the_count_of_attempts_anew(store: JobStore) -> None:
    def kind(run: JobRun) -> RunEnd:
        run.advance(done=run.progress.done + 1)
        raise UnavailableError("the broker does not answer")

    job = store.create(SPEC.model_copy(update={"max_attempts": 2}))
    for _ in range(5):
        job = attempt(store, kind, taken(store, job))
        assert job.state is JobState.WAITING
        job = store.update(job.id, lambda one: replace(one, next_at=None))


def test_a_failure_that_cannot_pass_fails_at_once(store: JobStore) -> None:
    def kind(_: JobRun) -> RunEnd:
        raise GapError("orders", 5, 10)

    job = attempt(store, kind)
    assert (job.state, job.reason) == (JobState.FAILED, "orders has a gap: offsets 5 to 9 (not archived)")


def test_a_defect_fails_the_job_with_its_traceback_in_the_log(store: JobStore) -> None:
    def kind(_: JobRun) -> RunEnd:
        return 1 / 0  # type: ignore[return-value]

    job = attempt(store, kind)
    assert (job.state, job.reason) == (JobState.FAILED, "ZeroDivisionError: division by zero")
    assert "test_attempt.py" in texts(store, job)


def test_what_was_skipped_is_counted_once_and_fails_the_job(store: JobStore) -> None:
    def kind(run: JobRun) -> RunEnd:
        for _ in range(2):
            run.skip("offsets 5 to 9", 5, "never archived")
        return Finished()

    job = attempt(store, kind)
    assert (job.state, job.skipped.count) == (JobState.FAILED, 5)
    assert texts(store, job).count("skipped 5: offsets 5 to 9: never archived") == 1


def test_a_run_that_waits_is_due_at_its_time(store: JobStore) -> None:
    job = attempt(store, lambda _: WaitsUntil(TimestampMs(now_ms() + 60_000), "nothing new"))
    assert (job.state, job.attempts, job.reason) == (JobState.WAITING, 0, "nothing new")
    assert acquire(store, job, "worker-2") is None


@pytest.mark.parametrize(
    ("ask", "state"),
    [(JobStore.pause, JobState.PAUSED), (JobStore.cancel, JobState.CANCELLED)],
    ids=["pause", "cancel"],
)
def test_a_running_job_stops_at_its_next_safe_place(
    store: JobStore, ask: Callable[[JobStore, str], Job], state: JobState
) -> None:
    def kind(run: JobRun) -> RunEnd:
        ask(store, run.job.id)
        while not run.should_stop():
            threading.Event().wait(0.005)
        run.advance(cursor={"at": 4})
        return Interrupted()

    job = attempt(store, kind)
    assert (job.state, job.wish, job.cursor) == (state, None, {"at": 4})


def test_a_running_job_goes_on_with_what_was_edited(store: JobStore) -> None:
    rates: list[float | None] = []

    def kind(run: JobRun) -> RunEnd:
        rates.append(run.spec.rate)  # type: ignore[union-attr]
        if len(rates) == 2:
            return Finished()
        store.edit(run.job.id, {"rate": 5.0})
        while not run.should_stop():
            threading.Event().wait(0.005)
        return Interrupted()

    job = attempt(store, kind)
    assert rates == [None, 5.0]
    assert (job.state, job.epoch) == (JobState.SUCCEEDED, 1)


def test_a_worker_that_ends_lets_another_go_on_at_once(store: JobStore) -> None:
    def kind(run: JobRun) -> RunEnd:
        assert run.should_stop()
        return Interrupted()

    job = run_attempt(store, taken(store), kind, worker_stops=lambda: True)
    assert job is not None
    assert job.state is JobState.WAITING
    assert taken(store, job, "worker-2").epoch == 2


def test_a_worker_whose_job_was_taken_over_writes_nothing_more(store: JobStore) -> None:
    def kind(run: JobRun) -> RunEnd:
        taken(store, store.get(run.job.id), "worker-2", is_dead=True)
        run.advance(cursor={"at": "stolen"})
        with pytest.raises(LeaseLostError):
            run.checkpoint()
        assert run.should_stop()
        with pytest.raises(LeaseLostError):
            run.check_lease()
        return Finished()

    job = taken(store)
    assert run_attempt(store, job, kind, keep_every_s=60) is None
    found = store.get(job.id)
    assert found.lease is not None
    assert (found.epoch, found.lease.worker, found.cursor) == (2, "worker-2", {})


def test_a_worker_that_cannot_reach_the_table_stops_when_its_lease_is_over(store: JobStore) -> None:
    seconds = [0.0]
    run = JobRun(store, taken(store, lease_s=10), clock=lambda: seconds[0])
    seconds[0] = 9.9
    assert not run.should_stop()
    seconds[0] = 10
    assert run.should_stop()
    with pytest.raises(LeaseLostError):
        run.check_lease()


def test_only_one_of_many_gets_a_job(store: JobStore) -> None:
    job = store.create(SPEC)
    found: list[Job | None] = []
    threads = [threading.Thread(target=lambda n=n: found.append(acquire(store, job, f"worker-{n}"))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([one for one in found if one is not None]) == 1


def test_what_was_asked_of_a_dead_worker_is_done_by_the_next(store: JobStore) -> None:
    job = taken(store)
    job = store.pause(job.id)
    assert acquire(store, job, "worker-2", is_dead=True) is None
    assert store.get(job.id).state is JobState.PAUSED


def test_a_job_of_which_workers_die_again_and_again_fails(store: JobStore) -> None:
    job = taken(store, store.create(SPEC.model_copy(update={"max_attempts": 2})))
    job = taken(store, job, "worker-2", is_dead=True)
    assert acquire(store, job, "worker-3", is_dead=True) is None
    found = store.get(job.id)
    assert found.state is JobState.FAILED
    assert found.reason == "its worker died 2 times in a row without progress; the last one was worker-2"


class Race:
    """Workers that take a job from each other, and go on though it was taken: a target that tells what it has."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = JobStore(MemoryTable())
        self.job_id = self.store.create(SPEC).id
        self.target: list[int] = []
        self.runs: list[JobRun] = []

    def take(self, worker: str) -> None:
        job = self.store.get(self.job_id)
        found = acquire(self.store, job, worker, is_dead=job.state is JobState.RUNNING)
        if found is not None:
            self.runs.append(JobRun(self.store, found))

    def step(self, run: JobRun) -> bool:
        """Do one step of a run; return whether it goes on."""
        if run.should_stop():
            return False
        at = max(int(run.cursor.get("at", 0)), len(self.target))
        if at == 30:
            run.finish(lambda job: replace(job, state=JobState.SUCCEEDED, lease=None), "done")
            return False
        self.target.append(at)
        if self.chance.random() < 0.7:
            run.advance(cursor={"at": at + 1}, done=at + 1)
        if self.chance.random() < 0.5:
            run.checkpoint()
        return True


@pytest.mark.parametrize("seed", range(60))
def test_workers_that_die_or_stall_at_any_place_append_each_message_once(seed: int) -> None:
    race = Race(seed)
    number = 0
    while not race.store.get(race.job_id).state.has_ended:
        number += 1
        if not race.runs or race.chance.random() < 0.05:
            race.take(f"worker-{number}")
        run = race.chance.choice(race.runs)
        try:
            goes_on = race.step(run)
        except LeaseLostError:
            goes_on = False
        if not goes_on:
            race.runs.remove(run)
    assert race.store.get(race.job_id).state is JobState.SUCCEEDED
    assert race.target == list(range(30))


@pytest.mark.parametrize("end", [Finished(), WaitsUntil(TimestampMs(now_ms() + 3_600_000))], ids=["done", "waits"])
def test_an_edit_that_comes_as_a_run_ends_is_not_lost(store: JobStore, end: RunEnd) -> None:
    def kind(run: JobRun) -> RunEnd:
        run.advance(cursor={"at": 100})
        store.edit(run.job.id, {"end": "200"})
        return end

    job = run_attempt(store, taken(store), kind, keep_every_s=60)
    assert job is not None
    assert (job.state, job.cursor, job.spec.end) == (JobState.WAITING, {"at": 100}, "200")  # type: ignore[union-attr]
    assert job.is_due(now_ms())


def test_an_edit_that_changes_nothing_of_the_work_does_not_repeat_it(store: JobStore) -> None:
    def kind(run: JobRun) -> RunEnd:
        run.skip("offsets 5 to 9", 5, "never archived")
        store.edit(run.job.id, {"name": "nightly", "allow_skipped": True})
        return Finished()

    job = run_attempt(store, taken(store), kind, keep_every_s=60)
    assert job is not None
    assert (job.state, job.spec.name) == (JobState.SUCCEEDED, "nightly")


def test_a_kind_that_says_nothing_of_its_end_fails_the_job(store: JobStore) -> None:
    job = attempt(store, lambda _: None)  # type: ignore[arg-type, return-value]
    assert (job.state, job.reason) == (JobState.FAILED, "TypeError: a run ended with None")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_worker_that_is_told_to_end_at_once_leaves_the_job_to_another(
    store: JobStore, error: type[BaseException]
) -> None:
    def kind(run: JobRun) -> RunEnd:
        run.advance(cursor={"at": 7})
        run.checkpoint()
        raise error

    job = taken(store)
    with pytest.raises(error):
        run_attempt(store, job, kind, keep_every_s=0.01)
    found = store.get(job.id)
    assert (found.state, found.cursor) == (JobState.RUNNING, {"at": 7})
    assert taken(store, found, "worker-2", is_dead=True).cursor == {"at": 7}


class RefusingTable(MemoryTable):
    """Refuses some writes."""

    refusals = 0

    def put_state(self, *changed: StateItem) -> None:
        if self.refusals:
            self.refusals -= 1
            raise UnavailableError("the table asks to slow down")
        super().put_state(*changed)


def test_the_end_of_a_run_is_written_as_long_as_the_lease_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else another worker would count a death, which is one too many of a job that is tried once."""
    monkeypatch.setattr("coldstream.retry.time", SimpleNamespace(sleep=lambda _: None))
    table = RefusingTable()
    store = JobStore(table)
    job = taken(store, store.create(SPEC.model_copy(update={"max_attempts": 1})))

    def kind(_: JobRun) -> RunEnd:
        table.refusals = 5
        return Finished()

    after = run_attempt(store, job, kind, keep_every_s=60)
    assert after is not None
    assert after.state is JobState.SUCCEEDED


def test_the_end_of_a_run_that_no_table_takes_is_left_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [0.0]
    monkeypatch.setattr(
        "coldstream.retry.time", SimpleNamespace(sleep=lambda delay: seconds.append(seconds.pop() + delay))
    )
    monkeypatch.setitem(JobRun.__init__.__kwdefaults__, "clock", lambda: seconds[0])
    table = RefusingTable()
    store = JobStore(table)
    job = taken(store)

    def kind(_: JobRun) -> RunEnd:
        table.refusals = 10_000
        return Finished()

    with pytest.raises(UnavailableError):
        run_attempt(store, job, kind, keep_every_s=60)
    assert 14 < seconds[0] < 18
    table.refusals = 0
    assert taken(store, store.get(job.id), "worker-2", is_dead=True).epoch == 2


class RivalTable(MemoryTable):
    """Somebody else writes first, and the answer that tells of it is lost."""

    rival: Callable[[], object] | None = None

    def put_state(self, *changed: StateItem) -> None:
        if self.rival is not None:
            rival, self.rival = self.rival, None
            rival()
            raise OutcomeUnknownError("no answer came")
        super().put_state(*changed)


def test_of_two_workers_with_one_name_that_take_a_job_in_the_same_moment_one_has_it() -> None:
    table = RivalTable()
    store = JobStore(table)
    job = store.create(SPEC)
    now = TimestampMs(job.created_at + 5)
    first: list[Job | None] = []
    table.rival = lambda: first.append(acquire(store, job, "worker", now=lambda: now))
    second = acquire(store, job, "worker", now=lambda: now)
    assert first[0] is not None
    assert second is None
