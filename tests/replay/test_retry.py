"""Retries, while there is progress."""

from __future__ import annotations

import pytest

from coldstream.errors import AccessDeniedError, ColdstreamError, CorruptionError, UnavailableError
from coldstream.replay import retry
from coldstream.replay.retry import retry_while_progressing


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only waiting moves; what was waited."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(retry.asyncio, "sleep", sleep)
    monkeypatch.setattr(retry.time, "monotonic", lambda: sum(waits))
    return waits


class Work:
    """Fails a number of times, and each time is a little further."""

    def __init__(self, failures: int, advance: int, error: ColdstreamError | None = None) -> None:
        self.left = failures
        self.place = 0
        self.calls = 0
        self._advance = advance
        self._error = error or UnavailableError("away")

    async def __call__(self) -> None:
        self.calls += 1
        if self.left:
            self.left -= 1
            self.place += self._advance
            raise self._error


async def test_what_passes_is_waited_for_longer_each_time(clock: list[float]) -> None:
    work = Work(8, 0)
    await retry_while_progressing(work, lambda: work.place, "work")
    assert work.calls == 9
    assert all(0.1 * 2**n <= wait <= 0.2 * 2**n for n, wait in enumerate(clock[:5]))
    assert max(clock) <= 10


async def test_it_gives_up_when_nothing_advances(clock: list[float]) -> None:
    work = Work(1000, 0)
    with pytest.raises(UnavailableError):
        await retry_while_progressing(work, lambda: work.place, "work")
    assert 120 < sum(clock) < 131


async def test_whoever_advances_is_waited_for_without_end(clock: list[float]) -> None:
    work = Work(2000, 1)
    await retry_while_progressing(work, lambda: work.place, "work")
    assert sum(clock) > 200
    assert max(clock) <= 0.2


@pytest.mark.parametrize("error", [AccessDeniedError("no"), CorruptionError("here", 0, "bad")])
async def test_what_does_not_pass_is_told_at_once(error: ColdstreamError, clock: list[float]) -> None:
    work = Work(1, 0, error)
    with pytest.raises(type(error)):
        await retry_while_progressing(work, lambda: work.place, "work")
    assert not clock
