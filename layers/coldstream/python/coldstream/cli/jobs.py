"""`coldstream jobs`: see and steer jobs. `jobs_create` creates them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli import jobs_archive
from coldstream.cli.confirmation import confirm
from coldstream.cli.jobs_archive import JobId, JobIds
from coldstream.cli.jobs_choices import KindChoice, StateChoice
from coldstream.cli.jobs_output import state_text, write_job, write_jobs, write_log_line
from coldstream.cli.jobs_watch import follow_log, outcome_code, tell_outcome, wait_for_end, watch
from coldstream.cli.options import By, Output, Yes
from coldstream.terminal.output import Format, printable, write, write_json

if TYPE_CHECKING:
    from coldstream.jobs.job import Job, JobState
    from coldstream.jobs.log_lines import LogLine
    from coldstream.jobs.specs import JobKind
    from coldstream.jobs.store import JobStore

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show changes every 2 seconds, until Ctrl-C.")]


def list_jobs(
    *,
    state: Annotated[
        list[StateChoice] | None, typer.Option(help="Only jobs in this state. May be repeated.", show_default=False)
    ] = None,
    kind: Annotated[
        list[KindChoice] | None, typer.Option(help="Only jobs of this kind. May be repeated.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(help="How many at most, newest first.", min=1, max=500)] = 50,
    watching: Watch = False,
    output: Output = Format.TEXT,
) -> None:
    """List jobs, newest first.

    Examples: `coldstream jobs list --state running --state waiting`, `coldstream jobs list --watch`.
    """
    from coldstream.jobs.job import JobState
    from coldstream.jobs.public import public_job
    from coldstream.jobs.specs import JobKind

    store = jobs_archive.open_jobs().jobs
    states, kinds = [JobState(one) for one in state or ()], [JobKind(one) for one in kind or ()]

    def read() -> tuple[Job, ...]:
        return _listed(store, limit, states, kinds)

    if watching:
        watch(read, output)
        return
    found = read()
    if output is Format.JSON:
        for job in found:
            write_json(public_job(job))
        return
    write_jobs(found)
    if not found:
        typer.echo("there are no such jobs: `coldstream jobs create` makes one", err=True)


def _listed(store: JobStore, limit: int, states: Sequence[JobState], kinds: Sequence[JobKind]) -> tuple[Job, ...]:
    """Read jobs until there are so many, or no more: a page may be short."""
    found: list[Job] = []
    cursor = None
    while True:
        page = store.page(cursor, limit - len(found), states=states, kinds=kinds)
        found += page.jobs
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            return tuple(found)


def show(job_id: JobId, *, watching: Watch = False, output: Output = Format.TEXT) -> None:
    """Show all that is known of a job.

    That is its state, how far it is, what it skipped, and its fields. With --watch, until it has ended.
    Example: `coldstream jobs show 7zq3k2m9x1-4f9d2c --watch`.
    """
    from coldstream.jobs.public import public_job

    store = jobs_archive.open_jobs().jobs
    if watching:
        watch(lambda: (store.get(job_id),), output, lambda jobs: write_job(jobs[0]))
        return
    job = store.get(job_id)
    if output is Format.JSON:
        write_json(public_job(job))
    else:
        write_job(job)


def logs(
    job_id: JobId,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    after: Annotated[int, typer.Option(help="Only lines past this number.", min=-1, metavar="NUMBER")] = -1,
    output: Output = Format.TEXT,
) -> None:
    """Show a job's log; its last 1000 lines are kept. Example: `coldstream jobs logs 7zq3k2m9x1-4f9d2c --follow`."""
    from coldstream.jobs.public import public_line

    def on_line(line: LogLine) -> None:
        if output is Format.JSON:
            write_json({"job": job_id, **public_line(line)})
        else:
            write_log_line(line)

    store = jobs_archive.open_jobs().jobs
    follow_log(store, job_id, after=after, on_line=on_line, is_over=lambda job: not follow or job.state.has_ended)


def pause(job_ids: JobIds, *, by: By, output: Output = Format.TEXT) -> None:
    """Pause jobs.

    A running one stops at its next safe place. Example: `coldstream jobs pause 7zq3k2m9x1-4f9d2c`.
    """
    _steer(job_ids, output, lambda store, job_id: store.pause(job_id, by=by))


