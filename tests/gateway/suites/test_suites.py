"""The stock clients' own test suites end with the gateway as they end with the broker alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.gateway.suites.suites import SUITES
from tests.support.broker import find_rabbitmq
from tests.support.fixtures import do_without
from tests.support.releases import RABBITMQ_4_0, Release
from tests.support.server import ROOT

TRIES = 3
"""Suites that end differently are run so often, each way: tests that wait a fixed time fail on busy machines."""

_THOUSAND = "sends a thousand requests and more, one after the other, within 5 or 10 s"
UNSTEADY = {
    "producer_test::producer_drop": "counts the tasks of Tokio, of which some are about to end",
    "Super Stream Consumer Single active consumer in action"
    " SAC enabled. Both should receive the messages the total messages": (
        "publishes before the broker has counted the second consumer in, which then reads again what the first has had"
    ),
    "close consumer if consumers for the same stream have different underlying clients": _THOUSAND,
    "close publisher if publishers for the same stream have different underlying clients": _THOUSAND,
    "declare consumer if a large number of consumers for the same stream": _THOUSAND,
    "declare publisher if a large number of publishers for the same stream": _THOUSAND,
    "offset query the consumer is able to track the offset": "uses a consumer that may not be declared yet",
}
"""Tests, by how their names begin, that end now so, now otherwise with the broker alone, and why."""


def outcomes(suite: str, release: Release, way: str, directory: Path) -> Mapping[str, str]:
    """Run a suite in a network of its own."""
    directory.mkdir()
    command = [sys.executable, "-m", "tests.gateway.suites.run_suite", suite, release.version, way, str(directory)]
    done = subprocess.run(["unshare", "--net", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    found: Mapping[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def can_unshare() -> bool:
    """Tell whether networks of one's own can be had."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0


SUITES_AT_LEAST = [("rust", 70)]
"""The suites, and how many tests of theirs succeed with the broker alone."""

if os.environ.get("COLDSTREAM_SUITES") == "all":  # These take minutes: `make soak` has them.
    SUITES_AT_LEAST += [("go", 220), ("javascript", 200)]


@pytest.mark.parametrize(("suite", "at_least"), SUITES_AT_LEAST)
def test_a_suite_ends_as_with_the_broker_alone(suite: str, at_least: int, tmp_path: Path):
    release = RABBITMQ_4_0
    if find_rabbitmq(release) is None:
        do_without(f"RabbitMQ {release.version}", release.remedy)
    if not SUITES[suite].programs:
        do_without(f"the test suite of the {suite} client", "make gateway-clients")
    if not can_unshare():
        do_without("a network of its own", "as root: unshare --net")
    direct: dict[str, str] = {}
    through: dict[str, str] = {}
    for number in range(TRIES):
        with ThreadPoolExecutor() as both:  # each in its own network; they wait most of the time
            first = both.submit(outcomes, suite, release, "direct", tmp_path / f"direct-{number}")
            second = both.submit(outcomes, suite, release, "gateway", tmp_path / f"gateway-{number}")
        direct, through = best(direct, first.result()), best(through, second.result())
        if through == direct:
            break
    assert sum(outcome == "ok" for outcome in direct.values()) >= at_least
    different = {name: (direct.get(name), through.get(name)) for name in direct.keys() | through.keys()}
    assert {name: ways for name, ways in different.items() if ways[0] != ways[1]} == {}


def best(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return how each steady test ended, the best of what it did before and now."""
    steady = {name: outcome for name, outcome in now.items() if not name.startswith(tuple(UNSTEADY))}
    return steady | {name: outcome for name, outcome in before.items() if outcome == "ok"}
