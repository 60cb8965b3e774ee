"""Jobs that run as Spark on EMR Serverless: started, followed, cancelled. No process waits for them.

The lease of such a job belongs to the run: its worker is `emr:` and the id of the run, and whoever looks at the run
renews it. A run is started with a token of the job's id and epoch. So if whoever started it died before the run's id
was written, the same call is made again, and EMR answers with the run that is there.

    EMR                                          the job
    SUBMITTED, PENDING, SCHEDULED, RUNNING, …    running, with EMR's state beside it
    SUCCESS                                      succeeded
    FAILED                                       failed, with what EMR and the script's summary say
    CANCELLED                                    paused or cancelled, if that was asked; else failed

A pause cancels the run, and resuming starts another: each script finds what is left to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from coldstream.dispatch.emr_arguments import MOST_NAMES, script_call
from coldstream.dispatch.emr_report import EmrReport, report_name
from coldstream.dispatch.emr_run import EmrRun, EmrRuns
from coldstream.errors import AccessDeniedError, ColdstreamError, LeaseLostError, RunnerError
from coldstream.jobs import changes
from coldstream.jobs.attempt import acquire
from coldstream.jobs.job import Job, JobState, Skipped
from coldstream.jobs.specs import EraseSpec, StoreSpec
from coldstream.jobs.store import JobStore
from coldstream.store.ports import ManifestTable
from coldstream.units import TimestampMs
from coldstream.upkeep.choice import StreamChoice

EMR_PREFIX = "emr:"
"""The names of runs as workers begin with this; the id follows once there is one."""

LEASE_S = 3600.0
"""A run is looked at each minute, and outlives whoever looks. Nobody takes it over before."""

MAX_STATE = 200


def is_on_emr(job: Job) -> bool:
    """Tell whether a job runs on EMR, or is being started there."""
    return job.state is JobState.RUNNING and job.lease is not None and job.lease.worker.startswith(EMR_PREFIX)


@dataclass(frozen=True, slots=True)
class EmrJobs:
    """Starts and follows the runs of jobs. Any number of processes may do that at once.

    `url_expiry_s` is how long the resolvers' URLs are valid: what a run removes stays for longer.
    """

    store: JobStore
    table: ManifestTable
    runs: EmrRuns
    url_expiry_s: int

    def start(self, job: Job) -> Job | None:
        """Take a job that is due, and start its run; return what became of it, None if another has it.

        Cost: two transactions, a request to EMR, and a Query and a GetItem for each stream that it names.
        """
        taken = acquire(self.store, job, EMR_PREFIX, lease_s=LEASE_S, now=self.store.now)
        return None if taken is None else self._launch(taken)

    def follow(self, job: Job) -> Job | None:
        """Look at the run of a job, and write what became of it; return that, None if another has the job.

        Cost: one or two requests to EMR, and a write.
        """
        assert job.lease is not None
        run_id = job.lease.worker.removeprefix(EMR_PREFIX)
        if not run_id:
            return self._launch(job)
        if job.wish is not None:
            self.runs.cancel(run_id)
        run = self.runs.look(run_id)
        if run is None:
            return self._write(
                job, lambda current: changes.failed(current, f"EMR knows no run {run_id}", self.store.now())
            )
        return self._ended(job, run) if run.has_ended else self._beaten(job, run)

    def _launch(self, job: Job) -> Job | None:
        try:
            names, skipped = self._streams(job)
            call = script_call(job, names, url_expiry_s=self.url_expiry_s, report=report_name(job))
            name, tags = f"coldstream {job.kind} {job.id}", {"coldstream-job": job.id}
            run_id = self.runs.start(f"{job.id}-{job.epoch}", name, call, tags)
        except ColdstreamError as err:
            reason = str(err)
            if err.retryable and not isinstance(err, AccessDeniedError):
                # The same call is made again, with the same token, whether or not this one has come through.
                return self._write(
                    job, lambda current: replace(current, runner_state=f"starting: {reason}"[:MAX_STATE])
                )
            return self._write(
                job, lambda current: changes.failed(current, reason, self.store.now()), f"failed: {reason}"
            )

        def started(current: Job) -> Job:
            assert current.lease is not None
            lease = replace(current.lease, worker=f"{EMR_PREFIX}{run_id}")
            return replace(current, lease=lease, runner_state="SUBMITTED", skipped=skipped)

        after = self._write(job, started, f"EMR runs it as {run_id}")
        if after is None:
            self.runs.cancel(run_id)
        return after

    def _streams(self, job: Job) -> tuple[list[str], Skipped]:
        """Return the names of a job's streams, none for all, and what is left out. Raises RunnerError."""
        spec, skipped = job.spec, job.skipped
        if isinstance(spec, EraseSpec):
            return [spec.stream], skipped
        if isinstance(spec, StoreSpec):
            raise RunnerError("EMR reads the archive, and no broker", job.id)
        choice = StreamChoice.find(self.table, spec)
        if choice.is_every:
            return [], skipped
        for name, reason in choice.missing:
            skipped = skipped.plus(f"stream {name!r}", 1, reason)
        for pattern in choice.unmatched(self.table):
            skipped = skipped.plus(f"pattern {pattern!r}", 1, f"no stream in vhost {spec.vhost!r} matches")
        return self._live(job, choice, skipped)

    def _live(self, job: Job, choice: StreamChoice, skipped: Skipped) -> tuple[list[str], Skipped]:
        """Return the names of the streams that are not deleted, once each."""
        names: dict[str, str] = {}
        for stream in choice.iter(self.table):
            head = self.table.head(stream.incarnation)
            if head is None or head.is_deleted:
                continue
            if stream.name in names:
                why = "a run on EMR takes the newest incarnation of a name"
                skipped = skipped.plus(f"{stream}, incarnation {names[stream.name]}", 1, why)
            names[stream.name] = stream.incarnation
            if len(names) > MOST_NAMES:
                raise RunnerError(f"more than {MOST_NAMES} streams match, and a run on EMR takes no more", job.id)
        if not names:
            raise RunnerError("none of its streams is in the archive", job.id)
        return list(names), skipped

    def _beaten(self, job: Job, run: EmrRun) -> Job | None:
        state = run.state if not run.details else f"{run.state}: {run.details}"

        def beaten(current: Job) -> Job:
            assert current.lease is not None
            until = TimestampMs(self.store.now() + current.lease.length_ms)
            lease = replace(current.lease, beat=current.lease.beat + 1, until=until)
            return replace(current, lease=lease, runner_state=state[:MAX_STATE])

        return self._write(job, beaten)

    def _ended(self, job: Job, run: EmrRun) -> Job | None:
        """Write how a run has ended, with what its summary says."""
        report = EmrReport.take(self.table, job)
        told = "; ".join(filter(None, (run.details, *report.problems)))
        now = self.store.now()

        def ended(current: Job) -> Job:
            progress = replace(
                current.progress,
                messages=current.progress.messages + report.messages,
                bytes=current.progress.bytes + report.size_bytes,
            )
            current = replace(current, progress=progress)
            if run.state == "SUCCESS":
                return changes.succeeded(current, now)
            if current.wish is not None:
                return changes.interrupted(current, now)
            if run.state == "CANCELLED":
                return changes.failed(
                    current, f"the run {run.id} was cancelled at EMR: {told or 'nobody says why'}", now
                )
            return changes.failed(current, f"the run {run.id} failed at EMR: {told or 'its log says why'}", now)

        return self._write(job, ended, f"EMR: {run.state}{f': {told}' if told else ''}")

    def _write(self, job: Job, change: Callable[[Job], Job], line: str = "") -> Job | None:
        """Change a job if it still has the epoch and the run that it was read with; return None if it has not."""

        def checked(current: Job) -> Job:
            if not is_on_emr(current) or current.epoch != job.epoch or current.lease is None:
                raise LeaseLostError(job.id, job.epoch)
            if job.lease is None or current.lease.worker != job.lease.worker:
                raise LeaseLostError(job.id, job.epoch)
            return change(current)

        try:
            return self.store.update(job.id, checked, say=line[:2000])
        except LeaseLostError:
            return None
