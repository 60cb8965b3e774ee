from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import count, islice

import pytest

from coldstream.flow.window import Window, map_ahead


@pytest.fixture
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


def test_results_come_in_the_order_of_the_calls(pool: Executor) -> None:
    first_may_end = threading.Event()
    window: Window[str] = Window(pool, max_calls=2)
    window.submit(lambda: (first_may_end.wait() and "first") or "")
    window.submit(lambda: "second")
    first_may_end.set()
    assert [window.take(), window.take()] == ["first", "second"]


def test_calls_are_bounded(pool: Executor) -> None:
    window: Window[int] = Window(pool, max_calls=2)
    window.submit(lambda: 1)
    assert window.has_room()
    window.submit(lambda: 2)
    assert not window.has_room()
    window.take()
    assert window.has_room()


def test_weight_is_bounded_but_one_call_is_always_admitted(pool: Executor) -> None:
    window: Window[int] = Window(pool, max_calls=9, max_weight=10)
    assert window.has_room(100)
    window.submit(lambda: 1, 8)
    assert window.has_room(2)
    assert not window.has_room(3)
    window.take()
    assert window.has_room(3)


def test_an_error_comes_out_where_its_result_is_taken(pool: Executor) -> None:
    def fail() -> int:
        raise OSError("broken")

    window: Window[int] = Window(pool, max_calls=2)
    window.submit(fail, 5)
    window.submit(lambda: 2)
    with pytest.raises(OSError, match="broken"):
        window.take()
    assert window.take() == 2


def test_what_is_cancelled_does_not_start() -> None:
    started: list[int] = []
    may_end = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        window: Window[bool] = Window(pool, max_calls=3)
        window.submit(may_end.wait)
        window.submit(lambda: bool(started.append(2)))
        window.cancel()
        assert len(window) == 0
        may_end.set()
    assert started == []


def test_items_are_taken_only_as_there_is_room(pool: Executor) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in count():
            taken.append(number)
            yield number

    assert list(islice(map_ahead(pool, lambda number: 2 * number, items(), max_calls=3), 4)) == [0, 2, 4, 6]
    assert len(taken) <= 4 + 3


def test_weight_alone_may_be_the_bound(pool: Executor) -> None:
    window: Window[int] = Window(pool, max_weight=100)
    for _ in range(100):
        assert window.has_room(1)
        window.submit(lambda: 1, 1)
    assert not window.has_room(1)


def test_items_in_flight_are_bounded_by_their_weight(pool: Executor) -> None:
    lock, flying, most = threading.Lock(), 0, 0

    def carry(weight: int) -> int:
        nonlocal flying, most
        with lock:
            flying += weight
            most = max(most, flying)
        with lock:
            flying -= weight
        return weight

    weights = [1, 1, 8, 1, 20, 1, 1]
    assert list(map_ahead(pool, carry, weights, max_calls=9, max_weight=10, weigh=lambda weight: weight)) == weights
    # One that is heavier than all of it goes alone.
    assert most <= 20
