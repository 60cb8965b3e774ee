"""Threads and connections that many readers share, so that a thousand partitions take no more than one stream."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

from coldstream.read.fetch import BUFFER_BYTES, RangeFetcher
from coldstream.read.http import ClosedError
from coldstream.read.threads import FetchThreads

T = TypeVar("T")
P = ParamSpec("P")

MORE_THREADS = 2
"""Threads beyond one for each connection: no connection is to wait while a range is verified or resolved."""


class FetchPool:
    """Fetches for its readers over at most `connections`. Whoever made it closes it. Safe from any thread.

    Buffers of `buffer_bytes` are kept for as long as somebody reads.
    """

    def __init__(self, connections: int, *, buffer_bytes: int = BUFFER_BYTES) -> None:
        self.fetcher = RangeFetcher(connections, buffer_bytes=buffer_bytes)
        self._count = connections + MORE_THREADS
        self._lock = threading.Lock()
        self._threads: FetchThreads | None = None
        self._is_closed = False
        self._readers = 0

    def share(self) -> FetchShare:
        """Return one reader's share of the threads, which start now. Raises ClosedError after `close`."""
        with self._lock:
            if self._is_closed:
                raise ClosedError
            self._threads = self._threads or FetchThreads(self._count)
            self._readers += 1
            return FetchShare(self._threads, self._give_back)

    def close(self) -> None:
        """End everything under way, in whatever thread, and refuse what comes later."""
        with self._lock:
            self._is_closed = True
        # The threads first: see `BaseReader.close`.
        if self._threads is not None:
            self._threads.shutdown()
        self.fetcher.close()

    def _give_back(self) -> None:
        with self._lock:
            self._readers -= 1
            if not self._readers:
                # A consumer that follows the broker may not come back to the archive for days.
                self.fetcher.buffers.clear()


class FetchShare(Executor):
    """A reader's calls on shared threads, which it can give up without touching those of others."""

    def __init__(self, threads: FetchThreads, on_shutdown: Callable[[], None]) -> None:
        self._threads = threads
        self._on_shutdown = on_shutdown
        self._lock = threading.Lock()
        self._unsettled: set[Future[object]] = set()
        self._is_closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function on one of the threads. Raises ClosedError after `shutdown`."""
        with self._lock:
            if self._is_closed:
                raise ClosedError
            future = self._threads.submit(fn, *args, **kwargs)
            self._unsettled.add(future)  # type: ignore[arg-type]  # a future's result is of no interest here
        # Outside of the lock: a call that has ended already runs its callback here.
        future.add_done_callback(self._settle)
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002  Executor's
        """Cancel every call of this share. Returns at once; one that runs goes on until it ends by itself."""
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
            unsettled = list(self._unsettled)
        # Outside of the lock: cancelling runs the callback.
        for future in unsettled:
            future.cancel()
        if is_first:
            self._on_shutdown()

    def _settle(self, future: Future[T]) -> None:
        with self._lock:
            self._unsettled.discard(future)
