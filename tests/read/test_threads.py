"""Threads whose calls can be given up while they run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from coldstream.read.http import ClosedError
from coldstream.read.threads import FetchThreads


@pytest.fixture
def threads() -> Iterator[FetchThreads]:
    running = FetchThreads(2)
    yield running
    running.shutdown()


def test_results_and_errors_come_out_of_the_future(threads: FetchThreads) -> None:
    assert threads.submit(lambda: 7).result(5) == 7
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(5)


def test_cancelling_releases_the_waiter_while_the_call_runs(threads: FetchThreads) -> None:
    runs, may_end = threading.Event(), threading.Event()

    def call() -> None:
        runs.set()
        may_end.wait(5)

    future = threads.submit(call)
    assert runs.wait(5)
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(0)
    may_end.set()
    assert threads.submit(lambda: "next").result(5) == "next"


def test_after_shutdown_waiters_are_released_and_calls_refused(threads: FetchThreads) -> None:
    may_end = threading.Event()
    future = threads.submit(may_end.wait, 5)
    threads.shutdown()
    with pytest.raises(CancelledError):
        future.result(0)
    with pytest.raises(ClosedError):
        threads.submit(lambda: None)
    may_end.set()
