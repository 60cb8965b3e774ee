"""How long the broker will still have a segment."""

from __future__ import annotations

import pytest

from coldstream.agent.disk.retention import SegmentAge, retention_left_s
from coldstream.units import TimestampMs

NOW = TimestampMs(1_763_700_000_000)
AGE = SegmentAge(last_at=TimestampMs(NOW - 60_000), newest_at=NOW, bytes_after=6_000)
"""A minute old, and 100 bytes a second since."""


@pytest.mark.parametrize(
    ("max_age_ms", "max_length_bytes", "left_s"),
    [
        (None, None, None),
        (90_000, None, 30),
        (60_000, None, 0),
        (1_000, None, 0),
        (None, 10_000, 40),
        (None, 6_000, 0),
        (None, 100, 0),
        (90_000, 7_000, 10),
        (90_000, 100_000, 30),
    ],
)
def test_age_and_length_each_set_a_time_and_the_sooner_counts(max_age_ms, max_length_bytes, left_s):
    found = retention_left_s(AGE, max_age_ms=max_age_ms, max_length_bytes=max_length_bytes, now=NOW)
    assert found == left_s


def test_without_bytes_after_a_segment_no_rate_is_known():
    age = SegmentAge(last_at=NOW, newest_at=NOW, bytes_after=0)
    assert retention_left_s(age, max_age_ms=None, max_length_bytes=1000, now=NOW) is None


def test_a_clock_that_stands_still_is_no_division_by_zero():
    age = SegmentAge(last_at=NOW, newest_at=NOW, bytes_after=1000)
    found = retention_left_s(age, max_age_ms=None, max_length_bytes=2000, now=NOW)
    assert found == pytest.approx(0.001)
