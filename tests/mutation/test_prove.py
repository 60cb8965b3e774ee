"""The run itself, on one module: mistakes that its tests notice, and one that they miss without one of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.mutation.prove import LEAST_TRIED
from tests.mutation.suite import ROOT

MODULE = "coldstream.compact.options:"
TESTS = "tests/compact/test_options.py"


def proved(tmp_path: Path, *arguments: str) -> tuple[int, str, dict[str, float]]:
    """Run it, beside what is known of earlier runs; return its exit code, what it says, and the figures."""
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.mutation.prove", "compact"]
    ended = subprocess.run(
        [*command, "--results", tmp_path, "--figures", figures, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert figures.exists(), ended.stdout + ended.stderr
    return ended.returncode, ended.stdout, json.loads(figures.read_text())["compact"]


def test_mistakes_by_seed_are_noticed_each(tmp_path):
    code, told, figures = proved(tmp_path, "--only", MODULE, "--most", "16", "--seed", "18", "--tests", TESTS)
    assert (code, figures["tried"], figures["killed"]) == (0, 16, 16), told


def test_a_mistake_that_no_test_minds_any_more_is_told_and_fails_the_run(tmp_path):
    name = f"{MODULE}CompactOptions.parse:compare:5"
    code, told, figures = proved(tmp_path, "--only", name, "--tests", f"{TESTS}::test_units_are_understood")
    assert (code, figures["tried"], figures["unexplained"]) == (1, 1, 1), told
    assert f"survived  {name} line" in told


def test_a_package_whose_tests_fail_without_a_mistake_is_told_in_the_figures(tmp_path):
    failing = tmp_path / "test_failing.py"
    failing.write_text("def test_it():\n    raise AssertionError\n")
    code, told, figures = proved(tmp_path, "--tests", str(failing))
    assert (code, figures["tried"], figures["ended early"]) == (1, 0, "its tests could not be run"), told


def test_some_are_tried_though_the_time_is_over(tmp_path):
    code, told, figures = proved(tmp_path, "--only", MODULE, "--hours", "0", "--seed", "18", "--tests", TESTS)
    assert (code, figures["tried"], figures["killed"]) == (0, LEAST_TRIED, LEAST_TRIED), told
