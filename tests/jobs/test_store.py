"""The jobs in the table: created once, listed, steered by several at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from coldstream.errors import (
    ColdstreamError,
    CorruptionError,
    IdempotencyError,
    InvalidQueryError,
    JobNotFoundError,
    JobStateError,
    LostRaceError,
    OutcomeUnknownError,
    UnavailableError,
)
from coldstream.jobs import changes
from coldstream.jobs.attempt import LeaseWatch, acquire
from coldstream.jobs.job import JOB_KEYS, JOBS, OPEN_JOBS, Job, JobState, Wish
from coldstream.jobs.log_lines import KEPT_LINES
from coldstream.jobs.run import JobRun, LeftOut
from coldstream.jobs.specs import JobKind, parse_spec
from coldstream.jobs.store import CreatedJob, JobStore
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


def test_a_page_of_few_among_many_costs_a_few_queries(table: MemoryTable) -> None:
    store = JobStore(table)
    for _ in range(1000):
        store.create(SCRUB)
    table.requests.clear()
    assert store.page(limit=1, states=[JobState.FAILED]).jobs == ()
    assert table.requests == {"Query": 4}


def test_an_ended_job_is_no_longer_open_and_one_that_is_tried_again_is(store: JobStore, table: MemoryTable) -> None:
    job = store.create(SCRUB)
    assert [one.id for one in store.open_jobs()] == [job.id]
    store.cancel(job.id)
    assert list(table.state_items(OPEN_JOBS)) == []
    assert list(store.open_jobs()) == []


def test_a_mark_that_an_interrupted_write_left_is_removed(store: JobStore, table: MemoryTable) -> None:
    job = store.create(SCRUB)
    (mark,) = table.state_items(OPEN_JOBS)
    store.cancel(job.id)
    table.put_state(mark)
    assert list(store.open_jobs()) == []
    assert list(table.state_items(OPEN_JOBS)) == []


def test_a_resumed_job_is_open_though_its_old_mark_is_just_being_removed(store: JobStore, table: MemoryTable) -> None:
    job = store.create(SCRUB)
    (old,) = table.state_items(OPEN_JOBS)
    store.update(job.id, lambda one: changes.failed(one, "broken", TimestampMs(1)))
    # Whoever ended the job found its mark and stalls; another removes it, and somebody tries the job again.
    assert list(table.state_items(OPEN_JOBS)) == []
    store.resume(job.id)
    with pytest.raises(LostRaceError):
        table.delete_state(old)
    assert [one.id for one in store.open_jobs()] == [job.id]


class HalfShownTable(MemoryTable):
    """Shows what a transaction wrote, but for the job: GetItem finds that as it was before."""

    hides = True

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, StateItem | None] = {}

    def put_state(self, *changed: StateItem) -> None:
        before = {one.key: super(HalfShownTable, self).state_item(JOBS, one.key) for one in changed}
        super().put_state(*changed)
        self.before |= {one.key: before[one.key] for one in changed if one.partition == JOBS}

    def state_item(self, partition: str, key: str) -> StateItem | None:
        if self.hides and partition == JOBS and key in self.before:
            return self.before[key]
        return super().state_item(partition, key)


def test_a_mark_that_shows_before_its_job_stays() -> None:
    table = HalfShownTable()
    store = JobStore(table)
    job = store.create(SCRUB)
    assert list(store.open_jobs()) == []
    table.hides = False
    assert [one.id for one in store.open_jobs()] == [job.id]
    store.update(job.id, lambda one: changes.failed(one, "broken", TimestampMs(1)))
    store.resume(job.id)
    table.hides = True
    assert list(store.open_jobs()) == []
    table.hides = False
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


class ResumedMeanwhileTable(MemoryTable):
    """Somebody tries a job again at the moment when it is deleted."""

    meanwhile: Callable[[], object] | None = None

    def delete_state(self, item: StateItem) -> None:
        if item.partition == JOBS and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        super().delete_state(item)


def test_a_job_that_was_tried_again_while_it_was_deleted_stays_whole() -> None:
    table = ResumedMeanwhileTable()
    store = JobStore(table)
    job = store.create(SCRUB, idempotency_key="k")
    for number in range(KEPT_LINES):
        store.update(job.id, lambda one: one, say=f"line {number}")
    store.update(job.id, lambda one: changes.failed(one, "broken", TimestampMs(1)))
    table.meanwhile = lambda: store.resume(job.id)
    with pytest.raises(JobStateError, match="is waiting and cannot be deleted"):
        store.delete(job.id)
    assert len(store.log(job.id)) == KEPT_LINES
    assert store.pause(job.id, by="ann").state is JobState.PAUSED
    store.cancel(job.id)
    store.delete(job.id)
    assert dict(table._states) == {}


class TroubledTable(MemoryTable):
    """Fails some calls: by name of the method, an error each, raised before or after the call took effect."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[ColdstreamError] = []
        self.after: list[ColdstreamError] = []
        self.failing = JOBS

    def put_state(self, *changed: StateItem) -> None:
        if self.before:
            raise self.before.pop(0)
        super().put_state(*changed)
        if self.after:
            raise self.after.pop(0)

    def delete_state(self, item: StateItem) -> None:
        if item.partition.startswith(self.failing) and self.before:
            raise self.before.pop(0)
        super().delete_state(item)
        if item.partition.startswith(self.failing) and self.after:
            raise self.after.pop(0)


@pytest.mark.parametrize("failing", ["#job-keys", "#jobs", "#job-log"])
def test_a_delete_that_was_interrupted_is_finished_by_the_next(failing: str) -> None:
    table = TroubledTable()
    store = JobStore(table)
    job = store.create(SCRUB, idempotency_key="k")
    store.cancel(job.id)
    table.failing = failing
    table.before = [UnavailableError("no table")]
    with pytest.raises(UnavailableError):
        store.delete(job.id)
    store.delete(job.id)
    assert dict(table._states) == {}
    with pytest.raises(JobNotFoundError):
        store.delete(job.id)


