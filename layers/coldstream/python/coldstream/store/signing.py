"""Deletions that S3 refuses from some time on: they are signed with the time of their claim, not of their sending.

S3 refuses a request whose signature is more than SIGNATURE_MS from its own clock: RequestTimeTooSkewed, by
https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html ("valid within 15 minutes of the
timestamp in the request") and .../API/ErrorResponses.html. So a process that has slept between its claim and its
request, or whose request was on its way for long, deletes nothing any more, whatever it believes. botocore corrects no
clock and so no signature: https://github.com/boto/boto3/issues/1252.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, cast

from botocore.auth import AUTH_TYPE_MAPS, S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.hooks import BaseEventHooks

from coldstream.units import TimestampMs

_SIGNER = "coldstream-s3v4-claim"
_TIMESTAMP = "%Y%m%dT%H%M%SZ"
_SIGNED_AT: ContextVar[TimestampMs | None] = ContextVar("signed_at", default=None)


class ClaimTimeAuth(S3SigV4Auth):
    """Sign a request with the time that `signing_as_of` says."""

    def _modify_request_before_signing(self, request: AWSRequest) -> None:
        # botocore has just set the host's time, and reads this one from here on. Its retries sign again, and come here.
        at = _SIGNED_AT.get()
        if at is not None:
            request.context["timestamp"] = datetime.fromtimestamp(at / 1000, UTC).strftime(_TIMESTAMP)
        super()._modify_request_before_signing(request)  # type: ignore[misc]  # the stubs leave it out


@contextmanager
def signing_as_of(at: TimestampMs | None) -> Iterator[None]:
    """Have the deletions of this thread signed with a time of AWS's; None is the time of their sending, as usual."""
    token = _SIGNED_AT.set(at)
    try:
        yield
    finally:
        _SIGNED_AT.reset(token)


def sign_deletions_by_claim(events: BaseEventHooks) -> None:
    """Make a client of S3 sign deletions as `signing_as_of` says."""
    cast("dict[str, Any]", AUTH_TYPE_MAPS)[_SIGNER] = ClaimTimeAuth
    choose: Any = _choose  # the stubs know no handler that answers
    for operation in ("DeleteObject", "DeleteObjects"):
        events.register_first(f"choose-signer.s3.{operation}", choose, unique_id=f"coldstream-{operation}")


def _choose(signing_name: str, **_: object) -> str | None:
    return _SIGNER if _SIGNED_AT.get() is not None and signing_name == "s3" else None
