"""Requests that are refused, and errors as problems (RFC 9457), as the resolver has them."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import Response

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    ConflictError,
    CorruptionError,
    InvalidInputError,
    InvalidSettingError,
    OutcomeUnknownError,
    UnavailableError,
)
from coldstream.resolve.problem import CORRUPT, INTERNAL, MEDIA_TYPE, UNAVAILABLE, ProblemKind

INVALID = ProblemKind("invalid-request", HTTPStatus.BAD_REQUEST, "The request means nothing")
TOKEN_NEEDED = ProblemKind("token-needed", HTTPStatus.UNAUTHORIZED, "A token is needed")
FORBIDDEN = ProblemKind("not-permitted", HTTPStatus.FORBIDDEN, "The token does not permit this")
FOREIGN_HOST = ProblemKind("foreign-host", HTTPStatus.MISDIRECTED_REQUEST, "The request is for another server")
FOREIGN_PAGE = ProblemKind("foreign-page", HTTPStatus.FORBIDDEN, "The page may not write here")
NO_PATH = ProblemKind("route-not-found", HTTPStatus.NOT_FOUND, "The server has no such path")
NO_METHOD = ProblemKind("method-not-allowed", HTTPStatus.METHOD_NOT_ALLOWED, "The path has no such method")
TOO_LARGE = ProblemKind("too-large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large")
TOO_MANY = ProblemKind("too-many-requests", HTTPStatus.TOO_MANY_REQUESTS, "Too many requests at once")
TOO_SLOW = ProblemKind("too-slow", HTTPStatus.REQUEST_TIMEOUT, "The body took too long to come")
BUSY = ProblemKind("busy", HTTPStatus.SERVICE_UNAVAILABLE, "The server is busy; try again")
RETRY_AFTER_S = 1

ErrorKinds = tuple[tuple[type[ColdstreamError], ProblemKind], ...]

_KINDS: ErrorKinds = (
    (InvalidSettingError, INTERNAL),
    (InvalidInputError, INVALID),
    (CorruptionError, CORRUPT),
    (AccessDeniedError, INTERNAL),
    (UnavailableError, UNAVAILABLE),
    (ConflictError, UNAVAILABLE),
    (OutcomeUnknownError, UNAVAILABLE),
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


def refusal_of(err: Exception, kinds: ErrorKinds = ()) -> Refusal:
    """Make the answer that tells of an error: only what is wrong with the request, for others name resources.

    `kinds` are those of the server's own errors, the first that matches decides. They go before the general ones.
    """
    kind = next((kind for error, kind in (*kinds, *_KINDS) if isinstance(err, error)), INTERNAL)
    return Refusal(kind, str(err) if kind is INVALID else kind.title)
