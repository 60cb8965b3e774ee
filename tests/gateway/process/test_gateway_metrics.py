"""What Prometheus is told: every count there is, by the names that the page has."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from coldstream.gateway import figures
from coldstream.gateway.process.metrics import COUNTS, metrics_text
from tests.support.gateway_status import gateway_status

PAGE = Path(__file__).parents[3] / "docs/gateway.md"


def samples(text: str) -> dict[str, float]:
    return {
        sample.name + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_figure_is_a_metric() -> None:
    assert [count.field for count in COUNTS] == list(figures.COUNTS)


def test_values_are_sums_over_all_processes_and_those_that_have_ended() -> None:
    found = samples(metrics_text(gateway_status(), broker_up=True, archive_up=False))
    assert found["coldstream_gateway_ready"] == 1
    assert found["coldstream_gateway_takeovers_total"] == 14
    assert found["coldstream_gateway_gaps_total[skip]"] == 1
    assert found["coldstream_gateway_gaps_total[error]"] == 0
    assert found["coldstream_gateway_archive_failures_total[unavailable]"] == 2
    assert found["coldstream_gateway_processes"] == 2
    assert found["coldstream_gateway_process_restarts_total"] == 1
    assert found["coldstream_gateway_resident_bytes"] == 130 << 20
    assert (found["coldstream_gateway_broker_up"], found["coldstream_gateway_archive_up"]) == (1, 0)


def test_totals_are_counters_and_all_have_words() -> None:
    for family in text_string_to_metric_families(metrics_text(gateway_status(), broker_up=True, archive_up=True)):
        assert family.documentation.endswith(".")
        assert family.type == ("counter" if family.samples[0].name.endswith("_total") else "gauge"), family.name


def test_without_a_broker_nothing_is_said_of_it() -> None:
    assert "broker_up" not in metrics_text(gateway_status(), broker_up=None, archive_up=True)


def test_the_page_has_every_metric_and_no_other() -> None:
    told = set(re.findall(r"`(coldstream_gateway_\w+)", PAGE.read_text()))
    emitted = {
        sample.name
        for family in text_string_to_metric_families(metrics_text(gateway_status(), broker_up=True, archive_up=True))
        for sample in family.samples
    }
    assert told == emitted
