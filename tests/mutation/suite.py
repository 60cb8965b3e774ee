"""Tests that were collected once, and run again and again, each time in a fork with a mistake in it.

What the tests import is there already, so a mutant costs little more than the tests that reach its line, up to the
first that fails.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from tests.mutation.reached import Line, ReachedLines

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "layers/coldstream/python"
LEAST_CPU_S, FACTOR = 2.0, 10
"""A test may take this much processor time, and so many times what it takes without a mistake; then it hangs."""

LEAST_WAIT_S = 120
"""A mutant that neither ends nor uses the processor hangs, too."""

BUDGET_S = 20.0
"""Of processor time, of one mutant: the nearest and quickest tests are run up to here."""

MOST_BYTES = 3 << 30
"""Of memory: a mutant that wants more is stopped, and was noticed."""


class Verdict(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    HANGS = "hangs"
    UNREACHED = "unreached"


@dataclass
class Suite:
    """The tests, how long each takes, and the tests that reach each line."""

    items: list[pytest.Item] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    reaching: dict[Line, list[pytest.Item]] = field(default_factory=dict)

    def look(self, session: pytest.Session, package: str) -> None:
        """Run all tests once, and note what they reach in a package. Raises RuntimeError if one fails."""
        inside = str(LIBRARY / "coldstream" / package) + os.sep
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            began = time.process_time()
            with ReachedLines(inside) as reached:
                reports = runtestprotocol(item, log=False, nextitem=following)
            if any(report.failed for report in reports):
                words = next(report.longreprtext for report in reports if report.failed)
                raise RuntimeError(f"{item.nodeid} fails without any mistake: {words}")
            if all(report.passed for report in reports):
                self.items.append(item)
                self.seconds[item.nodeid] = time.process_time() - began
                for line in reached.lines:
                    self.reaching.setdefault(line, []).append(item)

    def tests_of(self, file: str, lines: Iterable[int]) -> list[pytest.Item]:
        """Return the tests that reach a line: those of the module's own test file first, then the quickest."""
        found = {item.nodeid: item for line in lines for item in self.reaching.get((file, line), ())}
        return self.nearest_first(file, found.values())

    def nearest_first(self, file: str, items: Iterable[pytest.Item]) -> list[pytest.Item]:
        """Return as many tests as the budget allows, and one at least."""
        own = f"test_{Path(file).stem}.py"
        chosen, total = [], 0.0
        for item in sorted(items, key=lambda item: (item.path.name != own, self.seconds[item.nodeid])):
            total += self.seconds[item.nodeid]
            if chosen and total > BUDGET_S:
                break
            chosen.append(item)
        return chosen

    def files_reaching(self, file: str) -> set[Path]:
        """Return the files of the tests that reach any line of a file."""
        return {item.path for (path, _), items in self.reaching.items() if path == file for item in items}

    def try_out(self, tests: list[pytest.Item], change: Callable[[], object]) -> Verdict:
        """Run tests in a fork in which a change is made first, up to the first that fails."""
        if not tests:
            return Verdict.UNREACHED
        return in_fork(lambda: self._run(tests, change), sum(self.seconds[item.nodeid] for item in tests))

    def _run(self, tests: list[pytest.Item], change: Callable[[], object]) -> bool:
        change()
        for item, following in zip(tests, [*tests[1:], None], strict=True):
            bound_processor_time(self.seconds[item.nodeid])
            if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
                return False
        return True


class EndAtFirstFailure:
    """A plugin of pytest: a fork has said all with its first failure. Telling it in words would take longer."""

    def __init__(self, parent: int | None = None) -> None:
        self._parent = parent or os.getpid()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Have hypothesis take its first counterexample, and not look for a smaller one."""
        from hypothesis import Phase, settings  # noqa: PLC0415  pytest wants to import it first

        name = "_hypothesis_internal_use_settings"
        for function in (getattr(item, "function", None) for item in items):
            if hasattr(function, name):
                own = getattr(function, name) or settings.default
                phases = [phase for phase in own.phases if phase not in {Phase.shrink, Phase.explain, Phase.reuse}]
                setattr(function, name, settings(own, phases=phases))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """End the process, unless the test was skipped or was to fail."""
        if call.excinfo is None or os.getpid() == self._parent or call.excinfo.errisinstance(pytest.skip.Exception):
            return
        if item.get_closest_marker("xfail") is None:
            os._exit(1)


def bound_processor_time(usual_s: float) -> None:
    """End this process if from now on it takes much more processor time than is usual."""
    signal.setitimer(signal.ITIMER_PROF, LEAST_CPU_S + FACTOR * usual_s)


def in_fork(passes: Callable[[], bool], usual_s: float) -> Verdict:
    """Return what becomes of tests in a process of their own: it survives if they pass."""
    child = os.fork()
    if not child:
        os._exit(_quietly(passes))
    gives_up_at = time.monotonic() + LEAST_WAIT_S + 10 * FACTOR * usual_s
    pause = 0.001
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > gives_up_at:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return Verdict.HANGS
        time.sleep(pause)
        pause = min(pause * 1.3, 0.05)
    code = os.waitstatus_to_exitcode(ended[1])
    if code == -signal.SIGPROF:
        return Verdict.HANGS
    return Verdict.KILLED if code else Verdict.SURVIVED


def _quietly(passes: Callable[[], bool]) -> int:
    """Return 0 if tests pass, 1 if not: any error that ends them was noticed."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    try:
        return 0 if passes() else 1
    except BaseException:  # noqa: BLE001  whatever it is, it was noticed
        return 1
