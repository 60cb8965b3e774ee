from __future__ import annotations

from dataclasses import fields

from coldstream.gateway.figures import GatewayFigures


def test_figures_of_two_processes_add_up_and_the_lag_is_the_greater() -> None:
    one = GatewayFigures(connections=1, takeovers_total=2, lag_offsets=5)
    one.gaps_total["skip"] += 1
    other = GatewayFigures(connections=10, takeovers_total=20, lag_offsets=3)
    other.gaps_total["error"] += 1
    one.add(other)
    assert (one.connections, one.takeovers_total, one.lag_offsets) == (11, 22, 5)
    assert one.gaps_total == {"skip": 1, "error": 1}
    assert other.gaps_total == {"error": 1}


def test_of_a_process_that_has_ended_only_the_totals_stay() -> None:
    ended = GatewayFigures(**{each.name: 1 for each in fields(GatewayFigures) if each.type == "int"})
    ended.archive_failures_total["denied"] += 1
    found = GatewayFigures()
    found.add_totals(ended)
    kept = {each.name for each in fields(found) if getattr(found, each.name)}
    assert kept == {each.name for each in fields(found) if each.name.endswith("_total")} - {"gaps_total"}


def test_figures_are_the_same_after_json() -> None:
    figures = GatewayFigures(connections=1)
    figures.gaps_total["skip"] += 1
    assert GatewayFigures.from_dict(figures.to_dict()) == figures
