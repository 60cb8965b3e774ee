"""When a job runs again: also after runs that were missed, and if a clock was set back meanwhile."""

from __future__ import annotations

import pytest

from coldstream.jobs.schedule import Schedule
from coldstream.units import TimestampMs, parse_timestamp

HOUR = 3_600_000


def at(text: str) -> TimestampMs:
    return parse_timestamp(f"2026-11-27T{text}Z")


@pytest.mark.parametrize(
    ("schedule", "began", "now", "following"),
    [
        ("every 1h", "09:00:00", "09:10:00", "10:00:00"),
        ("every 1h", "09:00:00", "10:00:00", "11:00:00"),
        ("every 1h", "09:00:00", "13:30:00", "14:00:00"),
        ("0 * * * *", "09:00:00", "09:00:00", "10:00:00"),
        ("0 * * * *", "09:00:00", "13:30:00", "14:00:00"),
        # The clock was set back by a little: the run of nine o'clock does not come twice.
        ("0 * * * *", "09:00:00.100", "08:59:59.900", "10:00:00"),
    ],
)
def test_the_next_run_is_after_now_and_what_was_missed_is_one(
    schedule: str, began: str, now: str, following: str
) -> None:
    assert Schedule.parse(schedule).next_after(at(began), at(now)) == at(following)


@pytest.mark.parametrize("schedule", ["every 1h", "0 * * * *"])
def test_a_run_that_began_by_a_clock_far_ahead_does_not_put_off_the_next(schedule: str) -> None:
    now = at("09:30:00")
    assert Schedule.parse(schedule).next_after(TimestampMs(now + 9000 * HOUR), now) <= now + HOUR
