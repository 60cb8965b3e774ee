"""Requests that are refused, and errors as problems (RFC 9457), as the resolver has them."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import Response

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    CorruptionError,
    ExpiredEpochError,
    GapError,
    InvalidInputError,
    InvalidSettingError,
    NotClosedError,
    NotRestoredError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    StreamClosedError,
    StreamDeletedError,
    StreamExistsError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.resolve.problem import CORRUPT, INTERNAL, MEDIA_TYPE, UNAVAILABLE, ProblemKind

INVALID = ProblemKind("invalid-request", HTTPStatus.BAD_REQUEST, "The request means nothing")
TOKEN_NEEDED = ProblemKind("token-needed", HTTPStatus.UNAUTHORIZED, "A token is needed")
FORBIDDEN = ProblemKind("not-permitted", HTTPStatus.FORBIDDEN, "The token does not permit this")
FOREIGN_HOST = ProblemKind("foreign-host", HTTPStatus.MISDIRECTED_REQUEST, "The request is for another server")
FOREIGN_PAGE = ProblemKind("foreign-page", HTTPStatus.FORBIDDEN, "The page may not write here")
STALE_PRODUCER = ProblemKind("stale-producer-epoch", HTTPStatus.FORBIDDEN, "A later epoch of the producer has begun")
NO_STREAM = ProblemKind("stream-not-found", HTTPStatus.NOT_FOUND, "There is no such stream")
NO_PATH = ProblemKind("route-not-found", HTTPStatus.NOT_FOUND, "The server has no such path")
READ_ONLY = ProblemKind("read-only", HTTPStatus.METHOD_NOT_ALLOWED, "The stream can only be read here")
NO_METHOD = ProblemKind("method-not-allowed", HTTPStatus.METHOD_NOT_ALLOWED, "The path has no such method")
CONFLICT = ProblemKind("conflict", HTTPStatus.CONFLICT, "The stream is not what the request takes it for")
CLOSED = ProblemKind("stream-closed", HTTPStatus.CONFLICT, "The stream is closed")
SEQUENCE_GAP = ProblemKind("producer-gap", HTTPStatus.CONFLICT, "A request of the producer is missing before this one")
OUT_OF_ORDER = ProblemKind("sequence-regression", HTTPStatus.CONFLICT, "Stream-Seq does not follow the last one")
GONE = ProblemKind("gone", HTTPStatus.GONE, "What is asked for was deleted")
TOO_LARGE = ProblemKind("too-large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large")
TOO_MANY = ProblemKind("too-many-requests", HTTPStatus.TOO_MANY_REQUESTS, "Too many requests at once")
TOO_SLOW = ProblemKind("too-slow", HTTPStatus.REQUEST_TIMEOUT, "The body took too long to come")
BUSY = ProblemKind("busy", HTTPStatus.SERVICE_UNAVAILABLE, "The server is busy; try again")
ELSEWHERE = ProblemKind("served-elsewhere", HTTPStatus.SERVICE_UNAVAILABLE, "Another server has the stream; try again")
UNKNOWN_OUTCOME = ProblemKind(
    "outcome-unknown", HTTPStatus.SERVICE_UNAVAILABLE, "Whether it was appended is not known", tells=False
)
RETRY_AFTER_S = 1

_KINDS: tuple[tuple[type[ColdstreamError], ProblemKind], ...] = (
    (InvalidSettingError, INTERNAL),
    (InvalidInputError, INVALID),
    (StreamNotFoundError, NO_STREAM),
    (StreamDeletedError, GONE),
    (StreamExistsError, CONFLICT),
    (StreamClosedError, ELSEWHERE),
    (ExpiredEpochError, ELSEWHERE),
    (NotClosedError, ELSEWHERE),
    (OffsetOutOfRangeError, GONE),
    (GapError, GONE),
    (NotRestoredError, UNAVAILABLE),
    (CorruptionError, CORRUPT),
    (AccessDeniedError, INTERNAL),
    (OutcomeUnknownError, UNKNOWN_OUTCOME),
    (UnavailableError, UNAVAILABLE),
)


class Refusal(Exception):  # noqa: N818  not an error of the server: an answer, raised where the reason for it is found
    """A request that gets a problem for an answer: its kind, what is wrong with it, and headers beside."""

    def __init__(self, kind: ProblemKind, detail: str, headers: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.headers = dict(headers or {})
        super().__init__(detail)

    @property
    def response(self) -> Response:
        """The answer."""
        headers = self.headers
        if self.kind.status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}:
            headers = {"Retry-After": str(RETRY_AFTER_S), **headers}
        body = self.kind.body(str(self)).to_json()
        return Response(body, self.kind.status, {**headers, "Cache-Control": "no-store"}, MEDIA_TYPE)


def refusal_of(err: Exception) -> Refusal:
    """Make the answer that tells of an error: only what is wrong with the request, for others name resources."""
    kind = next((kind for error, kind in _KINDS if isinstance(err, error)), INTERNAL)
    return Refusal(kind, str(err) if kind is INVALID else kind.title)
