"""Fetch ranges: one GET on the presigned URL of each, several at a time, and every chunk verified."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from queue import SimpleQueue
from typing import Any, TypeVar

import urllib3

from coldstream.errors import ColdstreamError, UnavailableError
from coldstream.format.chunk import Chunk
from coldstream.read.chunkrange import chunks_in
from coldstream.read.http import ClosedError, HttpClient
from coldstream.resolve.answer import Range

T = TypeVar("T")

# 400 is S3's answer where the URL still holds and the session that signed it has ended (ExpiredToken).
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


class UrlRefusedError(UnavailableError):
    """A URL has expired, or is not good any more; a new answer of the resolver has one that is."""

    retryable = False

    def __init__(self, key: str, status: int, what: str) -> None:
        self.key = key
        self.status = status
        super().__init__(what)


@dataclass(frozen=True, slots=True)
class RangeBatch:
    """A range's chunks, all of them verified, in order. They share the range's bytes."""

    range: Range
    chunks: list[Chunk]


MORE_THREADS = 2
"""Than connections: so that none of those waits for a range to be verified, or for the resolver."""


class RangeFetcher:
    """Fetches over `connections`, on threads of its own, which end when it is closed."""

    def __init__(self, connections: int) -> None:
        self._http = HttpClient(connections=connections)
        self._free = threading.Semaphore(connections)
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._unsettled: set[Future[Any]] = set()
        self._is_closed = False
        self._threads = [
            threading.Thread(target=_work, args=(self._jobs,), name=f"coldstream-fetch-{number}", daemon=True)
            for number in range(connections + MORE_THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def fetch(self, part: Range, good_until: float | None) -> Future[RangeBatch]:
        """Fetch a range whose URL is good until that `time.monotonic()`.

        The result may be UrlRefusedError; UnavailableError after bounded retries; CorruptionError.
        """
        return self.submit(lambda: self._fetch(part, good_until))

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Call something on one of the threads."""
        # Never marked as running, so that it can be cancelled while it is: who waits for it is let go at once.
        future: Future[T] = Future()

        def job() -> None:
            if not future.cancelled():
                try:
                    settle = partial(future.set_result, call())
                except BaseException as err:  # noqa: BLE001  it is raised where the result is asked for
                    settle = partial(future.set_exception, err)
                with suppress(InvalidStateError):
                    settle()
            with self._lock:
                self._unsettled.discard(future)

        with self._lock:
            if self._is_closed:
                raise ClosedError
            self._unsettled.add(future)
            self._jobs.put(job)
        return future

    def close(self) -> None:
        """End every request under way, and the threads; returns at once."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                for _ in self._threads:
                    self._jobs.put(None)
            unsettled = list(self._unsettled)
        for future in unsettled:
            future.cancel()
        self._http.close()

    def _fetch(self, part: Range, good_until: float | None) -> RangeBatch:
        if good_until is not None and time.monotonic() > good_until:
            raise UrlRefusedError(part.key, HTTPStatus.FORBIDDEN, f"the URL of {part.key} has expired")

        def read(response: urllib3.BaseHTTPResponse) -> bytes:
            return _read(part, response)

        with self._free:
            data = self._http.get(part.url, lambda: {"Range": part.byte_range.http}, read)
        return RangeBatch(part, chunks_in(part, data))


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # with the bytes that it may hold, until the next one comes


def _read(part: Range, response: urllib3.BaseHTTPResponse) -> bytes:
    """Read a response's body, if it is the range and all of it."""
    what = f"GET of {part.key}, {part.byte_range.http}, answered {response.status}"
    if response.status in _REFUSED:
        raise UrlRefusedError(part.key, response.status, what)
    if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR or response.status in _TRY_AGAIN:
        raise UnavailableError(what)
    size = len(part.byte_range)
    announced = response.length_remaining  # None without a length that makes sense
    if response.status != HTTPStatus.PARTIAL_CONTENT or announced is None or announced > size:
        raise ColdstreamError(f"{what}, and not with the {size} bytes asked for")
    data = response.read(decode_content=False)
    if len(data) != size:
        raise UnavailableError(f"{what} with {len(data)} bytes, not {size}")
    return data
