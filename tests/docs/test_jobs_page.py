"""docs/jobs.md: its jobs are jobs, its fields and routes are all that there are, and its metrics are counted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from coldstream.api.app import PATHS
from coldstream.jobs.attempt import FIRST_RETRY_MS, LEASE_S, MAX_RETRY_MS
from coldstream.jobs.job import JobState
from coldstream.jobs.log_lines import KEPT_LINES
from coldstream.jobs.sealing import sealed
from coldstream.jobs.specs import SPECS, CommonSpec, JobKind, parse_spec
from coldstream.worker.metrics import WorkerMetrics

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/jobs.md").read_text(encoding="utf-8")
JOBS = [
    line for block in re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("text", JOBS)
def test_a_job_on_the_page_is_one(text: str) -> None:
    sealed(parse_spec(json.loads(text)))


def test_the_page_has_a_job_for_each_type_of_target() -> None:
    types = {json.loads(text).get("target", {}).get("type") for text in JOBS}
    assert types >= {"stream", "super_stream", "exchange", "table"}


def test_every_kind_and_every_field_is_told() -> None:
    assert {kind for kind in JobKind if f"| `{kind}` |" not in section("Kinds")} == set()
    told = set(re.findall(r"`([a-z_]+)`", section("Fields")))
    fields = {name for spec in SPECS.values() for name in spec.model_fields} - {"selection"}
    assert fields - told == set()


def test_a_field_is_told_of_the_kinds_that_have_it() -> None:
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| (`[a-z`, ]+`) \| ", section("Fields"), re.MULTILINE)
    assert len(rows) > 10
    for names, kinds in rows:
        for name in re.findall(r"[a-z_]+", names):
            having = {kind.value for kind, spec in SPECS.items() if name in spec.model_fields}
            assert having == set(re.findall(r"[a-z]+", kinds)), name
    assert {name for names, _ in rows for name in re.findall(r"[a-z_]+", names)}.isdisjoint(CommonSpec.model_fields)


def test_every_state_is_told() -> None:
    assert set(re.findall(r"^\| ([a-z]+) \| ", section("States"), re.MULTILINE)) - {"state"} == set(JobState)


def test_every_route_is_told_and_no_other() -> None:
    routes = {f"{method} {path}" for path, methods in PATHS.items() for method in methods.split(", ")}
    assert set(re.findall(r"^\| `([A-Z]+ /v1/[^`]+)` \|", PAGE, re.MULTILINE)) == routes


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"a lease of {LEASE_S:.0f} seconds" in PAGE
    assert f"after {FIRST_RETRY_MS // 1000} seconds, 4, 8, up to\n{MAX_RETRY_MS // 60_000} minutes" in PAGE
    assert f"last {KEPT_LINES} lines" in PAGE
    assert f"it fails: {CommonSpec.model_fields['max_attempts'].default} |" in PAGE


def test_every_metric_of_a_worker_is_told() -> None:
    served = set(re.findall(r"^# TYPE (\w+)", WorkerMetrics().text(), re.MULTILINE))
    assert set(re.findall(r"`(coldstream_(?:jobs|worker_\w+))`", section("Metrics"))) == served
