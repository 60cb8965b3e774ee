from __future__ import annotations

import os

import pytest

from tests.gateway.faults.opened import open_gateway
from tests.gateway.faults.soak import pace_of
from tests.gateway.faults.week import Pace, run_week

QUIET = Pace(write_s=2400, archive_s=1800, presence=10)
"""So little goes on that a week is over in seconds."""

FIRST_SEED = int(os.environ.get("COLDSTREAM_FIRST_SEED", "0"))
SEEDS = range(FIRST_SEED, FIRST_SEED + 6)


def test_in_a_week_of_reconnects_every_message_comes_in_order_and_nothing_is_left():
    result = run_week(open_gateway, seed=17, days=7, pace=QUIET)
    assert result.figures.takeovers_total
    assert result.figures.handovers_total
    assert result.figures.returns_total
    assert sum(one.sessions for one in result.progress) > 500
    assert set(result.faults) == {"cut", "killed", "leader", "forgotten", "stall", "failure"}


@pytest.mark.parametrize("seed", SEEDS)
def test_hours_of_any_pace_are_as_good(seed):
    run_week(open_gateway, seed=seed, days=0.1, pace=pace_of(seed))


def test_a_week_is_the_same_for_the_same_seed():
    first, second = (run_week(open_gateway, seed=5, days=0.05) for _ in range(2))
    assert str(first) == str(second)
    assert [one.endings for one in first.progress] == [one.endings for one in second.progress]
