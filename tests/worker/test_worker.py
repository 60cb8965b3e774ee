"""The worker: which jobs it takes and when, and how it lets go of them. Its kinds of jobs are the test's own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from coldstream.errors import OutcomeUnknownError, UnavailableError
from coldstream.flow.boot_clock import boot_time_s
from coldstream.jobs.attempt import acquire
from coldstream.jobs.job import JOBS, OPEN_JOBS, JobState
from coldstream.jobs.run import Finished, Interrupted, JobRun, RunEnd, WaitsUntil
from coldstream.jobs.specs import JobKind, parse_spec
from coldstream.jobs.store import JobStore
from coldstream.manifest.state_item import StateItem
from coldstream.store.memory.table import MemoryTable
from coldstream.units import TimestampMs, now_ms
from coldstream.worker import worker as worker_module
from coldstream.worker.options import WorkerOptions, parse_kinds
from coldstream.worker.worker import Worker

WITHIN_S = 20.0
"""A bound on what takes a tenth of a second: a machine that is busy must not fail a test."""

SCRUB = parse_spec({"kind": "scrub"})


class Steady:
    """A kind of job that goes on until it is told to stop; it counts how many attempts ran at once."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.most = 0
        self.begun: list[str] = []
        self.release = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, run: JobRun) -> RunEnd:
        with self._lock:
            self.running.append(run.job.id)
            self.begun.append(run.job.id)
            self.most = max(self.most, len(self.running))
        try:
            while not run.should_stop():
                if self.release.wait(0.01):
                    run.advance(done=1, messages=3, bytes_=5)
                    return Finished()
            return Interrupted()
        finally:
            with self._lock:
                self.running.remove(run.job.id)


@pytest.fixture
def table() -> MemoryTable:
    return MemoryTable()


@pytest.fixture
def store(table: MemoryTable) -> JobStore:
    return JobStore(table)


def options(**more: object) -> WorkerOptions:
    return WorkerOptions(**{"lease_s": 2.0, "poll_s": 0.05, **more})  # type: ignore[arg-type]  # a test's own names


@contextmanager
def working(worker: Worker) -> Iterator[Worker]:
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(WITHIN_S)
        assert not thread.is_alive()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_worker_runs_as_many_jobs_at_once_as_it_may_the_oldest_first(table: MemoryTable) -> None:
    times = iter(range(1_700_000_000_000, 1_700_000_100_000))
    store = JobStore(table, lambda: TimestampMs(next(times)))
    jobs = [store.create(SCRUB).id for _ in range(5)]
    steady = Steady()
    with working(Worker(store, {JobKind.SCRUB: steady}, options(concurrency=2))):
        until(lambda: len(steady.running) == 2)
        assert sorted(steady.running) == sorted(jobs[:2])
        steady.release.set()
        until(lambda: all(store.get(one).state is JobState.SUCCEEDED for one in jobs))
    assert steady.most == 2


def test_once_ends_when_nothing_is_due(store: JobStore) -> None:
    done = [store.create(SCRUB).id for _ in range(3)]
    later = store.create(SCRUB).id
    store.pause(later)
    steady = Steady()
    steady.release.set()
    Worker(store, {JobKind.SCRUB: steady}, options(once=True)).run()
    assert [store.get(one).state for one in done] == [JobState.SUCCEEDED] * 3
    assert store.get(later).state is JobState.PAUSED


def test_jobs_of_other_kinds_and_other_runners_are_left_alone(store: JobStore) -> None:
    left = [
        store.create(parse_spec({"kind": "scrub", "runner": "lambda"})),
        store.create(parse_spec({"kind": "scrub", "runner": "emr"})),
        store.create(parse_spec({"kind": "compact"})),
    ]
    taken = store.create(parse_spec({"kind": "scrub", "runner": "worker"}))
    steady = Steady()
    steady.release.set()
    kinds = {JobKind.SCRUB: steady, JobKind.COMPACT: steady}
    Worker(store, kinds, options(once=True, kinds=parse_kinds(["scrub,load"]))).run()
    assert store.get(taken.id).state is JobState.SUCCEEDED
    assert [store.get(one.id).state for one in left] == [JobState.CREATED] * 3


def test_a_worker_that_ends_lets_go_and_another_goes_on_at_once(store: JobStore) -> None:
    job = store.create(SCRUB)
    steady = Steady()
    with working(Worker(store, {JobKind.SCRUB: steady}, options())):
        until(lambda: bool(steady.running))
    found = store.get(job.id)
    assert (found.state, found.lease, found.attempts) == (JobState.WAITING, None, 0)
    assert found.is_due(now_ms())
    steady.release.set()
    Worker(store, {JobKind.SCRUB: steady}, options(once=True)).run()
    assert store.get(job.id).state is JobState.SUCCEEDED


def test_a_dead_workers_job_is_taken_over_once_its_lease_is_over(store: JobStore) -> None:
    job = acquire(store, store.create(SCRUB), "dead", lease_s=2.0)
    assert job is not None
    ahead_s = [0.0]
    steady = Steady()
    steady.release.set()
    with working(Worker(store, {JobKind.SCRUB: steady}, options(), clock=lambda: boot_time_s() + ahead_s[0])):
        time.sleep(0.3)
        assert steady.begun == []
        ahead_s[0] = 3.0
        until(lambda: store.get(job.id).state is JobState.SUCCEEDED)
    assert store.get(job.id).epoch == 2


