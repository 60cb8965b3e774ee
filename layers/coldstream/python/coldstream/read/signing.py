"""SigV4 signatures for APIs behind API Gateway's IAM authorizer.

A part of the SDK is loaded with the first `Signer` and not before: loading it takes a tenth of a second, and most
clients of a resolver sign nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from coldstream.errors import AccessDeniedError, InvalidSettingError

_EXECUTE_API = re.compile(r"[a-z0-9-]+\.execute-api\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")


def region_of(url: str) -> str | None:
    """Return the region in a URL of API Gateway's own; None for any other URL, such as an API's custom domain."""
    parts = urlsplit(url)
    match = _EXECUTE_API.fullmatch(parts.hostname or "")
    return match["region"] if match is not None and parts.scheme == "https" else None


class Signer:
    """Signs GETs with the credentials that the SDK finds, in `region` or else in the region that it finds."""

    def __init__(self, region: str | None = None) -> None:
        from botocore.session import get_session  # noqa: PLC0415  # see above

        self._session = get_session()
        found = region or self._session.get_config_variable("region")
        if not found:
            raise InvalidSettingError("AWS_REGION", "is not set, and the region is not part of the API's URL")
        self._region: str = found

    def headers(self, url: str) -> Mapping[str, str]:
        """Return the headers of a signed GET of `url`. Raises AccessDeniedError without credentials."""
        from botocore.auth import SigV4Auth  # noqa: PLC0415  # see above
        from botocore.awsrequest import AWSRequest  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415

        try:
            credentials = self._session.get_credentials()
            if credentials is None:
                raise AccessDeniedError("no AWS credentials found to sign the request with")
            request = AWSRequest(method="GET", url=url)
            # Frozen: another thread may refresh the credentials, and a key with the next one's token is refused.
            SigV4Auth(credentials.get_frozen_credentials(), "execute-api", self._region).add_auth(request)
        except BotoCoreError as err:
            raise AccessDeniedError(f"cannot sign the request: {err}") from err
        return dict(request.headers.items())
