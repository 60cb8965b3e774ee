"""What operators are given names only what there is."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from coldstream.agent.monitor.exposition_format import ExpositionFormat
from coldstream.agent.monitor.metrics import AgentMetrics, Service
from coldstream.errors import AccessDeniedError, UnavailableError
from coldstream.manifest.stream import StreamId
from tests.support.agent_status import ORDERS, agent_status, stream_status

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PACKAGE = ROOT / "layers/coldstream/python/coldstream"

OF_PROMETHEUS = {"up": {"job", "instance"}}
TARGET_LABELS = {"job", "instance"}
SELECTOR = re.compile(r"\b(?P<metric>up|coldstream_\w+)\b(?:\{(?P<matchers>[^}]*)\})?")
MATCHER = re.compile(r'(?P<label>\w+)\s*(?:=~|!~|!=|=)\s*"(?P<value>[^"]*)"')
TEMPLATED = re.compile(r"\$labels\.(\w+)")


@cache
def scraped() -> dict[str, dict[str, set[str]]]:
    """Return every metric there is, with its labels and their values, from an agent that has seen everything."""
    metrics = AgentMetrics()
    metrics.show(agent_status(stream_status()))
    for service in Service:
        metrics.contacted(service)
    for err in (AccessDeniedError(""), UnavailableError("")):
        metrics.failed(err, StreamId("/", "orders", ORDERS))
    found: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(metrics.text(ExpositionFormat.wanted("")).decode()):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


@cache
def alerts() -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load((DEPLOY / "prometheus/coldstream-agent.rules.yml").read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


@cache
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana/coldstream-agent.json").read_text())
    return found


def expressions() -> list[Any]:
    found = [pytest.param(rule["expr"], id=name) for name, rule in alerts().items()]
    for panel in dashboard()["panels"]:
        found += [pytest.param(target["expr"], id=panel["title"]) for target in panel.get("targets", [])]
    found += [
        pytest.param(variable["definition"], id=f"variable {variable['name']}")
        for variable in dashboard()["templating"]["list"]
        if variable["type"] == "query"
    ]
    return found


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_asks_for_metrics_and_labels_that_exist(expression: str) -> None:
    selectors = list(SELECTOR.finditer(expression))
    assert selectors
    for selector in selectors:
        name = selector["metric"]
        labels = OF_PROMETHEUS.get(name) or scraped()[name].keys() | TARGET_LABELS
        for matcher in MATCHER.finditer(selector["matchers"] or ""):
            assert matcher["label"] in labels, f"{name} has no label {matcher['label']}"
            if "$" not in matcher["value"] and name not in OF_PROMETHEUS:
                assert set(matcher["value"].split("|")) <= scraped()[name][matcher["label"]]


@pytest.mark.parametrize("rule", [pytest.param(rule, id=name) for name, rule in alerts().items()])
def test_an_alert_says_what_and_where_by_labels_that_it_has(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert set(rule["annotations"]) == {"summary", "description"}
    text = " ".join(rule["annotations"].values())
    labels = {label for name in re.findall(r"coldstream_\w+", rule["expr"]) for label in scraped()[name]}
    if "sum by" in rule["expr"]:
        labels = set()
    assert set(TEMPLATED.findall(text)) <= labels | TARGET_LABELS


def test_the_dashboards_panels_lie_beside_each_other() -> None:
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
    used = set(re.findall(r"\$\{?([a-z]+)\}?", (DEPLOY / "grafana/coldstream-agent.json").read_text()))
    assert used == variables
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_the_page_for_operators_has_every_metric_and_every_alert() -> None:
    page = (ROOT / "docs/agent.md").read_text()
    of_agent = {name for name in scraped() if not name.startswith("coldstream_agent_process_")}
    assert set(re.findall(r"\bcoldstream_agent_[a-z_]+\b", page)) - {"coldstream_agent_process_"} == of_agent
    assert set(re.findall(r"\bColdstream[A-Za-z]+\b", page)) == set(alerts())


def unit() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "coldstream-agent.service").read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def test_the_unit_makes_no_mount_between_the_brokers_files_and_the_pins() -> None:
    assert unit()["ReadWritePaths"] == ["/var/lib/rabbitmq"]
    assert not unit().keys() & {"StateDirectory", "BindPaths", "BindReadOnlyPaths", "ReadOnlyPaths", "DynamicUser"}


def test_the_unit_runs_as_the_broker_and_comes_after_it_in_everything() -> None:
    assert unit()["User"] == ["rabbitmq"]
    assert int(unit()["Nice"][0]) > 0
    assert unit()["Restart"] == ["always"]
    assert not unit().keys() & {"Requires", "BindsTo", "PartOf"}


def test_every_variable_of_the_example_is_read_by_somebody() -> None:
    text = (DEPLOY / "agent.env.example").read_text()
    variables = set(re.findall(r"^#?([A-Z_]+)=", text, re.MULTILINE))
    readers = "".join(path.read_text() for path in PACKAGE.rglob("*.py")) + " ".join(unit()["ExecStart"])
    assert variables >= {"COLDSTREAM_BUCKET", "COLDSTREAM_TABLE", "COLDSTREAM_EVENT_BUS", "COLDSTREAM_BROKER"}
    assert {name for name in variables if not name.startswith("AWS_") and name not in readers} == set()


def test_the_container_is_built_of_files_that_there_are_and_runs_as_the_broker() -> None:
    lines = (DEPLOY / "Containerfile").read_text().replace("\\\n", "").splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ")]
    assert copied
    for source in (path for paths in copied for path in paths):
        assert (ROOT / source).exists(), source
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users == ["${BROKER_UID}:${BROKER_GID}"]
    installs = [step for line in lines if line.startswith("RUN") for step in line.split("&&") if " -r " in step]
    assert installs
    assert all("--require-hashes" in step for step in installs)
