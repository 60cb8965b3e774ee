"""The worker: it looks for jobs that are due, and for those whose worker is gone, and runs each in a thread of its own.

Many workers may run at once. They meet in the table alone: whoever takes a job first has it, and a job whose lease is
over goes to whoever sees that first. A worker that is to end lets go of its jobs at their next safe place, and they
wait for another one.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue

from coldstream.dispatch.dispatcher import Dispatcher
from coldstream.errors import ColdstreamError, CorruptionError, OutcomeUnknownError, UnavailableError
from coldstream.flow.boot_clock import boot_time_s
from coldstream.jobs.attempt import KEEP_EVERY_S, Kind, LeaseWatch, acquire, run_attempt
from coldstream.jobs.job import Job
from coldstream.jobs.run import JobRun, RunEnd
from coldstream.jobs.specs import JobKind
from coldstream.jobs.store import JobStore
from coldstream.retry import Backoff
from coldstream.worker.metrics import WorkerMetrics
from coldstream.worker.options import WorkerOptions

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 30.0
"""Of the pauses after the table could not be reached."""

JITTER = 0.25

TICK_EVERY_S = 60.0
"""How often a worker sees that the jobs of Lambdas and EMR go on, if its environment names them."""

_LOG = logging.getLogger(__name__)


class Worker:
    """Runs jobs until `stop`, or with `once` until none is due. `run` is called once, in any thread.

    Without a dispatcher, it runs every job that does not ask for another runner.
    """

    def __init__(
        self,
        store: JobStore,
        kinds: Mapping[JobKind, Kind],
        options: WorkerOptions,
        metrics: WorkerMetrics | None = None,
        *,
        dispatcher: Dispatcher | None = None,
        keep_every_s: float = KEEP_EVERY_S,
        clock: Callable[[], float] = boot_time_s,
    ) -> None:
        self.metrics = metrics or WorkerMetrics()
        self.options = options
        self._store = store
        self._kinds = {kind: run for kind, run in kinds.items() if kind in options.kinds}
        self._keep_every_s = keep_every_s
        self._clock = clock
        self._dispatcher = dispatcher
        self._ticked_at: float | None = None
        self._watch = LeaseWatch(clock)
        self._is_stopping = False
        # Not events: a signal handler that sets one waits for ever if its thread is just about to wait for that.
        self._news: SimpleQueue[None] = SimpleQueue()
        self._running: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()
        self._unreadable: set[str] = set()

    def stop(self) -> None:
        """Let go of all jobs at their next safe place, and end. A signal handler may call it."""
        self._is_stopping = True
        self._news.put(None)

    def run(self) -> None:
        """Look for jobs and run them. Raises nothing that another look may mend; with `once`, what a look raises."""
        _LOG.info("worker %s begins", self.options.name, extra={"kinds": sorted(self._kinds)})
        backoff = Backoff(FIRST_DELAY_S, MAX_DELAY_S)
        try:
            while not self._is_stopping:
                pause_s = self.options.poll_s * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  not a secret
                try:
                    self._tick()
                    has_work = self._look()
                except ColdstreamError as err:
                    self.metrics.table_failed(str(err))
                    if self.options.once:
                        raise  # whoever runs it again and again has to know, and nobody would end it
                    pause_s = backoff.next_delay_s()
                    _LOG.warning("could not look for jobs: %s", err, extra={"again_in_s": round(pause_s, 1)})
                else:
                    backoff.reset()
                    self.metrics.looked()
                    if self.options.once and not has_work:
                        return
                self._wait(pause_s)
        finally:
            self._is_stopping = True
            for thread in list(self._running.values()):
                thread.join()
            _LOG.info("worker %s has ended", self.options.name)

    def _stops(self) -> bool:
        return self._is_stopping

    def _wait(self, pause_s: float) -> None:
        """Wait for some time, or for news: a job that has ended, or a signal."""
        with suppress(Empty):
            self._news.get(timeout=pause_s)
            while True:  # what came meanwhile is no more news than one
                self._news.get_nowait()

    def _tick(self) -> None:
        """See that the jobs of Lambdas and EMR go on, once a minute."""
        now = self._clock()
        is_soon = self._ticked_at is not None and now - self._ticked_at < TICK_EVERY_S
        if self._dispatcher is None or not self._dispatcher.has_others or is_soon:
            return
        self._ticked_at = now
        for problem in self._dispatcher.tick(self._stops).problems:
            _LOG.warning("%s", problem)

    def _look(self) -> bool:
        """Take what is due and there is room for; return whether anything runs, or was due and not taken.

        Cost: a Query a page of open jobs, a GetItem each, and a transaction for each that is taken.
        """
        jobs = list(self._store.open_jobs(self._report_unreadable))
        self._watch.keep_only({job.id for job in jobs})
        self.metrics.seen(jobs)
        now = self._store.now()
        # Of all jobs it is seen how their leases do, also of those that are not for this worker.
        dead = {job.id for job in jobs if self._watch.is_dead(job)}
        jobs = [job for job in jobs if job.kind in self._kinds and job.id not in self._running]
        due = [job for job in jobs if job.id in dead or job.is_due(now)]
        due = [job for job in due if self._is_for_worker(job)]
        # First what a dead worker had, and then the oldest: with newer ones always in front, it might wait for ever.
        due.sort(key=lambda job: (job.id not in dead, job.next_at or job.created_at, job.created_at))
        for job in due:
            if len(self._running) >= self.options.concurrency or self._is_stopping:
                break
            self._take(job, is_dead=job.id in dead)
        return bool(self._running or due)

    def _is_for_worker(self, job: Job) -> bool:
        if self._dispatcher is None:
            return job.spec.runner in {"auto", "worker"}
        return self._dispatcher.is_for_worker(job)

    def _report_unreadable(self, err: CorruptionError) -> None:
        """Log a job that a later release wrote, or that is damaged; once."""
        if str(err) not in self._unreadable:
            self._unreadable.add(str(err))
            _LOG.error("a job cannot be read, and is left alone: %s", err)

    def _take(self, job: Job, *, is_dead: bool) -> None:
        began = self._clock()
        name, lease_s = self.options.name, self.options.lease_s
        taken = acquire(self._store, job, name, is_dead=is_dead, lease_s=lease_s, now=self._store.now)
        if taken is None:
            return  # another worker was faster, or it has ended by what was asked
        _LOG.info("job %s begins", job.id, extra=_facts(taken))
        thread = threading.Thread(target=self._run_job, args=(taken, began), name=f"job {job.id}")
        with self._lock:
            self._running[job.id] = thread
        thread.start()

    def _run_job(self, job: Job, leased_since: float) -> None:
        ended: Job | None = None
        try:
            ended = run_attempt(
                self._store,
                job,
                self._followed(self._kinds[job.kind]),
                worker_stops=self._stops,
                now=self._store.now,
                keep_every_s=self._keep_every_s,
                leased_since=leased_since,
            )
        except (UnavailableError, OutcomeUnknownError) as err:
            _LOG.warning("job %s: how it ended could not be written: %s", job.id, err, extra=_facts(job))
        except Exception as err:  # noqa: BLE001  it is logged whole
            # A defect: the lease runs out, and an attempt is spent. The worker's other jobs go on.
            _LOG.exception("job %s: %s", job.id, type(err).__name__, extra=_facts(job))
        finally:
            if ended is not None:
                _LOG.info("job %s is %s", job.id, ended.state, extra=_facts(ended))
            self.metrics.ended(job, ended)
            with self._lock:
                del self._running[job.id]
            self._news.put(None)

    def _followed(self, kind: Kind) -> Kind:
        def run(given: JobRun) -> RunEnd:
            with self.metrics.following(given):
                return kind(given)

        return run


def _facts(job: Job) -> dict[str, object]:
    """Return what the log says beside a message of a job."""
    facts: dict[str, object] = {"job": job.id, "kind": job.kind.value, "state": job.state.value, "epoch": job.epoch}
    return facts | ({"reason": job.reason} if job.reason else {})
