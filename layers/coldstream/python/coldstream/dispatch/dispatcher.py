"""The dispatcher of a process: queue and EMR as its environment names them, and what it remembers of who runs what."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from coldstream.dispatch.emr_jobs import EmrJobs, is_on_emr
from coldstream.dispatch.emr_run import EmrServerless
from coldstream.dispatch.job_queue import JobQueue, SqsJobQueue
from coldstream.dispatch.runner import AvailableRunners, Runner, runner_of
from coldstream.dispatch.settings import DispatchSettings
from coldstream.dispatch.tick import MOST_JOBS, TickReport, tick
from coldstream.errors import RunnerError
from coldstream.jobs.job import Job
from coldstream.jobs.store import JobStore
from coldstream.store.open_archive import OpenArchive
from coldstream.store.ports import ManifestReads
from coldstream.units import TimestampMs


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Sees that the jobs of Lambdas and of EMR go on, and tells which jobs are a worker's. `now` is AWS's time."""

    store: JobStore
    table: ManifestReads
    now: Callable[[], TimestampMs]
    queue: JobQueue | None = None
    emr: EmrJobs | None = None
    chosen: dict[str, Runner] = field(default_factory=dict)

    @classmethod
    def of_environment(cls, archive: OpenArchive, environment: Mapping[str, str] = os.environ) -> Self:
        """Open what is configured. Costs no request. Raises InvalidSettingError."""
        settings, clock = DispatchSettings.from_environment(environment), archive.objects.clock
        store, queue, emr = JobStore(archive.table, clock), None, None
        if settings.queue_url is not None:
            queue = SqsJobQueue(settings.queue_url)
        if settings.emr is not None:
            runs = EmrServerless(settings.emr, archive.settings)
            emr = EmrJobs(store, archive.table, runs, archive.settings.url_expiry_s)
        return cls(store, archive.table, clock, queue, emr)

    @property
    def has_others(self) -> bool:
        """Whether anybody but workers runs jobs."""
        return self.queue is not None or self.emr is not None

    def tick(self, should_stop: Callable[[], bool] = lambda: False) -> TickReport:
        """Do what is to be done once a minute; see `dispatch.tick`."""
        return tick(
            self.store, self.table, self.now(), self.queue, self.emr, should_stop=should_stop, chosen=self.chosen
        )

    def is_for_worker(self, job: Job) -> bool:
        """Tell whether a worker runs a job, by what it asks for, or else by its size.

        Cost: nothing without queue and EMR; else that of `size_of`, once for each run.
        """
        if job.spec.runner != "auto" or is_on_emr(job):
            return job.spec.runner == Runner.WORKER and not is_on_emr(job)
        run = f"{job.id} {job.runs}"
        if run not in self.chosen:
            if len(self.chosen) > MOST_JOBS:
                self.chosen.clear()
            try:
                available = AvailableRunners(self.queue is not None, self.emr is not None)
                self.chosen[run] = runner_of(self.table, job.spec, available)
            except RunnerError:
                return False
        return self.chosen[run] is Runner.WORKER
