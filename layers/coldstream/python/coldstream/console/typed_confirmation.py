"""What somebody types to confirm what cannot be undone: the name of what it is about."""

from __future__ import annotations

from coldstream.errors import InvalidInputError
from coldstream.jobs.job import Job
from coldstream.jobs.specs import EraseSpec, JobSpec, LoadSpec, RetentionSpec

FIELD = "confirm"
_MOST = 80


def word_to_create(spec: JobSpec) -> tuple[str, str] | None:
    """Return what to type before a job is created, and what it does that needs it; None if nothing is lost by it."""
    if isinstance(spec, EraseSpec):
        return _typable(spec.stream, "erase"), "erases the bytes of messages for good"
    if isinstance(spec, RetentionSpec) and not spec.dry_run:
        named = spec.streams[0] if len(spec.streams) == 1 else "retention"
        return _typable(named, "retention"), "removes what the policies let go, for good"
    if isinstance(spec, LoadSpec) and spec.after_load == "delete":
        return _typable(spec.streams[0], "delete"), "removes from the archive what it has loaded"
    return None


def word_of(job: Job) -> str:
    """Return what to type before a job is cancelled or deleted: its name, else its id."""
    return _typable(job.spec.name, job.id)


def check_typed(expected: str, typed: str) -> None:
    """Raise InvalidInputError unless the name was typed."""
    if typed.strip() != expected:
        raise InvalidInputError(FIELD, f"that was not {expected}" if typed else f"type {expected} to confirm")


def _typable(name: str, other: str) -> str:
    """Return a name if somebody can read and type it, else another word."""
    can_be_typed = name.isascii() and name.isprintable() and name.strip() == name and 0 < len(name) <= _MOST
    return name if can_be_typed and "  " not in name else other
