"""Jobs under leases: two workers that look for them, stall, die and take over; and operators who steer them.

The workers' loop is written down here, as the shipped one lives in threads; what decides is shipped: the store, leases
and their watch, the run and how it ends. A job is so many steps, some of which maintain the archive. What a job does is
held against who has it: nobody does a step whose job another has taken, none is left out, and one is done again only by
a later attempt.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from coldstream.errors import ColdstreamError, JobNotFoundError, JobStateError, LeaseLostError
from coldstream.jobs.attempt import LEASE_S, LeaseWatch, _ended, _failed, acquire
from coldstream.jobs.job import JOB_KEYS, OPEN_JOBS, Job, JobState
from coldstream.jobs.log_lines import read_lines
from coldstream.jobs.open_marks import marked_job
from coldstream.jobs.run import Finished, Interrupted, JobRun, RunEnd
from coldstream.jobs.specs import parse_spec
from coldstream.jobs.store import JobStore
from coldstream.units import TimestampMs
from tests.simulation.restartable import Restartable
from tests.simulation.stores import Trouble, Troubled
from tests.simulation.virtual import SimulationLoop
from tests.simulation.watched import SimulatedStores

POLL_S = 10.0
STEPS = 12
SPEC = parse_spec({"kind": "compact", "max_attempts": 5})
DIED = "its worker died"


class JobLedger:
    """The steps that were done of each job, and by which epoch of its lease the last one was."""

    def __init__(self, stores: SimulatedStores) -> None:
        self.steps = 0
        self.again = 0
        self.ids: list[str] = []
        self.deleted: set[str] = set()
        self._table = stores.table
        self._store = JobStore(stores.table, stores.now)
        self._done: dict[str, tuple[int, int]] = {}

    def take(self, run: JobRun, step: int) -> None:
        """Take note of a step."""
        mine, there = run.job, self._store.find(run.job.id)
        told = f"step {step} of job {mine.id} is done in epoch {mine.epoch}"
        assert there is not None, f"{told}, and the job was deleted"
        assert (there.epoch, there.state) == (mine.epoch, JobState.RUNNING), f"{told}: {there.epoch}, {there.state}"
        last, epoch = self._done.get(mine.id, (-1, 0))
        is_next = step <= last + 1 if mine.epoch > epoch else step == last + 1
        assert is_next, f"{told} after step {last} in epoch {epoch}"
        self.again += step <= last
        self.steps += 1
        self._done[mine.id] = step, mine.epoch

    def judge(self) -> None:
        """Hold the jobs against it, once all is well."""
        table = self._table
        marked = {marked_job(mark) for mark in table.state_items(OPEN_JOBS)}
        for job_id in self.ids:
            job = self._store.find(job_id)
            if job is None:
                assert job_id in self.deleted, f"job {job_id} is gone, and nobody deleted it"
                assert job_id not in marked, f"job {job_id} is deleted, and marked as open"
                assert not read_lines(table, job_id), f"job {job_id} is deleted, and its log is there"
                continue
            last, _ = self._done.get(job_id, (-1, 0))
            assert job.state.has_ended, f"job {job_id} is {job.state} at the end"
            assert job.state is not JobState.SUCCEEDED or last == STEPS - 1, f"job {job_id} succeeded at step {last}"
            assert job.state is not JobState.FAILED or DIED in job.reason or "tried" in job.reason, job.reason
            lines = [line.number for line in read_lines(table, job_id)]
            assert lines == list(range(job.lines)), f"the log of job {job_id} has lines {lines} of {job.lines}"
        keys = [item.key for item in table.state_items(JOB_KEYS)]
        known = {job.key_hash for job_id in self.ids if (job := self._store.find(job_id)) is not None}
        assert known.issuperset(keys), "a key is left of a job that is gone"


class SimulatedWorker(Restartable):
    """One worker. `maintain` is what some steps do."""

    def __init__(
        self, name: str, loop: SimulationLoop, rng: random.Random, stores: SimulatedStores, ledger: JobLedger
    ) -> None:
        super().__init__(self._run)
        self.name = name
        self.trouble = Trouble(rng)
        self.stalled_until = 0.0
        self.is_busy = False
        self._loop = loop
        self._rng = rng
        self._ledger = ledger
        self.maintain: Callable[[], None] = lambda: None
        self._ahead_ms = rng.choice([0, 0, -600_000, 600_000])
        self._uptime_s = rng.uniform(0, 1e6)
        self._store = JobStore(Troubled(stores.table, self.trouble), self._now)

    def stall(self, seconds: float) -> None:
        """Stand still, as a process that is stopped does."""
        self.stalled_until = self._loop.time() + seconds

    async def _run(self) -> None:
        watch = LeaseWatch(self._clock)
        while True:
            await self._pause(self._rng.uniform(POLL_S * 0.75, POLL_S * 1.25))
            with suppress(ColdstreamError):
                jobs = list(self._store.open_jobs())
                watch.keep_only({job.id for job in jobs})
                dead = {job.id for job in jobs if watch.is_dead(job)}
                for job in jobs:
                    if job.id in dead or job.is_due(self._now()):
                        await self._pause(self._rng.uniform(0.01, 0.5))  # others take it meanwhile
                        await self._take(job, is_dead=job.id in dead)

    async def _take(self, job: Job, *, is_dead: bool) -> None:
        began = self._clock()
        taken = acquire(self._store, job, self.name, is_dead=is_dead, now=self._now)
        if taken is None:
            return
        run = JobRun(self._store, taken, now=self._now, clock=self._clock, leased_since=began)
        keeper = asyncio.ensure_future(self._keep(run))
        self.is_busy = True
        try:
            end = await self._steps(run)
            change, line = _ended(run, end, self._now)
        except LeaseLostError:
            return
        except ColdstreamError as err:
            change, line = _failed(run, err, self._now)
        finally:
            self.is_busy = False
            keeper.cancel()
        run.finish(change, line)

    async def _keep(self, run: JobRun) -> None:
        while True:
            await self._pause(LEASE_S / 3)
            try:
                run.checkpoint()
            except LeaseLostError:
                return
            except ColdstreamError:
                continue

    async def _steps(self, run: JobRun) -> RunEnd:
        for step in range(run.cursor.get("at", 0), STEPS):
            if run.should_stop():
                return Interrupted()
            await self._pause(self._rng.choice([1.0, 5.0, 20.0]))
            run.check_lease()
            self._ledger.take(run, step)
            if step == STEPS // 2:
                self.maintain()
            run.advance(cursor={"at": step + 1}, done=step + 1, total=STEPS)
        return Finished()

    async def _pause(self, seconds: float) -> None:
        """Sleep, and for as long as the process stands still."""
        until = self._loop.time() + seconds
        while (left_s := max(until, self.stalled_until) - self._loop.time()) > 0:  # noqa: ASYNC110  no event tells
            await asyncio.sleep(left_s)

    def _clock(self) -> float:
        return self._loop.time() + self._uptime_s

    def _now(self) -> TimestampMs:
        return TimestampMs(self._loop.wall_ms() + self._ahead_ms)


class Operators:
    """People who create jobs, twice with the same key at times, and steer and delete them."""

    def __init__(self, rng: random.Random, stores: SimulatedStores, ledger: JobLedger) -> None:
        self.trouble = Trouble(rng)
        self._rng = rng
        self._ledger = ledger
        self._keys = count()
        self._store = JobStore(Troubled(stores.table, self.trouble), stores.now)
        self._truth = JobStore(stores.table, stores.now)

    def create(self) -> None:
        """Create a job, and once more what its key already stands for."""
        key = f"key {next(self._keys)}"
        made = set()
        for _ in range(self._rng.choice([1, 2])):
            with suppress(ColdstreamError):
                made.add(self._store.create(SPEC, idempotency_key=key).id)
        assert len(made) <= 1, f"{key} made {made}"
        self._ledger.ids += [job.id for job in self._truth.page(limit=100).jobs if job.id not in self._ledger.ids]

    def steer(self) -> None:
        """Ask for something."""
        if not self._ledger.ids:
            return
        job_id = self._rng.choice(self._ledger.ids[-4:])
        verbs = [self._store.pause, self._store.resume, self._store.cancel, self._delete, self._delete]
        before, self.trouble.failing = self.trouble.failing, self._rng.choice([0.0, 0.2])
        with suppress(ColdstreamError):
            self._rng.choice(verbs)(job_id)
        self.trouble.failing = before

    def settle(self) -> None:
        """Let what is paused go on, and finish deletions that were interrupted."""
        for job_id in self._ledger.ids:
            with suppress(JobStateError, JobNotFoundError):
                self._truth.resume(job_id) if self._truth.get(job_id).state is JobState.PAUSED else None
            if job_id in self._ledger.deleted:
                with suppress(JobNotFoundError, JobStateError):
                    self._truth.delete(job_id)

    @property
    def are_done(self) -> bool:
        """Whether no job waits for anything."""
        return not list(self._truth.open_jobs())

    def _delete(self, job_id: str) -> None:
        try:
            job = self._truth.find(job_id)
            if job is None or job.state.has_ended:
                self._ledger.deleted.add(job_id)
            self._store.delete(job_id)
        except JobStateError:
            self._ledger.deleted.discard(job_id)
            raise
