"""The jobs in the table: created once, listed, steered by several at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from coldstream.errors import IdempotencyError, InvalidQueryError, JobNotFoundError, JobStateError, LostRaceError
from coldstream.jobs import changes
from coldstream.jobs.attempt import LeaseWatch, acquire
from coldstream.jobs.job import OPEN_JOBS, JobState, Wish
from coldstream.jobs.log_lines import KEPT_LINES
from coldstream.jobs.run import JobRun
from coldstream.jobs.specs import JobKind, parse_spec
from coldstream.jobs.store import JobStore
from coldstream.manifest.state_item import StateItem
from coldstream.store.memory.table import MemoryTable
from coldstream.units import TimestampMs
from tests.jobs.test_specs import LEAST

SPEC = parse_spec({"kind": "load", **LEAST[JobKind.LOAD]})
SCRUB = parse_spec({"kind": "scrub"})


@pytest.fixture
def table() -> MemoryTable:
    return MemoryTable()


@pytest.fixture
def store(table: MemoryTable) -> JobStore:
    return JobStore(table)


def ticking() -> Callable[[], TimestampMs]:
    numbers = iter(range(1_800_000_000_000, 1_900_000_000_000))
    return lambda: TimestampMs(next(numbers))


def test_a_job_is_read_back_as_it_was_created(store: JobStore) -> None:
    job = store.create(SPEC, by="ann")
    assert store.get(job.id) == job
    assert [line.text for line in store.log(job.id)] == ["created by ann"]


def test_the_same_key_creates_one_job_and_another_spec_is_refused(store: JobStore) -> None:
    job = store.create(SPEC, idempotency_key="k")
    assert store.create(SPEC, idempotency_key="k").id == job.id
    with pytest.raises(IdempotencyError):
        store.create(SCRUB, idempotency_key="k")
    assert len(store.page().jobs) == 1


def test_a_repeat_with_the_same_key_is_told_from_a_new_job(store: JobStore) -> None:
    first, repeat = (store.create_once(SPEC, idempotency_key="k") for _ in range(2))
    assert (first.is_new, repeat.is_new) == (True, False)
    assert first.job.id == repeat.job.id
    assert store.create_once(SPEC).is_new


def test_many_who_create_with_one_key_at_once_get_one_job(store: JobStore) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(store.create(SPEC, idempotency_key="k").id)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 8
    assert len(store.page().jobs) == 1


def test_jobs_are_listed_newest_first_a_page_at_a_time(table: MemoryTable) -> None:
    store = JobStore(table, ticking())
    made = [store.create(SCRUB if number % 3 else SPEC).id for number in range(10)]
    seen, cursor = [], None
    while True:
        page = store.page(cursor, 4)
        seen += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == made[::-1]
    loads = store.page(limit=100, kinds=[JobKind.LOAD]).jobs
    assert [job.kind for job in loads] == [JobKind.LOAD] * 4
    assert store.page(states=[JobState.PAUSED]).jobs == ()
    with pytest.raises(InvalidQueryError):
        store.page(limit=0)
    with pytest.raises(InvalidQueryError):
        store.page("\n")


def test_an_ended_job_is_no_longer_open_and_one_that_is_tried_again_is(store: JobStore, table: MemoryTable) -> None:
    job = store.create(SCRUB)
    assert [one.id for one in store.open_jobs()] == [job.id]
    store.cancel(job.id)
    assert list(table.state_items(OPEN_JOBS)) == []
    assert list(store.open_jobs()) == []


def test_a_mark_that_an_interrupted_write_left_is_removed(store: JobStore, table: MemoryTable) -> None:
    job = store.create(SCRUB)
    store.cancel(job.id)
    table.put_state(StateItem(OPEN_JOBS, job.id, 1, b""))
    assert list(store.open_jobs()) == []
    assert list(table.state_items(OPEN_JOBS)) == []


def test_a_resumed_job_is_open_though_its_old_mark_is_just_being_removed(store: JobStore, table: MemoryTable) -> None:
    job = store.create(SCRUB)
    store.update(job.id, lambda one: changes.failed(one, "broken", TimestampMs(1)))
    table.put_state(StateItem(OPEN_JOBS, job.id, 1, b""))
    old = StateItem(OPEN_JOBS, job.id, 1, b"")
    store.resume(job.id)
    with pytest.raises(LostRaceError):
        table.delete_state(old)
    assert [one.id for one in store.open_jobs()] == [job.id]


def test_a_deleted_job_leaves_nothing(store: JobStore, table: MemoryTable) -> None:
    job = store.create(SCRUB, idempotency_key="k")
    with pytest.raises(JobStateError):
        store.delete(job.id)
    store.cancel(job.id)
    store.delete(job.id)
    with pytest.raises(JobNotFoundError):
        store.get(job.id)
    with pytest.raises(JobNotFoundError):
        store.log(job.id)
    assert store.create(SPEC, idempotency_key="k").id != job.id


@pytest.mark.parametrize("job_id", ["", "nothing", "\n", "ä", "x" * 300])
def test_what_is_no_job_is_not_found(store: JobStore, job_id: str) -> None:
    with pytest.raises(JobNotFoundError):
        store.get(job_id)


def test_a_pause_and_a_workers_progress_do_not_overwrite_each_other(store: JobStore) -> None:
    job = acquire(store, store.create(SPEC), "worker-1")
    assert job is not None
    run = JobRun(store, job)
    store.pause(job.id)
    run.advance(cursor={"at": 5}, done=5, messages=5)
    run.checkpoint()
    found = store.get(job.id)
    assert (found.wish, found.cursor, found.progress.done) == (Wish.PAUSE, {"at": 5}, 5)
    assert run.should_stop()


def test_a_log_keeps_its_last_thousand_lines(store: JobStore) -> None:
    job = acquire(store, store.create(SPEC), "worker-1")
    assert job is not None
    run = JobRun(store, job)
    for number in range(KEPT_LINES + 100):
        run.say(f"line {number}")
        if number % 40 == 39:
            run.checkpoint()
    run.checkpoint()
    lines = store.log(job.id)
    assert len(lines) == KEPT_LINES
    assert lines[-1].text == f"line {KEPT_LINES + 99}"
    assert [line.number for line in lines] == list(range(lines[0].number, lines[0].number + KEPT_LINES))
    assert store.log(job.id, after=lines[-3].number) == lines[-2:]


def test_a_lease_is_dead_only_when_its_beat_stood_still_for_longer_than_it_lasts(store: JobStore) -> None:
    seconds = [0.0]
    watch = LeaseWatch(lambda: seconds[0])
    job = acquire(store, store.create(SPEC), "worker-1", lease_s=10)
    assert job is not None
    run = JobRun(store, job, clock=lambda: seconds[0])
    assert not watch.is_dead(store.get(job.id))
    seconds[0] = 9
    run.checkpoint()
    seconds[0] = 13
    assert not watch.is_dead(store.get(job.id))
    seconds[0] = 25
    assert not watch.is_dead(store.get(job.id))
    seconds[0] = 26
    assert watch.is_dead(store.get(job.id))
