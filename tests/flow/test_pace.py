"""A rate, in a time of our own."""

from __future__ import annotations

import asyncio

import pytest

from coldstream.flow.pace import Pace


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each sleep was; time passes in sleeps alone."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("coldstream.flow.pace.time.monotonic", lambda: 100 + sum(slept))
    monkeypatch.setattr("coldstream.flow.pace.asyncio.sleep", sleep)
    return slept


def test_messages_wait_until_those_before_them_had_their_time(clock: list[float]) -> None:
    async def pass_them() -> None:
        pace = Pace(100)
        for _ in range(5):
            await pace.wait(30)

    asyncio.run(pass_them())
    assert sum(clock) == pytest.approx(4 * 0.3)


def test_a_long_wait_ends_soon_after_it_is_told_to(clock: list[float]) -> None:
    async def pass_them() -> None:
        pace = Pace(1)
        await pace.wait(1000, lambda: len(clock) >= 3)
        await pace.wait(1, lambda: len(clock) >= 3)

    asyncio.run(pass_them())
    assert clock == [0.5] * 3


@pytest.mark.parametrize(("rate", "piece"), [(None, None), (0.1, 1), (10, 2), (100_000, 25_000)])
def test_what_passes_at_a_time_is_a_quarter_of_a_second(rate: float | None, piece: int | None) -> None:
    assert Pace(rate).piece == piece
