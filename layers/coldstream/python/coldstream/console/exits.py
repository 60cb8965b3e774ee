"""Exit codes, and what somebody may do about each error."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    ConflictError,
    ContradictionError,
    CorruptionError,
    GapError,
    InvalidInputError,
    InvalidSettingError,
    MissingExtraError,
    NotFoundError,
    NotPermittedError,
    OutcomeUnknownError,
    StreamNotFoundError,
    UnavailableError,
)


class ExitCode(IntEnum):
    """What a command ends with."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    NOT_FOUND = 3
    GAP = 4
    CORRUPTION = 5
    UNAVAILABLE = 6
    INTERRUPTED = 130


HELP = (
    "Exit codes: 0 done; 1 unexpected; 2 wrong usage or configuration; 3 no such stream, object or queue;"
    " 4 a gap in the archive; 5 corruption; 6 a service is unavailable or denies access; 130 interrupted."
)

_CODES: tuple[tuple[type[ColdstreamError], ExitCode], ...] = (
    (InvalidInputError, ExitCode.USAGE),
    (MissingExtraError, ExitCode.USAGE),
    (NotFoundError, ExitCode.NOT_FOUND),
    (GapError, ExitCode.GAP),
    (CorruptionError, ExitCode.CORRUPTION),
    (ContradictionError, ExitCode.CORRUPTION),
    (UnavailableError, ExitCode.UNAVAILABLE),
    (ConflictError, ExitCode.UNAVAILABLE),
    (OutcomeUnknownError, ExitCode.UNAVAILABLE),
)

_ADVICE: tuple[tuple[type[ColdstreamError], str], ...] = (
    (NotPermittedError, "who runs the archive gives leave: a scope of the token, or `coldstream access grant`"),
    (AccessDeniedError, "check the credentials, AWS_* or COLDSTREAM_TOKEN, and what they may do"),
    (UnavailableError, "check that it runs and where, or try again; `coldstream up` runs everything locally"),
    (InvalidSettingError, "`coldstream up` prints settings that work"),
    (StreamNotFoundError, "`coldstream streams` lists those that are archived; --vhost says in which vhost"),
    (ConflictError, "try again"),
    (OutcomeUnknownError, "try again: everything here is safe to repeat"),
)

_PERMISSION_ADVICE = "a broker's files are its user's: run this as that user, `sudo -u rabbitmq …`, or as root"


def exit_code(err: ColdstreamError) -> ExitCode:
    """Return what a command that failed so ends with."""
    return exit_code_of([type(err)])


def exit_code_of(errors: Iterable[type[ColdstreamError]]) -> ExitCode:
    """Return what a command ends with of which parts failed so, each by itself: corruption before all else."""
    codes = [next((code for kind, code in _CODES if issubclass(err, kind)), ExitCode.UNEXPECTED) for err in errors]
    return ExitCode.CORRUPTION if ExitCode.CORRUPTION in codes else next(iter(codes), ExitCode.OK)


def advice(err: ColdstreamError | OSError) -> str | None:
    """Say what to do about an error, None where the error itself says it all. Notes of the error come first."""
    if notes := getattr(err, "__notes__", None):
        return "; ".join(notes)
    if isinstance(err, OSError):
        return _PERMISSION_ADVICE if isinstance(err, PermissionError) else None
    if isinstance(err, GapError):
        return f"go on behind it, from offset {err.next_offset}"
    if isinstance(err, InvalidSettingError) and (
        not err.field.startswith("COLDSTREAM_") or err.field.startswith("COLDSTREAM_TOKEN")
    ):
        return None
    return next((text for kind, text in _ADVICE if isinstance(err, kind)), None)
