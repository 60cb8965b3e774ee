"""The bandwidth limit: its average, its burst, and whose turn it is."""

from __future__ import annotations

import threading
import time

import pytest

from coldstream.flow.bandwidth import BURST_S, BandwidthLimit


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_no_limit_never_waits() -> None:
    limit = BandwidthLimit(None)
    assert [limit.reserve(1 << 40) for _ in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("size_bytes", [1, 99, 100, 250, 10_000])
def test_the_average_holds_whatever_the_size_of_the_pieces(size_bytes: int) -> None:
    clock = Clock()
    limit = BandwidthLimit(100, clock=clock)
    began, sent = clock.now_s, 0
    for _ in range(50):
        clock.now_s += limit.reserve(size_bytes)
        sent += size_bytes
    # The last piece is not paid for yet, and the first second was saved up.
    assert sent - size_bytes <= (clock.now_s - began + BURST_S) * 100 + 1e-6
    assert clock.now_s - began == pytest.approx(max(0.0, 49 * size_bytes / 100 - BURST_S))


def test_no_more_than_the_burst_is_saved_up() -> None:
    clock = Clock()
    limit = BandwidthLimit(100, clock=clock)
    clock.now_s += 1_000_000
    assert limit.reserve(int(100 * BURST_S)) == 0
    assert limit.reserve(100) == 0
    assert limit.reserve(1) == pytest.approx(1)


def test_turns_come_in_the_order_in_which_they_were_asked_for() -> None:
    clock = Clock()
    limit = BandwidthLimit(100, clock=clock)
    limit.reserve(1000)
    large, small, last = limit.reserve(5000), limit.reserve(1), limit.reserve(1)
    assert (large, small, last) == pytest.approx((9, 59, 59.01))


def test_a_turn_is_waited_for() -> None:
    limit = BandwidthLimit(1_000_000)
    limit.take(1_050_000)
    began = time.monotonic()
    limit.take(1)
    assert 0.03 <= time.monotonic() - began < 5


def test_who_waits_is_let_go_when_it_is_stopped() -> None:
    limit = BandwidthLimit(1)
    limit.take(1_000_000)
    waiting = threading.Thread(target=limit.take, args=(1,))
    waiting.start()
    limit.stop()
    waiting.join(10)
    assert not waiting.is_alive()
    limit.take(1_000_000)


@pytest.mark.parametrize("bytes_per_s", [0, -1.0])
def test_a_limit_of_nothing_is_refused(bytes_per_s: float) -> None:
    with pytest.raises(ValueError, match="more than 0"):
        BandwidthLimit(bytes_per_s)


def test_threads_share_one_limit() -> None:
    clock = Clock()
    limit = BandwidthLimit(1000, clock=clock)
    turns: list[float] = []
    threads = [threading.Thread(target=lambda: turns.append(limit.reserve(500))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(turns) == pytest.approx([max(0.0, n * 0.5 - BURST_S) for n in range(20)])
