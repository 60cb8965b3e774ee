"""CloudWatch's dashboard of jobs shows metrics that functions count, and jobs in every state that is open."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import Any

import pytest

from coldstream.jobs.job import JobState
from tests.support.cloudformation import PSEUDO, TEMPLATE, Stack
from tests.template.test_alarms import OF_AWS, PACKAGE

TICK = TEMPLATE.parent / "functions/job_tick/app.py"
API = (TEMPLATE.parent / "functions/api/app.py", PACKAGE / "api/serving.py")


def widgets(stack: Stack) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(stack.properties("JobsDashboard")["DashboardBody"])["widgets"]
    return found


def shown(stack: Stack) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the metrics: namespace, name and dimensions."""
    for widget in widgets(stack):
        for namespace, name, *rest in widget["properties"]["metrics"]:
            words = [word for word in rest if isinstance(word, str)]
            yield namespace, name, dict(zip(words[::2], words[1::2], strict=True))


def counted(*sources: Any) -> set[str]:
    """Return the names of metrics that code counts, by `add_metric` or `single_metric`."""
    found = set()
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if called in {"add_metric", "single_metric"}:
                    found.add(ast.literal_eval(node.args[0]))
    return found


def test_every_metric_of_aws_is_of_a_resource_of_the_stack(stack: Stack) -> None:
    names = {stack.ref("ApiFunction"), stack.ref("Table")}
    of_aws = [(namespace, name, tags) for namespace, name, tags in shown(stack) if namespace in OF_AWS]
    assert len(of_aws) == 7
    for namespace, name, dimensions in of_aws:
        assert name in OF_AWS[namespace]
        assert set(dimensions.values()) <= names


def test_every_other_metric_is_in_the_stacks_namespace_and_of_a_service(stack: Stack) -> None:
    ours = [(namespace, tags) for namespace, _, tags in shown(stack) if namespace not in OF_AWS]
    assert {namespace for namespace, _ in ours} == {PSEUDO["AWS::StackName"]}
    assert {tags["service"] for _, tags in ours} == {"api", "jobs"}


def test_the_api_counts_what_is_shown_of_it(stack: Stack) -> None:
    assert {name for _, name, tags in shown(stack) if tags.get("service") == "api"} <= counted(*API)


@pytest.mark.skipif(not TICK.exists(), reason="the function that counts jobs is not there")
def test_the_tick_counts_what_is_shown_of_jobs(stack: Stack) -> None:
    assert {name for _, name, tags in shown(stack) if tags.get("service") == "jobs"} <= counted(TICK)


def test_jobs_are_shown_in_every_state_that_is_open(stack: Stack) -> None:
    states = {tags["State"] for _, name, tags in shown(stack) if name == "JobsByState"}
    assert states == {state.value for state in JobState if not state.has_ended}


def test_widgets_do_not_overlap(stack: Stack) -> None:
    cells = [
        (x, y)
        for widget in widgets(stack)
        for x in range(widget["x"], widget["x"] + widget["width"])
        for y in range(widget["y"], widget["y"] + widget["height"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