def test_a_deleted_job_leaves_the_key_to_the_job_that_has_it_now() -> None:
    table = TroubledTable()
    store = JobStore(table)
    job = store.create(SCRUB, idempotency_key="k")
    store.cancel(job.id)
    table.put_state = partial(fail_next_delete, table)  # type: ignore[method-assign]
    with pytest.raises(UnavailableError):
        store.delete(job.id)
    del table.put_state
    later = store.create(SPEC, idempotency_key="k")
    store.delete(job.id)
    assert store.create(SPEC, idempotency_key="k").id == later.id


class SlowlyReadTable(MemoryTable):
    """Something happens between the next read of a key and what is done about it."""

    meanwhile: Callable[[], object] | None = None

    def state_item(self, partition: str, key: str) -> StateItem | None:
        found = super().state_item(partition, key)
        if partition == JOB_KEYS and (meanwhile := self.meanwhile) is not None:
            self.meanwhile = None
            meanwhile()
        return found


def test_two_who_delete_a_job_leave_its_key_to_the_job_that_was_created_in_between() -> None:
    table = SlowlyReadTable()
    store = JobStore(table)
    job = store.create(SCRUB, idempotency_key="k")
    store.cancel(job.id)
    later: list[Job] = []

    def delete_and_create() -> None:
        store.delete(job.id)
        later.append(store.create(SPEC, idempotency_key="k"))

    table.meanwhile = delete_and_create
    with pytest.raises(JobNotFoundError):
        store.delete(job.id)
    assert store.create_once(SPEC, idempotency_key="k") == CreatedJob(later[0], is_new=False)


@pytest.mark.parametrize("key", [None, "k"])
def test_a_job_is_created_once_whether_answers_are_lost_or_others_write(key: str | None) -> None:
    table = TroubledTable()
    store = JobStore(table)
    table.after = [OutcomeUnknownError("no answer")]
    store.create(SPEC, idempotency_key=key)
    table.before = [OutcomeUnknownError("no answer"), LostRaceError("another transaction is just writing it")]
    store.create(SPEC, idempotency_key=None if key is None else "k2")
    assert len(store.page().jobs) == len(list(store.open_jobs())) == 2


def test_a_key_that_shows_before_its_job_is_of_that_job() -> None:
    table = HalfShownTable()
    store = JobStore(table)
    job = store.create(SPEC, idempotency_key="k")
    threading.Timer(0.05, table.before.clear).start()
    assert store.create(SPEC, idempotency_key="k").id == job.id


def fail_next_delete(table: TroubledTable, *changed: StateItem) -> None:
    MemoryTable.put_state(table, *changed)
    table.before = [UnavailableError("no table")]


def test_a_job_has_ended_though_its_mark_could_not_be_removed() -> None:
    table = TroubledTable()
    store = JobStore(table)
    job = store.create(SCRUB)
    table.failing = OPEN_JOBS
    table.after = []
    ended = changes.cancelled(store.get(job.id), TimestampMs(1))
    table.put_state = partial(fail_next_delete, table)  # type: ignore[method-assign]
    assert store.write(store.get(job.id), ended, []).state is JobState.CANCELLED
    assert list(store.open_jobs()) == []
    assert list(table.state_items(OPEN_JOBS)) == []


@pytest.mark.parametrize("job_id", ["", "nothing", "\n", "ä", "\ud800", "x" * 300])
def test_what_is_no_job_is_not_found(store: JobStore, job_id: str) -> None:
    for call in (store.get, store.delete, store.pause, store.log):
        with pytest.raises(JobNotFoundError):
            call(job_id)


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


def test_what_is_left_out_before_the_cursor_is_written_with_it_and_counted_once(store: JobStore) -> None:
    job = acquire(store, store.create(SPEC), "worker-1")
    assert job is not None
    run = JobRun(store, job)
    gap = LeftOut("offsets 5 to 7", 3, "erased")
    run.advance(cursor={"at": 8}, left_out=[gap])
    run.advance(cursor={"at": 9}, left_out=[gap, LeftOut("offset 8", 1, "erased")])
    assert run.skipped.count == 4
    run.checkpoint()
    found = store.get(job.id)
    assert (found.cursor, found.skipped.count, len(found.skipped.named)) == ({"at": 9}, 4, 2)
    assert sum("skipped" in line.text for line in store.log(job.id)) == 2


def test_a_job_that_cannot_be_read_is_told_and_the_others_follow(store: JobStore, table: MemoryTable) -> None:
    table.put_state(StateItem(JOBS, "0-bad", 1, b"{"), StateItem(OPEN_JOBS, "0-bad", 1, b""))
    job = store.create(SCRUB)
    told: list[CorruptionError] = []
    assert [one.id for one in store.open_jobs(told.append)] == [job.id]
    assert len(told) == 1
    with pytest.raises(CorruptionError):
        list(store.open_jobs())


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


def test_a_job_with_a_line_of_cron_waits_for_its_first_time_and_one_with_an_interval_does_not(
    table: MemoryTable,
) -> None:
    store = JobStore(table, lambda: TimestampMs(1_800_000_000_000))
    nightly = store.create(parse_spec({"kind": "scrub", "schedule": "30 3 * * *"}))
    assert (nightly.state, nightly.next_at) == (JobState.WAITING, 1_800_070_200_000)
    assert not nightly.is_due(TimestampMs(1_800_000_000_001))
    assert store.create(parse_spec({"kind": "scrub", "schedule": "every 6h"})).is_due(TimestampMs(1_800_000_000_000))
