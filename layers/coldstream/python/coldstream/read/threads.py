"""Threads whose calls can be given up at any moment, even while they run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, InvalidStateError
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from coldstream.read.http import ClosedError

T = TypeVar("T")
P = ParamSpec("P")


class FetchThreads(Executor):
    """Daemon threads, at most `count`: each starts when a call comes that no other is free for.

    Unlike those of a ThreadPoolExecutor, futures are never marked as running, so that `cancel` works while a call runs:
    it releases whoever waits for the result, at once. The call itself has to be ended by other means, such as
    `HttpClient.close`. Daemons, because such a call must not keep the interpreter from exiting.
    """

    def __init__(self, count: int, *, name: str = "coldstream-fetch") -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # Guards both fields below, so that no call slips in after `shutdown` has looked for calls to cancel.
        self._lock = threading.Lock()
        self._unsettled: set[Future[Any]] = set()
        self._is_closed = False
        self._count = count
        self._name = name
        self._threads: list[threading.Thread] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function on one of the threads. Raises ClosedError after `shutdown`."""
        future: Future[T] = Future()

        def job() -> None:
            if not future.cancelled():
                try:
                    settle = partial(future.set_result, fn(*args, **kwargs))
                except BaseException as err:  # noqa: BLE001  whoever takes the result raises it
                    settle = partial(future.set_exception, err)
                with suppress(InvalidStateError):  # it was cancelled meanwhile
                    settle()
            with self._lock:
                self._unsettled.discard(future)

        with self._lock:
            if self._is_closed:
                raise ClosedError
            self._unsettled.add(future)
            # A call that was given up counts for as long as it runs: its thread is not free.
            if len(self._unsettled) > len(self._threads) < self._count:
                self._start()
            self._jobs.put(job)
        return future

    @property
    def free(self) -> int:
        """How many calls more would run at once, beside those that are under way or wait."""
        return max(0, self._count - len(self._unsettled))

    def _start(self) -> None:
        name = f"{self._name}-{len(self._threads)}"
        self._threads.append(threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True))
        self._threads[-1].start()

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002  Executor's
        """Cancel every call and let the threads end. Returns at once, whatever the arguments say."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                # An end for each thread, put under the lock: a job that came after them would never run.
                for _ in self._threads:
                    self._jobs.put(None)
            unsettled = list(self._unsettled)
        # Outside of the lock: cancelling runs the callbacks of whoever waits, and those may come back here.
        for future in unsettled:
            future.cancel()


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # or its result, a range's bytes, stays in memory until the next job comes
