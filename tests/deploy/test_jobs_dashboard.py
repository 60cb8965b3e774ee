"""Grafana's dashboard of jobs asks for metrics and labels that workers and agents have."""

from __future__ import annotations

import importlib.util
import json
import re
from functools import cache
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.test_deploy import DEPLOY, MATCHER, OF_PROMETHEUS, SELECTOR, TARGET_LABELS, scraped

HAS_WORKER = importlib.util.find_spec("coldstream.worker") is not None
OF_JOBS_THAT_RUN = {"coldstream_worker_lag_seconds": {"kind"}, "coldstream_worker_ended_total": {"kind", "state"}}
"""A worker shows these once there is something to show."""


@cache
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana/coldstream-jobs.json").read_text())
    return found


def expressions() -> list[Any]:
    found = [
        pytest.param(target["expr"], id=panel["title"])
        for panel in dashboard()["panels"]
        for target in panel.get("targets", [])
    ]
    return found + [
        pytest.param(variable["definition"], id=f"variable {variable['name']}")
        for variable in dashboard()["templating"]["list"]
        if variable["type"] == "query"
    ]


@cache
def of_workers() -> dict[str, dict[str, set[str]]]:
    """Return the metrics of a worker, with their labels and the labels' values."""
    from coldstream.worker.metrics import WorkerMetrics  # noqa: PLC0415

    found: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(WorkerMetrics().text()):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found | {name: {label: set() for label in labels} for name, labels in OF_JOBS_THAT_RUN.items()}


@pytest.mark.skipif(not HAS_WORKER, reason="the package of workers is not there")
@pytest.mark.parametrize("expression", expressions())
def test_an_expression_asks_for_metrics_and_labels_that_exist(expression: str) -> None:
    known = scraped() | of_workers()
    selectors = list(SELECTOR.finditer(expression))
    assert selectors
    for selector in selectors:
        name = selector["metric"]
        labels = OF_PROMETHEUS.get(name) or known[name].keys() | TARGET_LABELS
        for matcher in MATCHER.finditer(selector["matchers"] or ""):
            assert matcher["label"] in labels, f"{name} has no label {matcher['label']}"
            values = known.get(name, {}).get(matcher["label"])
            if "$" not in matcher["value"] and values:
                assert matcher["value"] in values


def test_panels_lie_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)


def test_the_dashboard_can_be_given_any_data_source() -> None:
    variables = {variable["name"] for variable in dashboard()["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)\}?", (DEPLOY / "grafana/coldstream-jobs.json").read_text()))
    assert used == variables
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_states_messages_bytes_lag_and_failures_are_shown() -> None:
    text = json.dumps(dashboard())
    for metric in (
        "jobs",
        "worker_messages_total",
        "worker_bytes_total",
        "worker_lag_seconds",
        "worker_failures_total",
    ):
        assert f"coldstream_{metric}" in text