def test_two_workers_never_run_one_job_at_the_same_time(store: JobStore) -> None:
    jobs = [store.create(SCRUB).id for _ in range(12)]
    steady = Steady()
    steady.release.set()
    with (
        working(Worker(store, {JobKind.SCRUB: steady}, options(concurrency=3))),
        working(Worker(store, {JobKind.SCRUB: steady}, options(concurrency=3))),
    ):
        until(lambda: all(store.get(one).state is JobState.SUCCEEDED for one in jobs))
    assert sorted(steady.begun) == sorted(jobs)


class BrokenTable(MemoryTable):
    """A table that does not answer while it is down."""

    is_down = True

    def state_items(self, *args: object, **named: object) -> Iterator[StateItem]:
        if self.is_down:
            raise UnavailableError("the table is down")
        return super().state_items(*args, **named)  # type: ignore[arg-type]  # passed on


def test_a_table_that_cannot_be_reached_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(worker_module, "MAX_DELAY_S", 0.05)
    table = BrokenTable()
    job = JobStore(table).create(SCRUB)
    steady = Steady()
    steady.release.set()
    with working(Worker(JobStore(table), {JobKind.SCRUB: steady}, options())) as worker:
        until(lambda: worker.metrics.problem is not None)
        assert "coldstream_worker_table_failures_total 0" not in worker.metrics.text()
        table.is_down = False
        until(lambda: JobStore(table).get(job.id).state is JobState.SUCCEEDED)
        until(lambda: worker.metrics.problem is None)


def test_once_ends_with_the_error_if_no_job_can_be_looked_for() -> None:
    with pytest.raises(UnavailableError, match="the table is down"):
        Worker(JobStore(BrokenTable()), {}, options(once=True)).run()


def test_once_ends_with_the_error_if_no_job_can_be_taken() -> None:
    class SilentTable(MemoryTable):
        is_silent = False

        def put_state(self, *changed: StateItem) -> None:
            if self.is_silent:
                raise OutcomeUnknownError("no answer came")
            super().put_state(*changed)

    table = SilentTable()
    job = JobStore(table).create(SCRUB)
    table.is_silent = True
    with pytest.raises(OutcomeUnknownError, match="no answer came"):
        Worker(JobStore(table), {JobKind.SCRUB: Steady()}, options(once=True)).run()
    assert JobStore(table).get(job.id) == job


def test_a_job_that_cannot_be_read_keeps_no_other_from_running(table: MemoryTable, store: JobStore) -> None:
    table.put_state(StateItem(JOBS, "0-bad", 1, b"{"), StateItem(OPEN_JOBS, "0-bad", 1, b""))
    job = store.create(SCRUB)
    steady = Steady()
    steady.release.set()
    Worker(store, {JobKind.SCRUB: steady}, options(once=True)).run()
    assert store.get(job.id).state is JobState.SUCCEEDED


def test_a_job_that_is_paused_resumed_edited_and_cancelled_does_so_soon(store: JobStore) -> None:
    job = store.create(SCRUB)
    steady = Steady()
    with working(Worker(store, {JobKind.SCRUB: steady}, options(), keep_every_s=0.05)):
        until(lambda: bool(steady.running))
        store.pause(job.id)
        until(lambda: store.get(job.id).state is JobState.PAUSED)
        store.resume(job.id)
        until(lambda: bool(steady.running))
        store.edit(job.id, {"name": "another name"})
        until(lambda: len(steady.begun) == 3)  # it goes on with the same lease
        assert store.get(job.id).epoch == 2
        store.cancel(job.id)
        until(lambda: store.get(job.id).state is JobState.CANCELLED)
    store.delete(job.id)
    assert store.find(job.id) is None


def test_a_schedule_runs_again_at_its_time(table: MemoryTable) -> None:
    now = [1_700_000_000_000]
    store = JobStore(table, lambda: TimestampMs(now[0]))
    job = store.create(parse_spec({"kind": "scrub", "schedule": "every 1h"}))

    def kind(run: JobRun) -> RunEnd:
        run.advance(done=1)
        return Finished()

    with working(Worker(store, {JobKind.SCRUB: kind}, options())):
        until(lambda: store.get(job.id).runs == 1)
        assert store.get(job.id).state is JobState.WAITING
        next_at = store.get(job.id).next_at
        assert next_at is not None
        now[0] = next_at + 1
        until(lambda: store.get(job.id).runs == 2)
        store.cancel(job.id)
    assert store.get(job.id).state is JobState.CANCELLED


def test_a_job_that_waits_runs_again_then(store: JobStore) -> None:
    looks: list[TimestampMs] = []

    def kind(run: JobRun) -> RunEnd:
        looks.append(now_ms())
        return Finished() if len(looks) == 3 else WaitsUntil(TimestampMs(now_ms() + 100), "more")

    job = store.create(SCRUB)
    with working(Worker(store, {JobKind.SCRUB: kind}, options())):
        until(lambda: store.get(job.id).state is JobState.SUCCEEDED)
    assert len(looks) == 3


def test_metrics_count_what_jobs_do_while_they_run_and_after(store: JobStore) -> None:
    store.create(SCRUB)
    store.pause(store.create(SCRUB).id)
    steady = Steady()
    with working(Worker(store, {JobKind.SCRUB: steady}, options())) as worker:
        until(lambda: 'coldstream_jobs{kind="scrub",state="running"} 1' in worker.metrics.text())
        text = worker.metrics.text()
        assert 'coldstream_worker_running{kind="scrub"} 1' in text
        assert 'coldstream_jobs{kind="scrub",state="paused"} 1' in text
        steady.release.set()
        until(lambda: 'coldstream_worker_ended_total{kind="scrub",state="succeeded"} 1' in worker.metrics.text())
        text = worker.metrics.text()
    assert 'coldstream_worker_messages_total{kind="scrub"} 3' in text
    assert 'coldstream_worker_bytes_total{kind="scrub"} 5' in text
