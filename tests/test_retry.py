from __future__ import annotations

import time

import pytest

from coldstream.retry import Backoff, retrying


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept


def test_a_call_is_repeated_while_it_raises_what_may_pass(delays: list[float]) -> None:
    answers = iter([OSError(), OSError(), "done"])

    def call() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert retrying(OSError, attempts=5, first_delay_s=0.1, max_delay_s=1)(call) == "done"
    assert len(delays) == 2
    assert all(0 <= delay <= 1 for delay in delays)


def test_the_last_error_comes_out_after_the_last_attempt(delays: list[float]) -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        raise OSError(calls)

    with pytest.raises(OSError, match="3"):
        retrying(OSError, attempts=3, first_delay_s=0.1, max_delay_s=1)(call)
    assert len(delays) == 2


def test_other_errors_come_out_at_once(delays: list[float]) -> None:
    def call() -> None:
        raise ValueError("no use")

    with pytest.raises(ValueError, match="no use"):
        retrying(OSError, attempts=3, first_delay_s=0.1, max_delay_s=1)(call)
    assert delays == []


def test_delays_of_a_loop_grow_to_their_bound_and_start_again() -> None:
    backoff = Backoff(1, 4)
    delays = [backoff.next_delay_s() for _ in range(4)]
    for delay, bound in zip(delays, [1, 2, 4, 4], strict=True):
        assert bound / 2 <= delay <= bound
    backoff.reset()
    assert backoff.next_delay_s() <= 1


def test_a_function_may_tell_which_errors_pass(delays: list[float]) -> None:
    errors = iter([OSError("passes"), OSError("stays"), OSError("never raised")])

    def call() -> None:
        raise next(errors)

    with pytest.raises(OSError, match="stays"):
        retrying(lambda err: "passes" in str(err), attempts=5, first_delay_s=0.1, max_delay_s=1)(call)
    assert len(delays) == 1
