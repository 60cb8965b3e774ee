"""Errors as problems (RFC 9457), and back: the HTTP APIs send them, and the resolver's client raises them again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http import HTTPStatus

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    ConflictError,
    CorruptionError,
    GapError,
    IdempotencyError,
    InvalidInputError,
    InvalidQueryError,
    InvalidSettingError,
    JobNotFoundError,
    JobStateError,
    LogicalNameError,
    MediaTypeError,
    NotFoundError,
    NotPermittedError,
    NotRestoredError,
    ObjectNotFoundError,
    OutcomeUnknownError,
    RouteNotFoundError,
    RunnerError,
    StreamNotFoundError,
    UnavailableError,
)

MEDIA_TYPE = "application/problem+json"
_URN = "urn:coldstream:problem:"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem: its kind, what is wrong with this request, the request's name in the log, and the field to correct."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    field: str | None = None

    def to_json(self) -> str:
        """Encode the body, which `api.ProblemBody` describes and decodes."""
        present = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(present, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """A kind of problem. `tells` says whether the client may see the error's own message."""

    name: str
    status: HTTPStatus
    title: str
    tells: bool = True

    @property
    def type(self) -> str:
        """The URN that names the kind."""
        return _URN + self.name

    def body(self, detail: str, *, instance: str | None = None, field: str | None = None) -> Problem:
        """Make a problem of this kind."""
        return Problem(
            type=self.type, title=self.title, status=self.status, detail=detail, instance=instance, field=field
        )


INVALID_QUERY = ProblemKind("invalid-query", HTTPStatus.BAD_REQUEST, "The request means nothing")
NOT_PERMITTED = ProblemKind("not-permitted", HTTPStatus.FORBIDDEN, "That is not permitted")
STREAM_NOT_FOUND = ProblemKind("stream-not-found", HTTPStatus.NOT_FOUND, "The archive has no such stream")
SUPER_NOT_FOUND = ProblemKind("super-not-found", HTTPStatus.NOT_FOUND, "The archive has no such sharded stream")
ROUTE_NOT_FOUND = ProblemKind("route-not-found", HTTPStatus.NOT_FOUND, "The API has no such path")
JOB_NOT_FOUND = ProblemKind("job-not-found", HTTPStatus.NOT_FOUND, "The archive has no such job")
NOT_FOUND = ProblemKind("not-found", HTTPStatus.NOT_FOUND, "There is no such thing")
GAP = ProblemKind("gap", HTTPStatus.NOT_FOUND, "These offsets are not archived")
WRONG_RUNNER = ProblemKind("wrong-runner", HTTPStatus.CONFLICT, "The runner that is asked for cannot run the job")
JOB_STATE = ProblemKind("job-state", HTTPStatus.CONFLICT, "The job is in a state in which that cannot be done")
OTHER_REQUEST = ProblemKind(
    "idempotency-key-reused", HTTPStatus.CONFLICT, "The idempotency key was given for another request"
)
NOT_RESTORED = ProblemKind("not-restored", HTTPStatus.CONFLICT, "The object is in a cold storage class")
MEDIA = ProblemKind("unsupported-media-type", HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body is of another media type")
METHOD_NOT_ALLOWED = ProblemKind("method-not-allowed", HTTPStatus.METHOD_NOT_ALLOWED, "The path has no such method")
CORRUPT = ProblemKind("archive-corrupt", HTTPStatus.INTERNAL_SERVER_ERROR, "The archive is not what its format says")
UNAVAILABLE = ProblemKind(
    "unavailable", HTTPStatus.SERVICE_UNAVAILABLE, "A service did not answer; try again", tells=False
)
INTERNAL = ProblemKind("internal-error", HTTPStatus.INTERNAL_SERVER_ERROR, "The function failed", tells=False)

# The first class that matches decides, so subclasses come before their bases. An error of the resolver's own settings
# or AWS permissions is an internal error: the client cannot correct it, and its message may name resources.
_KINDS: tuple[tuple[type[ColdstreamError], ProblemKind], ...] = (
    (InvalidSettingError, INTERNAL),
    (MediaTypeError, MEDIA),
    (InvalidInputError, INVALID_QUERY),
    (StreamNotFoundError, STREAM_NOT_FOUND),
    (LogicalNameError, SUPER_NOT_FOUND),
    (RouteNotFoundError, ROUTE_NOT_FOUND),
    (JobNotFoundError, JOB_NOT_FOUND),
    (ObjectNotFoundError, INTERNAL),
    (NotFoundError, NOT_FOUND),
    (GapError, GAP),
    (RunnerError, WRONG_RUNNER),
    (JobStateError, JOB_STATE),
    (IdempotencyError, OTHER_REQUEST),
    (NotRestoredError, NOT_RESTORED),
    # Others kept being first, or no answer came: the same request may do better.
    (ConflictError, UNAVAILABLE),
    (OutcomeUnknownError, UNAVAILABLE),
    (CorruptionError, CORRUPT),
    (NotPermittedError, NOT_PERMITTED),
    (AccessDeniedError, INTERNAL),
    (UnavailableError, UNAVAILABLE),
)


def kind_of(err: Exception) -> ProblemKind:
    """Return the kind of problem that an error is."""
    return next((kind for error, kind in _KINDS if isinstance(err, error)), INTERNAL)


def problem_of(err: Exception, *, instance: str | None = None) -> Problem:
    """Make the problem that reports an error to the client."""
    kind = kind_of(err)
    field = err.field if isinstance(err, InvalidInputError) and kind is INVALID_QUERY else None
    return kind.body(str(err) if kind.tells else kind.title, instance=instance, field=field)


def instance_of(request_id: str) -> str:
    """Return the URN by which a problem names a request."""
    return f"urn:coldstream:request:{request_id}"


def error_of(problem: Problem) -> ColdstreamError:
    """Make the error that a problem reports."""
    words = problem.detail if problem.instance is None else f"{problem.detail} ({problem.instance})"
    if problem.type == INVALID_QUERY.type and problem.field is not None:
        return InvalidQueryError(problem.field, problem.detail.removeprefix(f"{problem.field}: "))
    return _ERRORS.get(problem.type, ColdstreamError)(words)


_ERRORS: dict[str, Callable[[str], ColdstreamError]] = {
    NOT_PERMITTED.type: NotPermittedError,
    STREAM_NOT_FOUND.type: StreamNotFoundError,
    SUPER_NOT_FOUND.type: LogicalNameError,
    ROUTE_NOT_FOUND.type: RouteNotFoundError,
    UNAVAILABLE.type: UnavailableError,
    CORRUPT.type: lambda words: CorruptionError("resolver", 0, words),
}
