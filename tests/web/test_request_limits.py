"""Limits hold, and what has ended gives back what it took."""

from __future__ import annotations

from contextlib import suppress

import pytest

from coldstream.web.refusal import Refusal
from coldstream.web.request_limits import MAX_CALLERS, RequestLimits


def test_bodies_of_all_requests_together_have_a_bound_and_give_it_back() -> None:
    limits = RequestLimits(0, 1, max_buffered_bytes=10)
    with limits.body() as take:
        take(6)
        with limits.body() as other, pytest.raises(Refusal) as refused:
            other(5)
        take(4)
        assert limits.buffered_bytes == 10
    assert refused.value.kind.status == 503
    assert limits.buffered_bytes == 0


def test_live_reads_have_a_bound_and_one_that_ends_makes_room() -> None:
    limits = RequestLimits(0, 1)
    for _ in range(3):
        with limits.live_read():
            with pytest.raises(Refusal) as refused, limits.live_read():
                pass
            assert limits.live_reads == 1
    assert refused.value.kind.status == 429
    assert limits.live_reads == 0


def test_who_is_counted_takes_bounded_memory() -> None:
    limits = RequestLimits(5, 1, clock=lambda: 0.0)
    for number in range(MAX_CALLERS + 100):
        limits.admit(f"address {number}")
    for _ in range(4):
        limits.admit("address x")
    limits.admit("address x")
    with pytest.raises(Refusal):
        limits.admit("address x")


def test_a_caller_that_is_too_fast_gets_as_much_as_the_limit_says() -> None:
    now = 0.0
    limits = RequestLimits(5, 1, clock=lambda: now)
    admitted = 0
    for number in range(1000):
        now = number / 10  # twice as fast
        with suppress(Refusal):
            limits.admit("address x")
            admitted += 1
    assert 500 <= admitted <= 505


def test_clients_that_do_not_read_take_bounded_memory() -> None:
    limits = RequestLimits(0, 1, max_unread_bytes=10)
    with limits.answer(20):  # more than the bound, but there is nothing else
        with pytest.raises(Refusal) as refused, limits.answer(1):
            pass
        assert refused.value.kind.status == 503
    with limits.answer(4), limits.answer(6):
        assert limits.unread_bytes == 10
    assert limits.unread_bytes == 0
