"""The jobs of the archive that the environment names, and their ids for a shell to complete."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.options import COMPLETE_WITHIN_S

if TYPE_CHECKING:
    from coldstream.jobs.store import JobStore
    from coldstream.store.ports import ManifestTable


@dataclass(frozen=True, slots=True)
class JobArchive:
    """The manifest table, and the jobs in it."""

    table: ManifestTable
    jobs: JobStore


def open_jobs() -> JobArchive:
    """Open the archive. Costs no request. Raises InvalidSettingError."""
    from coldstream.cli.stores import open_archive
    from coldstream.jobs.store import JobStore

    table = open_archive().table
    return JobArchive(table, JobStore(table))


def job_ids(incomplete: str) -> list[tuple[str, str]]:
    """Return the ids that begin so, newest first, each with what the job is.

    The list is empty if the table is not set, or does not answer in time.
    """
    found: list[tuple[str, str]] = []
    query = threading.Thread(target=_find_ids, args=(found,), daemon=True)
    query.start()
    query.join(COMPLETE_WITHIN_S)
    return [(job_id, what) for job_id, what in found if job_id.startswith(incomplete)]


def _find_ids(found: list[tuple[str, str]]) -> None:
    from coldstream.errors import ColdstreamError
    from coldstream.terminal.output import printable

    try:
        jobs = open_jobs().jobs.page().jobs
    except ColdstreamError:
        return  # a shell has no place for an error; the command itself will report it
    found += [(job.id, printable(f"{job.kind} {job.state} {job.spec.name}".strip())) for job in jobs]


JobId = Annotated[
    str, typer.Argument(help="Id of the job; `jobs list` shows it.", metavar="JOB", autocompletion=job_ids)
]

JobIds = Annotated[
    list[str], typer.Argument(help="Ids of jobs; `jobs list` shows them.", metavar="JOB", autocompletion=job_ids)
]
