"""Threads that readers share."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest

from coldstream.read.fetch_pool import FetchPool
from coldstream.read.http import ClosedError


def fetch_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("coldstream-fetch")}


def test_a_thousand_readers_take_no_more_threads_than_one() -> None:
    before = fetch_threads()
    pool = FetchPool(4)
    assert fetch_threads() <= before
    shares = [pool.share() for _ in range(1000)]
    assert [share.submit(int, "7").result(5) for share in shares] == [7] * 1000
    assert 1 <= len(fetch_threads() - before) <= 6
    pool.close()


def test_a_reader_gives_up_its_own_calls_alone() -> None:
    pool = FetchPool(1)
    may_end = threading.Event()
    one, two = pool.share(), pool.share()
    mine, others = one.submit(may_end.wait, 5), two.submit(may_end.wait, 5)
    one.shutdown()
    with pytest.raises(CancelledError):
        mine.result(0)
    with pytest.raises(ClosedError):
        one.submit(int)
    assert not others.cancelled()
    may_end.set()
    assert others.result(5)
    pool.close()


def test_a_pool_that_is_closed_releases_everybody() -> None:
    pool = FetchPool(1)
    may_end = threading.Event()
    share = pool.share()
    waiting = share.submit(may_end.wait, 5)
    pool.close()
    with pytest.raises(CancelledError):
        waiting.result(0)
    for refused in (pool.share, lambda: share.submit(int)):
        with pytest.raises(ClosedError):
            refused()
    may_end.set()


def test_the_last_reader_that_ends_frees_the_memory_of_ranges() -> None:
    pool = FetchPool(1)
    one, two = pool.share(), pool.share()
    buffers = pool.fetcher.buffers
    place = id(buffers.fill(5000, lambda room: None).obj)
    one.shutdown()
    one.shutdown()
    assert id(buffers.fill(5000, lambda room: None).obj) == place
    held = buffers.fill(5000, lambda room: None)
    two.shutdown()
    # Nothing is known any more, so this is memory of its own, though the other is in use.
    assert not buffers.kept_bytes
    assert len(held) == 5000
    pool.close()
