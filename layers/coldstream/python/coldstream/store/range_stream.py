"""`S3RangeStream`: a range of an object as it arrives, which goes on where a connection broke off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botocore.exceptions import IncompleteReadError, ResponseStreamingError

from coldstream.errors import ColdstreamError
from coldstream.retry import retrying
from coldstream.store.bucket import MORE_ATTEMPTS, border, may_pass
from coldstream.units import ByteRange

MAX_BREAKS = 16
"""Broken connections of one stream before a read fails: a range of 64 MiB meets more of them than a short answer."""

GetRange = Callable[[ByteRange, str | None], dict[str, Any]]
"""Sends a GET of a range, with the ETag that the object must have, and returns the SDK's answer."""


class S3RangeStream:
    """Implement `ports.RangeStream` by answers to GETs: one, and one more whenever a connection breaks."""

    def __init__(self, key: str, byte_range: ByteRange, get: GetRange, if_match: str | None) -> None:
        """Send the first GET. Raises the SDK's errors, and one of them for an answer that is not about that range."""
        self._key = key
        self._get = get
        self._position, self._end = byte_range.start, byte_range.end
        self._breaks = 0
        self._etag = if_match
        self._object_bytes = 0
        self._body: Any = None
        self._open()
        self._repeat = retrying(self._may_go_on, attempts=MORE_ATTEMPTS, first_delay_s=0.2, max_delay_s=1)

    @property
    def object_bytes(self) -> int:
        """Size of the whole object."""
        return self._object_bytes

    @property
    def etag(self) -> str:
        """The object's ETag."""
        assert self._etag is not None
        return self._etag

    def read(self, size_bytes: int) -> bytes:
        """Read so many bytes; from another connection if the one in use breaks."""
        size_bytes = min(size_bytes, self._end - self._position)
        if not size_bytes:
            return b""
        with border("GET", self._key):
            return self._repeat(self._read, size_bytes)

    def close(self) -> None:
        """Close the connection, if it has more to send."""
        if self._body is not None:
            self._body.close()
            self._body = None

    def _read(self, size_bytes: int) -> bytes:
        try:
            if self._body is None:
                self._open()
            piece: bytes = self._body.read(size_bytes)
            if len(piece) != size_bytes:
                raise IncompleteReadError(actual_bytes=len(piece), expected_bytes=size_bytes)
        except BaseException:
            # What came of this piece is lost, and all pieces before it are with the caller.
            self._breaks += 1
            self.close()
            raise
        self._position += size_bytes
        if self._position == self._end:
            self.close()
        return piece

    def _open(self) -> None:
        """Ask for what is missing. From the second time on, it has to be of the same object."""
        requested = ByteRange(self._position, self._end)
        answer = self._get(requested, self._etag)
        body = answer["Body"]
        try:
            # A store that ignores `Range` sends the whole object.
            if "ContentRange" not in answer:
                raise ColdstreamError(f"GET {self._key}: this store does not know ranges")
            self._object_bytes = size_of_object(answer["ContentRange"], requested)
            self._end = min(self._end, self._object_bytes)
            expected_bytes = self._end - self._position
            if (sent_bytes := answer.get("ContentLength", expected_bytes)) != expected_bytes:
                raise IncompleteReadError(actual_bytes=sent_bytes, expected_bytes=expected_bytes)
        except BaseException:
            body.close()
            raise
        self._etag = answer["ETag"]
        self._body = body

    def _may_go_on(self, err: Exception) -> bool:
        return may_pass(err) and self._breaks <= MAX_BREAKS


def size_of_object(content_range: str, requested: ByteRange) -> int:
    """Return the size of the object in a `Content-Range`. Raises an error of the SDK unless it is the requested range.

    The range may end early, with the object.
    """
    total = content_range.rpartition("/")[2]
    # HTTP allows `*` for an unknown size. Zero then fails the comparison below.
    size_bytes = int(total) if total.isdecimal() else 0
    end = min(requested.end, size_bytes)
    if content_range != f"bytes {requested.start}-{end - 1}/{size_bytes}":
        raise ResponseStreamingError(error=f"{content_range} was sent for {requested.http}")
    return size_bytes
