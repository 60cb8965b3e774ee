"""The address of a broker by AMQP 0.9.1, and what pika's errors mean."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pika import URLParameters, exceptions

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    InvalidInputError,
    InvalidSettingError,
    NotFoundError,
    UnavailableError,
)

_DENIED = (403, 530)  # access refused; no such vhost, or no permission to use it
_DENIALS = (exceptions.ProbableAuthenticationError, exceptions.ProbableAccessDeniedError)
_NOT_FOUND = 404
_PRECONDITION_FAILED = 406

logging.getLogger("pika").addHandler(logging.NullHandler())  # pika logs every error that it also raises


def amqp_parameters(uri: str) -> URLParameters:
    """Parse a URI such as amqp://user:password@host:5672/vhost. Raises InvalidSettingError, which never quotes it."""
    try:
        return URLParameters(uri)
    except Exception:  # noqa: BLE001  any of pika's errors may quote the password
        raise InvalidSettingError("AMQP broker", "must be a URI such as amqp://user:password@host:5672/vhost") from None


def amqp_error(error: BaseException, where: str) -> ColdstreamError:
    """Return the error that one of pika's means, about `where`."""
    found = _root(error)
    problem = f"{where}: {str(found) or type(found).__name__}"
    code = getattr(found, "reply_code", None)
    kind: type[ColdstreamError] = UnavailableError
    if code in _DENIED or isinstance(found, _DENIALS):
        kind = AccessDeniedError
    elif code == _NOT_FOUND:
        kind = NotFoundError
    elif code == _PRECONDITION_FAILED:
        return InvalidInputError("message", problem)
    return kind(problem)


def _root(error: BaseException) -> BaseException:
    """Return the cause that pika has wrapped in the errors of its attempts to connect."""
    attempts: Sequence[BaseException] = getattr(error, "exceptions", ())
    cause = attempts[-1] if attempts else getattr(error, "exception", None)
    return error if cause is None else _root(cause)