def resume(
    job_ids: JobIds,
    *,
    by: By,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended; only for one job.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Let paused jobs go on, or failed ones try again.

    Both go on from where they are. Example: `coldstream jobs resume 7zq3k2m9x1-4f9d2c --wait`.
    """
    from coldstream.errors import InvalidSettingError

    if wait and len(job_ids) != 1:
        raise InvalidSettingError("--wait", f"waits for one job, and these are {len(job_ids)}")
    resumed = _steer(job_ids, output, lambda store, job_id: store.resume(job_id, by=by), tells=not wait)
    if wait:
        follow_to_the_end(resumed[0], output)


def cancel(job_ids: JobIds, *, by: By, yes: Yes = False, output: Output = Format.TEXT) -> None:
    """Cancel jobs for good.

    A running one stops at its next safe place. What a job has done stays done.
    Example: `coldstream jobs cancel 7zq3k2m9x1-4f9d2c`.
    """
    confirm(f"Cancel {_named(job_ids)} for good?", yes=yes)
    _steer(job_ids, output, lambda store, job_id: store.cancel(job_id, by=by))


def delete(job_ids: JobIds, *, yes: Yes = False, output: Output = Format.TEXT) -> None:
    """Delete jobs that have ended, with their logs.

    What they did stays. Example: `coldstream jobs delete 7zq3k2m9x1-4f9d2c --yes`.
    """
    confirm(f"Delete {_named(job_ids)} with what is known of how it went?", yes=yes)
    store = jobs_archive.open_jobs().jobs
    for job_id in job_ids:
        store.delete(job_id)
        if output is Format.JSON:
            write_json({"id": job_id, "deleted": True})
        else:
            write(printable(f"deleted job {job_id}"))


def edit(
    job_id: JobId,
    fields: Annotated[
        list[str],
        typer.Argument(
            help="Fields with new values; null for none: rate=500, end=null, schedule='every 6h'.",
            metavar="FIELD=VALUE",
        ),
    ],
    *,
    by: By,
    output: Output = Format.TEXT,
) -> None:
    """Change fields of a job, such as its rate or its end.

    The job must not have ended. A running one goes on with them from its next safe place.
    Example: `coldstream jobs edit 7zq3k2m9x1-4f9d2c rate=500`.
    """
    from coldstream.jobs.public import public_job

    job = jobs_archive.open_jobs().jobs.edit(job_id, _values(fields), by=by)
    if output is Format.JSON:
        write_json(public_job(job))
    else:
        write(printable(f"changed job {job.id}: {', '.join(fields)}"))


def follow_to_the_end(job: Job, output: Format) -> None:
    """Wait for the end of a job, tell how it went, and end the command with its exit code."""
    from coldstream.jobs.public import public_job

    store = jobs_archive.open_jobs().jobs
    ended = wait_for_end(store, job)
    if output is Format.JSON:
        write_json(public_job(ended))
    else:
        tell_outcome(ended)
    if code := outcome_code(job, ended):
        raise typer.Exit(code)


def _steer(
    job_ids: Sequence[str], output: Format, steer: Callable[[JobStore, str], Job], *, tells: bool = True
) -> list[Job]:
    from coldstream.jobs.public import public_job

    store = jobs_archive.open_jobs().jobs
    found = []
    for job_id in job_ids:
        job = steer(store, job_id)
        found.append(job)
        if tells and output is Format.JSON:
            write_json(public_job(job))
        elif tells:
            write(printable(f"job {job.id}: {state_text(job)}"))
    return found


_OF_JSON = frozenset({"rate", "max_attempts", "allow_skipped"})
"""The fields whose values are numbers, true or false; all others are text, an offset too."""


def _values(fields: Sequence[str]) -> dict[str, Any]:
    """Read FIELD=VALUE. Raises InvalidInputError."""
    from coldstream.errors import InvalidInputError

    found: dict[str, Any] = {}
    for text in fields:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidInputError("FIELD=VALUE", f"{text[:80]!r} is not that")
        if name in found:
            raise InvalidInputError(name[:80], "is given twice")
        found[name] = _value(name, value)
    return found


def _value(name: str, text: str) -> Any:
    if name not in _OF_JSON and text != "null":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text  # what it should be instead, its field says


def _named(job_ids: Sequence[str]) -> str:
    return f"job {job_ids[0]}" if len(job_ids) == 1 else f"{len(job_ids)} jobs, {', '.join(job_ids)}"
