"""Exit codes, and advice on errors."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    ConflictError,
    ContradictionError,
    CorruptionError,
    ExpiredEpochError,
    GapError,
    HeldError,
    IdempotencyError,
    InvalidInputError,
    InvalidSettingError,
    JobNotFoundError,
    JobStateError,
    MissingExtraError,
    NotClosedError,
    NotDeletedError,
    NotFoundError,
    NotPermittedError,
    NotRestoredError,
    OffsetOutOfRangeError,
    OtherCopiesError,
    OutcomeUnknownError,
    RemovedError,
    ShardChangeError,
    StreamClosedError,
    StreamDeletedError,
    StreamExistsError,
    StreamNotFoundError,
    UnavailableError,
    UnexpectedTailError,
)


class ExitCode(IntEnum):
    """The status that a command or job ends with."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    NOT_FOUND = 3
    GAP = 4
    CORRUPTION = 5
    UNAVAILABLE = 6
    REFUSED = 7
    INTERRUPTED = 130


HELP = (
    "Exit codes: 0 done; 1 unexpected; 2 wrong usage or configuration; 3 no such stream, job, object or queue;"
    " 4 a gap in the archive; 5 corruption; 6 a service is unavailable or denies access; 7 refused: held, deleted,"
    " removed, still changing, or a job's state; 130 interrupted."
)

# The first match counts in both tables, so a class comes before those that it derives from.
_CODES: tuple[tuple[type[ColdstreamError], ExitCode], ...] = (
    (InvalidInputError, ExitCode.USAGE),
    (MissingExtraError, ExitCode.USAGE),
    (NotFoundError, ExitCode.NOT_FOUND),
    (GapError, ExitCode.GAP),
    (CorruptionError, ExitCode.CORRUPTION),
    (ContradictionError, ExitCode.CORRUPTION),
    (UnavailableError, ExitCode.UNAVAILABLE),
    (StreamExistsError, ExitCode.REFUSED),
    (UnexpectedTailError, ExitCode.REFUSED),
    (IdempotencyError, ExitCode.REFUSED),
    (JobStateError, ExitCode.REFUSED),
    (ConflictError, ExitCode.UNAVAILABLE),
    (OutcomeUnknownError, ExitCode.UNAVAILABLE),
    (HeldError, ExitCode.REFUSED),
    (RemovedError, ExitCode.REFUSED),
    (NotDeletedError, ExitCode.REFUSED),
    (ShardChangeError, ExitCode.REFUSED),
    (NotRestoredError, ExitCode.REFUSED),
    (OtherCopiesError, ExitCode.REFUSED),
    (StreamClosedError, ExitCode.REFUSED),
    (ExpiredEpochError, ExitCode.REFUSED),
    (NotClosedError, ExitCode.REFUSED),
    (OffsetOutOfRangeError, ExitCode.REFUSED),
)

_ADVICE: tuple[tuple[type[ColdstreamError], str], ...] = (
    (
        NotPermittedError,
        "the archive's operator can permit it, by a scope of the token or by `coldstream access grant`",
    ),
    (AccessDeniedError, "check the credentials in AWS_* or COLDSTREAM_TOKEN, and what they permit"),
    (UnavailableError, "check that it runs, and its address, or try again; `coldstream up` runs everything locally"),
    (InvalidSettingError, "`coldstream up` prints settings that work"),
    (
        StreamNotFoundError,
        "`coldstream streams` lists the archived streams, with --deleted the deleted ones; --vhost is another vhost",
    ),
    (HeldError, "`coldstream hold list` shows the holds, `coldstream hold release` releases one"),
    (StreamDeletedError, "`coldstream undelete` brings it back until its purge begins"),
    (NotRestoredError, "`coldstream restore` makes it readable for some days"),
    (StreamExistsError, "`coldstream delete` frees the name"),
    (JobNotFoundError, "`coldstream jobs list` shows the jobs"),
    (IdempotencyError, "give another key, or the fields of that time"),
    (ConflictError, "try again"),
    (OutcomeUnknownError, "try again: every command is safe to repeat"),
)

_PERMISSION_ADVICE = "only root and the broker's user can read its files: run this as that user, `sudo -u rabbitmq …`"


def exit_code(err: ColdstreamError) -> ExitCode:
    """Return the exit code of a command that failed with this error."""
    return exit_code_of([type(err)])


def exit_code_of(errors: Iterable[type[ColdstreamError]]) -> ExitCode:
    """Return the exit code of a command whose parts failed one by one: corruption if any, else the first error's."""
    codes = [next((code for kind, code in _CODES if issubclass(err, kind)), ExitCode.UNEXPECTED) for err in errors]
    return ExitCode.CORRUPTION if ExitCode.CORRUPTION in codes else next(iter(codes), ExitCode.OK)


def advice(err: ColdstreamError | OSError) -> str | None:
    """Return advice on an error, or None if the error says it all. The error's own notes take precedence."""
    if notes := getattr(err, "__notes__", None):
        return "; ".join(notes)
    if isinstance(err, OSError):
        return _PERMISSION_ADVICE if isinstance(err, PermissionError) else None
    if isinstance(err, GapError):
        return f"continue after the gap, from offset {err.next_offset}"
    if isinstance(err, InvalidSettingError) and err.field in {"table", "bucket"}:  # AWS has none of that name
        option = " or --to-table" if err.field == "table" else ""
        return f"check the name in COLDSTREAM_{err.field.upper()}{option}, the region and the account"
    # `coldstream up` prints the COLDSTREAM_* settings, but no token, and it knows nothing of options.
    if isinstance(err, InvalidSettingError) and (
        not err.field.startswith("COLDSTREAM_") or err.field.startswith("COLDSTREAM_TOKEN")
    ):
        return None
    return next((text for kind, text in _ADVICE if isinstance(err, kind)), None)
