"""A job, its workers and its users at one weak table, under any schedule: one seed is one history.

At each call to the table somebody else may go on, time may pass (also more than a lease: then the caller stalled), a
process may die, a call may fail, and an answer may be lost. While a transaction's answer is on its way, others see each
item of it as it was or as it is, and a write of one of them is refused. What is promised is held against each write,
and at the end, when there is no trouble any more, a worker brings the job to an end.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from coldstream.errors import (
    ColdstreamError,
    GapError,
    JobNotFoundError,
    JobStateError,
    LeaseLostError,
    LostRaceError,
    OutcomeUnknownError,
    UnavailableError,
)
from coldstream.jobs.attempt import LeaseWatch, acquire, run_attempt
from coldstream.jobs.job import JOB_KEYS, JOBS, Job, JobState, Wish
from coldstream.jobs.open_marks import mark_of
from coldstream.jobs.run import Finished, Interrupted, JobRun, RunEnd, WaitsUntil
from coldstream.jobs.specs import parse_spec
from coldstream.jobs.store import JobStore
from coldstream.manifest.state_item import StateItem
from coldstream.plain_json import read_json
from coldstream.store.memory.table import MemoryTable
from coldstream.units import TimestampMs
from tests.support.histories import Killed, Turns

LEASE_S = 10.0
KEY = "one key"
RING = 16
"""Lines that a log keeps here, so that it goes round."""


class BrokenPromiseError(BaseException):
    """Something that no schedule may lead to. No `Exception`: no worker may take it for a defect of a kind."""


def hold(promise: bool, otherwise: str) -> None:  # noqa: FBT001  an assertion that nobody catches
    """Hold a promise."""
    if not promise:
        raise BrokenPromiseError(otherwise)


class WeakTable(MemoryTable):
    """The table, as weak as DynamoDB, with trouble."""

    def __init__(self, world: JobWorld) -> None:
        super().__init__()
        self._world = world
        self._under_way: dict[tuple[str, str], StateItem | None] = {}

    def state_item(self, partition: str, key: str) -> StateItem | None:
        self._world.call(UnavailableError)
        return self._seen(partition, key)

    def state_items(self, partition: str, *, after: str = "", page_items: int | None = None) -> Iterator[StateItem]:
        self._world.call(UnavailableError)
        keys = {key for of, key in (*self._states, *self._under_way) if of == partition and key > after}
        for key in sorted(keys):
            self._world.turns.switch(0.1)
            if (item := self._seen(partition, key)) is not None:
                yield item

    def put_state(self, *changed: StateItem) -> None:
        self._write([(one.partition, one.key) for one in changed], lambda: super(WeakTable, self).put_state(*changed))

    def delete_state(self, item: StateItem) -> None:
        self._write([(item.partition, item.key)], lambda: super(WeakTable, self).delete_state(item))

    def _write(self, keys: list[tuple[str, str]], write: Callable[[], None]) -> None:
        self._world.call(UnavailableError, OutcomeUnknownError, LostRaceError)
        if any(key in self._under_way for key in keys):
            raise LostRaceError("another transaction is just writing it")
        before = {key: self._states.get(key) for key in keys}
        write()
        self._world.check({key: (item, self._states.get(key)) for key, item in before.items()})
        if len(keys) > 1:
            self._under_way |= before
        try:
            self._world.turns.switch(0.5)
        finally:
            for key in keys:
                self._under_way.pop(key, None)
        self._world.call(OutcomeUnknownError)

    def _seen(self, partition: str, key: str) -> StateItem | None:
        if (partition, key) in self._under_way and self._world.rng.random() < 0.5:
            return self._under_way[partition, key]
        return self._states.get((partition, key))


class JobWorld:
    """One seed's."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.turns = Turns(self.rng)
        self.seconds = 0.0
        self.trouble = self.rng.choice([0.0, 0.02, 0.06])
        self.table = WeakTable(self)
        self.store = JobStore(self.table, self.now)
        self.targets: dict[str, list[int]] = defaultdict(list)
        """What each job has appended."""
        self.created: set[str] = set()
        """The jobs that the key has created since it was free."""
        self.ever: set[str] = set()
        self.running: dict[int, JobRun] = {}
        """The attempts that have not returned, by thread."""
        self.working: list[JobRun] = []
        """Those whose kind has not returned."""
        self.failures = 4

    def now(self) -> TimestampMs:
        return TimestampMs(1_800_000_000_000 + round(self.seconds * 1000))

    def clock(self) -> float:
        return self.seconds

    def call(self, *errors: type[ColdstreamError]) -> None:
        """Come to a call, or to its answer."""
        chance = self.rng.random()
        if chance < self.trouble:
            raise self.rng.choice([Killed, *errors])("a fault")
        self.seconds += self.rng.choice([0, 0, 0.1, 1])
        if self.trouble and chance > 0.98:
            self.seconds += 2 * LEASE_S
        self.turns.switch(0.6)

    def play(self) -> None:
        """Let it happen, then bring it to an end, and check that this is the end that was wanted."""
        works = [self._create, self._create, self._use, self._use, *[self._work_as(f"worker-{n}") for n in range(3)]]
        self.turns.run([self._as_process(work) for work in works])
        self.trouble = 0.0
        self._end()

    def check(self, written: Mapping[tuple[str, str], tuple[StateItem | None, StateItem | None]]) -> None:
        """Hold a write against what is promised."""
        for (partition, _), (old, new) in written.items():
            if partition == JOB_KEYS and (new is None or not read_json(new.data)["spec"]):
                self.created.clear()  # the key is free
            if partition == JOBS and new is not None:
                self._check_change(None if old is None else Job.from_item(old), Job.from_item(new))
        for (partition, _), item in self.table._states.items():
            if partition == JOBS and not (job := Job.from_item(item)).state.has_ended:
                mark = mark_of(job)
                hold((mark.partition, mark.key) in self.table._states, f"an open job without a mark: {job.state}")

    def _check_change(self, before: Job | None, after: Job) -> None:
        if before is None:
            self.created.add(after.id)
            self.ever.add(after.id)
            hold(len(self.created) == 1, "one key created two jobs")
            return
        hold(after.epoch in {before.epoch, before.epoch + 1}, "an epoch leaps")
        run = self.running.get(threading.get_ident())
        if run is not None:
            hold(after.epoch == before.epoch == run.job.epoch, "a worker wrote after it was taken over")
        if before.wish is Wish.CANCEL:
            hold(after.wish is Wish.CANCEL or after.state.has_ended, "a wish to cancel was lost")
        if before.wish is Wish.PAUSE and run is not None:
            hold(
                after.wish is Wish.PAUSE or after.state.has_ended or after.state is JobState.PAUSED, "a pause was lost"
            )
        if run is not None and after.state is JobState.SUCCEEDED:
            hold(len(self.targets[after.id]) >= int(after.spec.end), "done is not all of it")  # type: ignore[union-attr]

    def _create(self) -> None:
        for _ in range(20):
            with suppress(OutcomeUnknownError, UnavailableError, LostRaceError):
                self.store.create(self._spec(), idempotency_key=KEY)
                return

    def _spec(self) -> Any:
        target = {"type": "stream", "name": "again"}
        return parse_spec({"kind": "load", "streams": ["orders"], "target": target, "end": "6", "max_attempts": 100})

    def _use(self) -> None:
        for _ in range(self.rng.randrange(1, 8)):
            jobs = [key for of, key in self.table._states if of == JOBS]
            self.turns.switch()
            if not jobs:
                continue
            call = self.rng.choice([self._pause, self._resume, self._resume, self._cancel, self._edit, self._delete])
            if call in {self._cancel, self._delete} and self.rng.random() < 0.6:
                continue
            with suppress(JobStateError, JobNotFoundError, OutcomeUnknownError, UnavailableError, LostRaceError):
                call(jobs[0])

    def _pause(self, job_id: str) -> None:
        self.store.pause(job_id)

    def _resume(self, job_id: str) -> None:
        self.store.resume(job_id)

    def _cancel(self, job_id: str) -> None:
        self.store.cancel(job_id)

    def _edit(self, job_id: str) -> None:
        self.store.edit(job_id, {"end": str(self.rng.randrange(6, 14))})

    def _delete(self, job_id: str) -> None:
        self.store.delete(job_id)

    def _work_as(self, name: str) -> Callable[[], None]:
        lives = iter(range(100))
        return lambda: self._work(f"{name}.{next(lives)}", turns=self.rng.randrange(3, 12))

    def _work(self, worker: str, turns: int) -> None:
        watch = LeaseWatch(self.clock)
        for _ in range(turns):
            self.turns.switch()
            with suppress(OutcomeUnknownError, UnavailableError, LostRaceError):
                for job in self.store.open_jobs():
                    began = self.seconds
                    dead = watch.is_dead(job)
                    mine = acquire(self.store, job, worker, is_dead=dead, lease_s=LEASE_S, now=self.now)
                    if mine is None:
                        continue
                    try:
                        run_attempt(self.store, mine, self._kind, now=self.now, leased_since=began)
                    finally:
                        self.running.pop(threading.get_ident(), None)
            self.seconds += self.rng.choice([0, 2, LEASE_S])

    def _kind(self, run: JobRun) -> RunEnd:
        self.running[threading.get_ident()] = run
        self.working.append(run)
        try:
            return self._append(run, self.targets[run.job.id])
        finally:
            self.working.remove(run)

    def _append(self, run: JobRun, target: list[int]) -> RunEnd:
        """Append to a target that tells what it has, up to the end, which edits move."""
        while not run.should_stop():
            at = max(int(run.cursor.get("at", 0)), len(target))
            if at >= int(run.spec.end):  # type: ignore[union-attr]
                return Finished()
            if self.failures and self.rng.random() < 0.1:
                self.failures -= 1
                if self.rng.random() < 0.6:
                    raise GapError("orders", 5, 10)
                raise UnavailableError("the broker does not answer")
            if self.rng.random() < 0.05:
                return WaitsUntil(TimestampMs(self.now() + 1000))
            run.check_lease()
            sure = [one for one in self.working if one.job.id == run.job.id and one.is_leased()]
            hold(sure == [run], "two workers are sure of one job")
            target.append(at)
            run.advance(cursor={"at": at + 1}, done=at + 1)
            self._beat(run)
        return Interrupted()

    def _beat(self, run: JobRun) -> None:
        """Do what the thread does that keeps a lease."""
        if self.rng.random() < 0.7:
            try:
                run.checkpoint()
            except LeaseLostError:
                raise
            except ColdstreamError:
                return

    def _as_process(self, work: Callable[[], None]) -> Callable[[], None]:
        def process() -> None:
            for _ in range(3):  # who died is started again
                with suppress(Killed):
                    return work()
            return None

        return process

    def _end(self) -> None:
        self._create()
        # Of a deletion that was interrupted the key is free, and the job may still be there.
        jobs = [key for of, key in self.table._states if of == JOBS]
        hold(len(jobs) >= 1, "there is no job")
        for job_id in jobs:
            self._end_of(job_id)
        for job_id in self.ever:
            with suppress(JobNotFoundError):  # the next deletion finishes one that was interrupted
                self.store.delete(job_id)
        hold(not self.table._states, f"deleted jobs leave {list(self.table._states)}")

    def _end_of(self, job_id: str) -> None:
        for _ in range(100):
            job = self.store.get(job_id)
            if job.state in {JobState.PAUSED, JobState.FAILED}:
                self.store.resume(job_id)
            elif job.state.has_ended:
                break
            self.seconds += 300
            self._work("the last", turns=3)
        job = self.store.get(job_id)
        hold(job.state in {JobState.SUCCEEDED, JobState.CANCELLED}, f"the job is {job.state}: {job.reason}")
        if job.state is JobState.SUCCEEDED:
            end = int(job.spec.end)  # type: ignore[union-attr]
            hold(len(self.targets[job_id]) >= end, "done is not all of it")
        hold(self.targets[job_id] == list(range(len(self.targets[job_id]))), "appended twice, or left out")
        list(self.store.open_jobs())
        self.store.delete(job_id)


def play(seed: int, monkeypatch: pytest.MonkeyPatch) -> JobWorld:
    """Play one seed."""
    world = JobWorld(seed)
    monkeypatch.setattr("coldstream.retry.time", SimpleNamespace(sleep=lambda _: None))
    monkeypatch.setattr("coldstream.jobs.log_lines.KEPT_LINES", RING)
    monkeypatch.setattr("coldstream.jobs.attempt._kept", _nobody_keeps)
    monkeypatch.setitem(JobRun.__init__.__kwdefaults__, "clock", world.clock)
    try:
        world.play()
    except BaseException as err:
        err.add_note(f"seed {seed}")
        raise
    return world


def _nobody_keeps(_: JobRun, __: float) -> AbstractContextManager[None]:
    """Leave the thread away that keeps a lease: the kind does what it does, in its turn."""
    return nullcontext()
