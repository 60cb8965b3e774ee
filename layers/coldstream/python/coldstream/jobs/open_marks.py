"""Marks of jobs that have not ended: where workers look for work, however many jobs there were.

    #open-jobs    {id of the job}#{the how many-th time that it was opened}    nothing

A job is opened when it is created, and each time that it is tried again after it had ended. Each time has a mark of its
own, in the transaction that opens it. Nothing makes that mark again, so whoever sees that its time is over may delete
it, however late. What a read does not show yet is no proof of that: a transaction may show its mark before its job.
"""

from __future__ import annotations

from coldstream.jobs.job import OPEN_JOBS, Job
from coldstream.manifest.state_item import StateItem


def mark_of(job: Job) -> StateItem:
    """Return the mark of a job's present time open, or of the last one."""
    return StateItem(OPEN_JOBS, f"{job.id}#{job.openings}", 1, b"")


def marked_job(mark: StateItem) -> str:
    """Return the id of the job that a mark is of."""
    return mark.key.partition("#")[0]


def is_of_now(mark: StateItem, job: Job) -> bool:
    """Tell whether a mark says that a job, as it was read, is open."""
    return _opening(mark) == job.openings and not job.state.has_ended


def is_over(mark: StateItem, job: Job) -> bool:
    """Tell whether the time that a mark is of has ended for certain."""
    return _opening(mark) < job.openings or (_opening(mark) == job.openings and job.state.has_ended)


def _opening(mark: StateItem) -> int:
    number = mark.key.partition("#")[2]
    return int(number) if number.isascii() and number.isdigit() else 0
