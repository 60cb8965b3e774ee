"""What the response codes of the stream protocol mean to us."""

from __future__ import annotations

from rstream import exceptions

from coldstream.errors import AccessDeniedError, ColdstreamError, StreamNotFoundError, UnavailableError

OK = 1
NO_SUCH_STREAM = exceptions.StreamDoesNotExist.code
NO_SUCH_SUBSCRIPTION = exceptions.SubscriptionIDDoesNotExist.code
NO_OFFSET = exceptions.OffsetNotFound.code

_DENIED = {
    exceptions.SASLMechanismNotSupported.code,
    exceptions.AuthenticationFailure.code,
    exceptions.SASLError.code,
    exceptions.SASLChallenge.code,
    exceptions.SASLAuthenticationFailureLoopback.code,
    exceptions.VirtualHostAccessFailure.code,
    exceptions.AccessRefused.code,
}


def check(code: int, what: str) -> None:
    """Raise what a response code says about `what`, unless that is OK.

    Raises StreamNotFoundError, AccessDeniedError; UnavailableError for everything that may pass.
    """
    if code != OK:
        raise refusal(code, what)


def refusal(code: int, what: str) -> ColdstreamError:
    """Return the error of a response code."""
    problem = f"{what}: the broker answers {code} ({exceptions.ServerError.from_code(code).__name__})"
    if code == NO_SUCH_STREAM:
        return StreamNotFoundError(problem)
    if code in _DENIED:
        return AccessDeniedError(problem)
    return UnavailableError(problem)
