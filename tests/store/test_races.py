"""Lost races are run again, a bounded number of times."""

from __future__ import annotations

import pytest

from coldstream.errors import ColdstreamError, LostRaceError, OutcomeUnknownError, OverlapError
from coldstream.store import races
from coldstream.store.races import retry_lost_races


@pytest.fixture(autouse=True)
def _without_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(races, "FIRST_DELAY_S", 0.0)


@pytest.mark.parametrize("error", [LostRaceError("another was first"), OutcomeUnknownError("no answer")])
def test_an_attempt_that_lost_a_race_or_got_no_answer_is_made_again(error: ColdstreamError) -> None:
    errors = [error, error]

    def attempt() -> str:
        if errors:
            raise errors.pop()
        return "written"

    assert retry_lost_races(attempt) == "written"


def test_the_last_error_comes_out_after_so_many_attempts() -> None:
    attempts = 0

    def attempt() -> None:
        nonlocal attempts
        attempts += 1
        raise LostRaceError(f"race {attempts}")

    with pytest.raises(LostRaceError, match=f"race {races.MAX_ATTEMPTS}"):
        retry_lost_races(attempt)
    assert attempts == races.MAX_ATTEMPTS


def test_any_other_error_comes_out_at_once() -> None:
    attempts = 0

    def attempt() -> None:
        nonlocal attempts
        attempts += 1
        raise OverlapError("key", 0, 10, "an entry")

    with pytest.raises(OverlapError):
        retry_lost_races(attempt)
    assert attempts == 1
