"""Jobs as they change: redrawn on a terminal, as lines of JSON, or followed to their end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from time import sleep
from typing import TYPE_CHECKING

import typer

from coldstream.cli.jobs_output import log_text, write_jobs
from coldstream.terminal.exits import ExitCode
from coldstream.terminal.output import Format, printable, write, write_json

if TYPE_CHECKING:
    from coldstream.jobs.job import Job
    from coldstream.jobs.log_lines import LogLine
    from coldstream.jobs.store import JobStore

EVERY_S = 2.0
_CLEAR = "\x1b[H\x1b[J"


def watch(
    read: Callable[[], Sequence[Job]], output: Format, draw: Callable[[Sequence[Job]], None] = write_jobs
) -> None:
    """Show jobs again and again, until all of them have ended if `read` says that by an empty answer, or Ctrl-C.

    As JSON, each job is a line when it is first seen, and whenever it has changed. Raises InvalidSettingError if there
    is no terminal to draw on.
    """
    from coldstream.errors import InvalidSettingError
    from coldstream.jobs.public import public_job

    if output is Format.TEXT and not sys.stdout.isatty():
        raise InvalidSettingError("--watch", "there is no terminal to draw on; --output json writes changes as lines")
    seen: dict[str, int] = {}
    while True:
        jobs = read()
        if output is Format.JSON:
            for job in jobs:
                if seen.get(job.id) != job.revision:
                    write_json(public_job(job))
            seen = {job.id: job.revision for job in jobs}
        else:
            lines = shutil.get_terminal_size().lines
            sys.stdout.write(_CLEAR)
            draw(jobs[: max(1, lines - 3)])
        sys.stdout.flush()
        if jobs and all(job.state.has_ended for job in jobs) and draw is not write_jobs:
            return
        sleep(EVERY_S)


def follow_log(
    store: JobStore,
    job_id: str,
    *,
    after: int,
    on_line: Callable[[LogLine], None],
    is_over: Callable[[Job], bool] = lambda job: job.state.has_ended,
) -> Job:
    """Hand on the lines of a job's log as they come, until the job is over; return it then."""
    while True:
        # Read before the log: what it says at its end is in the log by then.
        job = store.get(job_id)
        for line in store.log(job_id, after=after):
            on_line(line)
            after = line.number
        sys.stdout.flush()
        if is_over(job):
            return job
        sleep(EVERY_S)


def wait_for_end(store: JobStore, job: Job) -> Job:
    """Follow a job until it has ended, or one run of its schedule has; tell its log on standard error."""
    typer.echo("waiting; Ctrl-C leaves the job as it is", err=True)
    return follow_log(
        store,
        job.id,
        after=-1,
        on_line=lambda line: typer.echo(log_text(line), err=True),
        is_over=lambda now: now.state.has_ended or (now.spec.schedule is not None and now.runs > job.runs),
    )


def outcome_code(before: Job, job: Job) -> ExitCode:
    """Return the exit code of a command that waited for a job: 0 succeeded, 1 failed, 7 cancelled."""
    from coldstream.jobs.job import JobState

    if job.state is JobState.CANCELLED:
        return ExitCode.REFUSED
    if job.state is JobState.FAILED or job.failed_runs > before.failed_runs:
        return ExitCode.UNEXPECTED
    return ExitCode.OK


def tell_outcome(job: Job) -> None:
    """Say how a job ended, and what to do if it did not do all."""
    from coldstream.jobs.job import JobState

    write(printable(f"job {job.id} {job.state}{f': {job.reason}' if job.reason else ''}"))
    if job.state is JobState.FAILED:
        advice = f"`coldstream jobs resume {job.id}` tries again from where it is, once the cause is gone"
        typer.echo(advice, err=True)
