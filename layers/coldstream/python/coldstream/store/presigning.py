"""Presigned URLs by AWS's clock, for boto3's client of S3.

botocore reads the host's clock as it signs. On a host whose clock is an hour ahead, S3 would take a URL an hour too
long, and on one that is behind, the URL would be expired at birth.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from botocore.auth import AUTH_TYPE_MAPS, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.hooks import BaseEventHooks

from coldstream.store.clock import HEARD

_SIGNER = "coldstream-s3v4-query"
_TIMESTAMP = "%Y%m%dT%H%M%SZ"


class HeardTimeQueryAuth(S3SigV4QueryAuth):
    """Sign the query of a URL with the time that this process has heard, which somebody must have made sure of."""

    def _modify_request_before_signing(self, request: AWSRequest) -> None:
        # botocore has just set the host's time, and reads this one from here on.
        now = HEARD.now()
        if now is not None:
            request.context["timestamp"] = datetime.fromtimestamp(now / 1000, UTC).strftime(_TIMESTAMP)
        super()._modify_request_before_signing(request)  # type: ignore[misc]  # the stubs leave it out


def presign_by_heard_time(events: BaseEventHooks) -> None:
    """Make a client of S3 sign URLs, and nothing else, by AWS's clock."""
    cast("dict[str, Any]", AUTH_TYPE_MAPS)[_SIGNER] = HeardTimeQueryAuth
    choose: Any = _choose  # the stubs know no handler that answers
    events.register_first("choose-signer.s3.GetObject", choose, unique_id="coldstream-choose-signer")


def _choose(context: dict[str, Any], signing_name: str, **_: object) -> str | None:
    return _SIGNER if context.get("is_presign_request") and signing_name == "s3" else None
