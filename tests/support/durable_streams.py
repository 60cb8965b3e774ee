"""The conformance suite of the Durable Streams protocol, which `make durable-streams` fetches from npm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.fixtures import do_without

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".cache/durable-streams"
FILES = ROOT / "tests/serve/conformance"
TIMEOUT_S = 1100


@dataclass(frozen=True)
class SuiteResult:
    """The tests of the suite by what became of them, by their full names; `output` is what it printed."""

    passed: frozenset[str]
    failed: frozenset[str]
    skipped: frozenset[str]
    output: str


def home() -> Path:
    """Return where the suite is, or skip the test."""
    node = shutil.which("node")
    if node is None or not (HOME / "node_modules/.bin/vitest").exists():
        do_without("the conformance suite of Durable Streams", "make durable-streams, which needs npm")
    return HOME


def run_suite(url: str, directory: Path, pattern: str = ".*") -> SuiteResult:
    """Run those tests of the suite at a server whose names match a pattern. `directory` is for its report."""
    at = home()
    for name in ("streams.test.js", "vitest.config.js"):
        shutil.copyfile(FILES / name, at / name)
    report = directory / "report.json"
    done = subprocess.run(
        ["node_modules/.bin/vitest", "run", "--testNamePattern", pattern, "--reporter=json", f"--outputFile={report}"],
        cwd=at,
        env={**os.environ, "SERVER_URL": url, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert report.exists(), done.stdout + done.stderr
    found: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}
    messages = []
    for file in json.loads(report.read_text())["testResults"]:
        for test in file["assertionResults"]:
            status = "skipped" if test["status"] in {"pending", "todo"} else test["status"]
            found[status].add(test["fullName"])
            messages += [f"{test['fullName']}: {message}" for message in test["failureMessages"]]
    return SuiteResult(*map(frozenset, found.values()), "\n".join([*messages, done.stderr]))
