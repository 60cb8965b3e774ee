"""Signature Version 4, by which AWS knows who sends a request, and that nobody has changed it.

The specification is https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html:

    canonical request   lines: method · path · query · "name:value" of each signed header, sorted · "" ·
                        names of the signed headers, joined by ";" · SHA-256 of the body
    scope               date "/" region "/" service "/aws4_request"
    string to sign      lines: "AWS4-HMAC-SHA256" · time · scope · SHA-256 of the canonical request
    signing key         HMACs of date, region, service and "aws4_request", each with the one before as its key;
                        the first key is "AWS4" and the secret
    signature           HMAC of the string to sign with the signing key, in hexadecimal

Hashes are SHA-256. The signature stands in a header, or in the query of a presigned URL. Paths are taken as they are,
which is right for S3, and for "/" of every service.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import quote

from coldstream.store.environment import AwsEnvironment
from coldstream.units import TimestampMs

_ALGORITHM = "AWS4-HMAC-SHA256"
_UNSIGNED = "UNSIGNED-PAYLOAD"


class SigV4Signer:
    """Signs requests to one service. Threads may share it."""

    def __init__(self, aws: AwsEnvironment, service: str) -> None:
        self._aws = aws
        self._service = service
        self._key: tuple[str, bytes] = "", b""  # of the last date; replaced as a whole, as threads share it

    def headers(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        *,
        body: bytes,
        at: TimestampMs,
    ) -> dict[str, str]:
        """Return the headers of a request, `Host` among them, with those of its signature. All of them are signed."""
        stamp = _stamp(at)
        signed = {**headers, "X-Amz-Date": stamp}
        if self._aws.session_token is not None:
            signed["X-Amz-Security-Token"] = self._aws.session_token
        lines, names = _canonical(signed)
        request = f"{method}\n{path}\n{_encoded(query)}\n{lines}\n{names}\n{sha256(body).hexdigest()}"
        scope = self._scope(stamp)
        credential = f"{_ALGORITHM} Credential={self._aws.access_key_id}/{scope}"
        signature = self._signature(stamp, scope, request)
        signed["Authorization"] = f"{credential}, SignedHeaders={names}, Signature={signature}"
        return signed

    def presigned_query(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        *,
        expires_s: int,
        at: TimestampMs,
    ) -> str:
        """Return the query by which anybody may send this request, with these headers, for a while."""
        stamp = _stamp(at)
        scope = self._scope(stamp)
        lines, names = _canonical(headers)
        parameters = {
            **query,
            "X-Amz-Algorithm": _ALGORITHM,
            "X-Amz-Credential": f"{self._aws.access_key_id}/{scope}",
            "X-Amz-Date": stamp,
            "X-Amz-Expires": str(expires_s),
            "X-Amz-SignedHeaders": names,
        }
        if self._aws.session_token is not None:
            parameters["X-Amz-Security-Token"] = self._aws.session_token
        encoded = _encoded(parameters)
        request = f"{method}\n{path}\n{encoded}\n{lines}\n{names}\n{_UNSIGNED}"
        return f"{encoded}&X-Amz-Signature={self._signature(stamp, scope, request)}"

    def _scope(self, stamp: str) -> str:
        return f"{stamp[:8]}/{self._aws.region}/{self._service}/aws4_request"

    def _signature(self, stamp: str, scope: str, request: str) -> str:
        text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{sha256(request.encode()).hexdigest()}"
        return hmac.digest(self._signing_key(stamp[:8]), text.encode(), "sha256").hex()

    def _signing_key(self, date: str) -> bytes:
        """Return the key of a date. It is kept: four of the five HMACs of a signature are the same all day."""
        known, key = self._key
        if known != date:
            key = f"AWS4{self._aws.secret_access_key}".encode()
            for part in (date, self._aws.region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._key = date, key
        return key


def _stamp(at: TimestampMs) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at // 1000))


def _canonical(headers: Mapping[str, str]) -> tuple[str, str]:
    """Return the lines of headers, each with its line end, and their names. Runs of white space count as one space."""
    lines = sorted((name.lower(), " ".join(value.split())) for name, value in headers.items())
    return "".join(f"{name}:{value}\n" for name, value in lines), ";".join(name for name, _ in lines)


def _encoded(query: Mapping[str, str]) -> str:
    """Return the canonical query, sorted after its encoding. It is a query as it may be sent, too."""
    return "&".join(f"{name}={value}" for name, value in sorted((_quoted(n), _quoted(v)) for n, v in query.items()))


def _quoted(text: str) -> str:
    return quote(text, safe="")
