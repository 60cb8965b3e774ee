"""Reads of the bucket by presigned URLs, for whoever has to be able to end a request at any moment.

The SDK has no way to end a call that hangs. Here a URL is signed, which costs no request, and fetched by a client whose
connections can be cut from any thread.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from functools import cache
from http import HTTPStatus

from coldstream.errors import AccessDeniedError, ObjectNotFoundError, ReplacedError, UnavailableError
from coldstream.read.fetch import UrlRefusedError, check_range_answer
from coldstream.read.http import ATTEMPTS, READ_TIMEOUT_S, HttpClient
from coldstream.read.response import HttpResponse
from coldstream.store.object_ports import ObjectReads
from coldstream.store.object_values import RangeRead
from coldstream.units import ByteRange, TimestampMs

EXPIRY_S = 900
"""How long a URL is good for: all attempts of one GET."""

_GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})


@cache
def _trust() -> ssl.SSLContext:
    """Return the certificates that the SDK would trust, loaded once for all clients of the process."""
    return ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or None)


class PresignedReads:
    """Implement `ports.ObjectReads` with URLs that `signer` signs. Threads may share it.

    `close` ends all requests that are under way: whoever waits for one gets ClosedError of `read.http`.
    """

    def __init__(
        self,
        signer: ObjectReads,
        *,
        connections: int,
        read_timeout_s: float = READ_TIMEOUT_S,
        attempts: int = ATTEMPTS,
    ) -> None:
        self._signer = signer
        self._http = HttpClient(
            connections=connections, read_timeout_s=read_timeout_s, attempts=attempts, trust=_trust()
        )

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        return self._signer.bucket

    @property
    def clock(self) -> Callable[[], TimestampMs]:
        """AWS's clock."""
        return self._signer.clock

    def presign_get(self, key: str, byte_range: ByteRange, *, expires_s: int) -> str:
        """Have a URL signed."""
        return self._signer.presign_get(key, byte_range, expires_s=expires_s)

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        """Read a range. A refused URL is signed anew once: the credentials that signed it may just have ended."""
        try:
            try:
                return self._get(key, byte_range, if_match)
            except UrlRefusedError as err:
                if err.status in _GONE:
                    raise
                return self._get(key, byte_range, if_match)
        except UrlRefusedError as err:
            raise ObjectNotFoundError(key) if err.status in _GONE else AccessDeniedError(str(err)) from err

    def close(self) -> None:
        """End every request under way, and refuse new ones. Returns at once; safe from any thread."""
        self._http.close()

    def _get(self, key: str, byte_range: ByteRange, if_match: str | None) -> RangeRead:
        headers = {"Range": byte_range.http} | ({} if if_match is None else {"If-Match": if_match})

        def read(response: HttpResponse) -> RangeRead:
            if response.status == HTTPStatus.PRECONDITION_FAILED:
                raise ReplacedError("GET", key)
            size = _object_bytes(response)
            if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return RangeRead(b"", size, response.headers.get("ETag", ""))
            # The bytes end where the object does. An answer without a size is refused for what it is.
            end = min(byte_range.end, size) if size > byte_range.start else byte_range.end
            check_range_answer(response, key, ByteRange(byte_range.start, end))
            data = response.read(end - byte_range.start)
            found = response.headers.get("Content-Range", "")
            if found != f"bytes {byte_range.start}-{end - 1}/{size}":
                raise UnavailableError(f"GET of {key}: {found!r} was sent for {byte_range.http}")
            return RangeRead(data, size, response.headers.get("ETag", ""))

        return self._http.get(self.presign_get(key, byte_range, expires_s=EXPIRY_S), lambda: headers, read)


def _object_bytes(response: HttpResponse) -> int:
    """Return the size of the object that an answer tells, 0 if it tells none."""
    total = response.headers.get("Content-Range", "").rpartition("/")[2]
    return int(total) if total.isascii() and total.isdigit() else 0
