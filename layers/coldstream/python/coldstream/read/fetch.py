"""Fetch a range by one GET of its presigned URL, and verify every chunk in it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from http import HTTPStatus

from coldstream.errors import ColdstreamError, NotRestoredError, UnavailableError
from coldstream.format.chunk import Chunk
from coldstream.read.buffers import Buffers
from coldstream.read.chunkrange import chunks_in
from coldstream.read.http import HttpClient
from coldstream.read.response import HttpResponse
from coldstream.resolve.answer import Range
from coldstream.units import MIB, ByteRange

# S3 answers 400 (ExpiredToken) if the URL is still valid but the session that signed it has ended.
_REFUSED = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.GONE,
    }
)
_TRY_AGAIN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})

_NOT_RESTORED = b"<Code>InvalidObjectState</Code>"
"""In S3's answer, a 403, to a GET of an object in an archived storage class."""

_ERROR_BYTES = 4096
"""Of an error's body, which is XML of a few hundred bytes."""

BUFFER_BYTES = 64 * MIB
"""Buffers that are kept unless a fetcher is told otherwise: as much as a reader has in flight by default."""


class UrlRefusedError(UnavailableError):
    """A presigned URL has expired or is no longer valid. The resolver's next answer has a new one."""

    # The same URL would be refused again, so the reader asks for a new one instead.
    retryable = False

    def __init__(self, key: str, status: int, what: str) -> None:
        self.key = key
        self.status = status
        super().__init__(what)


class ArchivedRangeError(NotRestoredError):
    """S3 refuses a range, because its object is in an archived storage class and no copy of it is restored."""

    def __init__(self, part: Range) -> None:
        self.range = part
        super().__init__(part.key, part.storage_class)


@dataclass(frozen=True, slots=True)
class RangeBatch:
    """The chunks of a range, all of them verified, in order. They share the range's bytes."""

    range: Range
    chunks: list[Chunk]


class RangeFetcher:
    """Fetches ranges over at most `connections`, and keeps buffers of `buffer_bytes` for them. Threads may share it."""

    def __init__(self, connections: int, *, buffer_bytes: int = BUFFER_BYTES) -> None:
        self.buffers = Buffers(buffer_bytes)
        self._http = HttpClient(connections=connections)
        # The pool of connections bounds only those that it keeps. Without this, each thread would open its own.
        self._free = threading.Semaphore(connections)

    def fetch(self, part: Range, good_until: float | None) -> RangeBatch:
        """Fetch a range whose URL is good until that `time.monotonic()`, or for an unknown time.

        Raises UrlRefusedError; ArchivedRangeError; CorruptionError; UnavailableError after a bounded number of
        attempts.
        """
        if good_until is not None and time.monotonic() > good_until:
            # Ask the resolver again rather than S3 in vain.
            raise UrlRefusedError(part.key, HTTPStatus.FORBIDDEN, f"the URL of {part.key} has expired")

        def read(response: HttpResponse) -> memoryview:
            try:
                check_range_answer(response, part.key, part.byte_range)
            except NotRestoredError as err:
                raise ArchivedRangeError(part) from err
            return self.buffers.fill(len(part.byte_range), response.read_into)

        with self._free:
            data = self._http.get(part.url, lambda: {"Range": part.byte_range.http}, read)
        # Verified after the connection is free, so that it fetches the next range meanwhile.
        return RangeBatch(part, chunks_in(part, data, self.buffers.fill))

    def close(self) -> None:
        """End every request under way, and refuse new ones."""
        self._http.close()
        self.buffers.clear()


def check_range_answer(response: HttpResponse, key: str, byte_range: ByteRange) -> None:
    """Check that the body of the answer to a GET of a range is the range, before it is read.

    Raises NotRestoredError, UrlRefusedError, UnavailableError.
    """
    what = f"GET of {key}, {byte_range.http}, answered {response.status}"
    if response.status == HTTPStatus.FORBIDDEN and _NOT_RESTORED in response.read(_ERROR_BYTES):
        # A new URL would be refused as well: what helps is a restore.
        raise NotRestoredError(key)
    if response.status in _REFUSED:
        raise UrlRefusedError(key, response.status, what)
    is_sent_elsewhere = HTTPStatus.MULTIPLE_CHOICES <= response.status < HTTPStatus.BAD_REQUEST
    if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR or response.status in _TRY_AGAIN or is_sent_elsewhere:
        raise UnavailableError(what)
    size = len(byte_range)
    announced = response.left_bytes  # None if the response has no length, or one that makes no sense
    # Before reading: a server that ignores `Range` would send the whole object, into memory that nobody has planned.
    if response.status != HTTPStatus.PARTIAL_CONTENT or announced is None or announced > size:
        raise ColdstreamError(f"{what}, but not with the {size} bytes asked for")
    if announced < size:
        raise UnavailableError(f"{what} with {announced} bytes, not {size}")
