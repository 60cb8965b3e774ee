"""Errors as pages: what happened, in words for whoever looks, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    ConflictError,
    CorruptionError,
    GapError,
    IncarnationError,
    InvalidInputError,
    InvalidSettingError,
    JobNotFoundError,
    JobStateError,
    NotFoundError,
    NotRestoredError,
    OutcomeUnknownError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.web.refusal import FOREIGN_HOST, FOREIGN_PAGE, RETRY_AFTER_S, Refusal

_RETRY = {"Retry-After": str(RETRY_AFTER_S)}


@dataclass(frozen=True, slots=True)
class PageError:
    """What the page of an error says. `detail` may hold text that others chose."""

    status: HTTPStatus
    title: str
    detail: str
    todo: str = ""
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


_KNOWN: tuple[tuple[type[ColdstreamError], HTTPStatus, str, str], ...] = (
    (InvalidSettingError, HTTPStatus.INTERNAL_SERVER_ERROR, "The console is set up wrongly", "See its log."),
    (InvalidInputError, HTTPStatus.BAD_REQUEST, "That cannot be done as it was typed", "Correct it, and try again."),
    (StreamNotFoundError, HTTPStatus.NOT_FOUND, "There is no such stream", "It may have been purged: see the list."),
    (IncarnationError, HTTPStatus.NOT_FOUND, "The stream was declared again", "Look for it in the list of streams."),
    (JobNotFoundError, HTTPStatus.NOT_FOUND, "There is no such job", "It may have been deleted: see the list."),
    (GapError, HTTPStatus.NOT_FOUND, "The archive does not have that offset", "The timeline shows what it has."),
    (NotFoundError, HTTPStatus.NOT_FOUND, "That is not there", "It may have been removed meanwhile."),
    (JobStateError, HTTPStatus.CONFLICT, "Not in this state of the job", "Look at the job again, and decide anew."),
    (ConflictError, HTTPStatus.CONFLICT, "Somebody else was faster", "Look at it again, and decide anew."),
    (
        NotRestoredError,
        HTTPStatus.CONFLICT,
        "The data is in cold storage",
        "Restore it first: `coldstream restore` asks S3 for copies, which takes minutes to hours.",
    ),
    (CorruptionError, HTTPStatus.INTERNAL_SERVER_ERROR, "The archive is not what its format says", "Run a scrub job."),
    (
        AccessDeniedError,
        HTTPStatus.SERVICE_UNAVAILABLE,
        "AWS does not permit this to the console",
        "Check the credentials that it runs with, and their permissions.",
    ),
    (UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE, "A service did not answer", "Try again in a moment."),
    (
        OutcomeUnknownError,
        HTTPStatus.SERVICE_UNAVAILABLE,
        "Whether it was done is not known",
        "A service did not answer. Look in a moment whether it was done, and do it again only if it was not.",
    ),
)
_TODO = {
    FOREIGN_PAGE.name: "Open the console itself, and use its own forms.",
    FOREIGN_HOST.name: "Open the console by the address that it printed.",
}


def error_of(err: Exception, *, shows_all: bool) -> PageError:
    """Return what to say of an error. What names resources is for those who see all of the archive."""
    if isinstance(err, Refusal):
        headers = dict(err.headers)
        if err.kind.status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}:
            headers = _RETRY | headers
        return PageError(err.kind.status, err.kind.title, str(err), _TODO.get(err.kind.name, ""), headers)
    for kind, status, title, todo in _KNOWN:
        if isinstance(err, kind):
            is_theirs = status < HTTPStatus.INTERNAL_SERVER_ERROR
            headers = _RETRY if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
            return PageError(status, title, str(err) if is_theirs or shows_all else "", todo, headers)
    detail = str(err) if isinstance(err, ColdstreamError) and shows_all else ""
    return PageError(HTTPStatus.INTERNAL_SERVER_ERROR, "The console failed", detail, "Its log says more.")
