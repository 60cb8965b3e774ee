"""The errors that the response codes of the stream protocol become."""

from __future__ import annotations

from rstream import exceptions

from coldstream.errors import (
    BrokerRefusedError,
    ColdstreamError,
    LoginRefusedError,
    StreamNotFoundError,
    UnavailableError,
    VhostRefusedError,
)

OK = 1
NO_SUCH_STREAM = exceptions.StreamDoesNotExist.code
NO_SUCH_SUBSCRIPTION = exceptions.SubscriptionIDDoesNotExist.code
NO_OFFSET = exceptions.OffsetNotFound.code

_LOGIN = {
    exceptions.SASLMechanismNotSupported.code,
    exceptions.AuthenticationFailure.code,
    exceptions.SASLError.code,
    exceptions.SASLChallenge.code,
}


def check(code: int, what: str) -> None:
    """Raise the error of a response code about `what`, unless the code is OK.

    Raises StreamNotFoundError, AccessDeniedError; UnavailableError for everything that may pass by itself.
    """
    if code != OK:
        raise refusal(code, what)


def refusal(code: int, what: str) -> ColdstreamError:
    """Return the error of a response code."""
    problem = f"{what}: the broker answers {code} ({exceptions.ServerError.from_code(code).__name__})"
    if code == NO_SUCH_STREAM:
        return StreamNotFoundError(problem)
    if code in _LOGIN:
        return LoginRefusedError(f"{problem}: user or password are wrong")
    if code == exceptions.SASLAuthenticationFailureLoopback.code:
        return LoginRefusedError(f"{problem}: this user may only log in from the broker's own host")
    if code == exceptions.VirtualHostAccessFailure.code:
        return VhostRefusedError(f"{problem}: there is no such vhost, or the user has no permissions in it")
    if code == exceptions.AccessRefused.code:
        return BrokerRefusedError(f"{problem}: the user lacks a permission, for reading `read`")
    return UnavailableError(problem)
