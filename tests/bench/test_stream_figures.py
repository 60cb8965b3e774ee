"""The pure parts of the benchmark of direct streams: what is aimed at, and what a GiB costs."""

from __future__ import annotations

import pytest

from bench.stream_acknowledgements import Acknowledgements
from bench.stream_costs import cost_of


def _round(latencies_ms: list[float], puts_ms: list[float]) -> Acknowledgements:
    answer = {"latencies": [one / 1000 for one in latencies_ms], "puts": [one / 1000 for one in puts_ms]}
    return Acknowledgements.of(answer, interval_s=0.1)


def test_an_aim_is_half_the_interval_and_115_percent_of_a_mean_put() -> None:
    found = _round([50.0], [20.0, 40.0, 60.0])
    assert found.put_ms == pytest.approx(40)
    assert found.most_p50_ms == pytest.approx(50 + 46)
    assert found.most_p99_ms == pytest.approx(100 + 80)


def test_percentiles_are_of_the_latencies() -> None:
    found = _round([float(number) for number in range(1, 101)], [40.0])
    assert (found.p50_ms, found.p99_ms) == (pytest.approx(50), pytest.approx(99))


def test_one_aim_that_is_missed_makes_the_share_more_than_one() -> None:
    assert _round([90.0] * 100, [40.0]).share < 1
    assert _round([97.0] * 100, [40.0]).share > 1
    assert _round([90.0] * 98 + [181.0] * 2, [40.0]).share > 1


def test_a_gib_costs_its_log_its_fragments_and_a_deletion_a_thousand_objects() -> None:
    cost = cost_of(10_000)
    assert cost.requests == 10_000 + 16 + 10
    assert cost.dollars == pytest.approx(10_026 * 5e-6 + 16 * 13 * 0.625e-6)
