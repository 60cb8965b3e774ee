"""Tests that were collected once, and run again and again, each time in a process of its own with a mistake in it."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "layers/coldstream/python"
LEAST_CPU_S, FACTOR = 20, 10
"""A mutant may take this long, and so many times what the tests take without it: then it hangs, and is noticed."""

BUDGET_S = 60.0
"""Of one mutant: the nearest and quickest tests are run up to here."""

Place = tuple[str, str]
"""A file, and the qualified name of a function in it."""


class Verdict(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    HANGS = "hangs"
    UNREACHED = "unreached"


@dataclass
class Suite:
    """The tests, how long each takes, and the functions that each calls."""

    items: list[pytest.Item] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[Place, list[pytest.Item]] = field(default_factory=dict)

    def look(self, session: pytest.Session, package: str) -> None:
        """Run all tests once, and note what they call in a package. Raises RuntimeError if one fails."""
        inside = str(LIBRARY / "coldstream" / package) + os.sep
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            found: set[CodeType] = set()
            began = time.process_time()
            with _Profile(inside, found):
                reports = runtestprotocol(item, log=False, nextitem=following)
            if any(report.failed for report in reports):
                raise RuntimeError(f"{item.nodeid} fails without any mistake")
            if all(report.passed for report in reports):
                self.items.append(item)
                self.seconds[item.nodeid] = time.process_time() - began
                for code in found:
                    self.calls.setdefault((code.co_filename, code.co_qualname), []).append(item)

    def tests_of(self, module: ModuleType, pairs: Iterable[tuple[CodeType, CodeType]]) -> list[pytest.Item]:
        """Return the tests that call one of these functions: those of the module's own test file first."""
        assert module.__file__ is not None
        called = {
            item.nodeid: item for own, _ in pairs for item in self.calls.get((module.__file__, own.co_qualname), [])
        }
        own_file = f"test_{module.__name__.rpartition('.')[2]}.py"
        return sorted(called.values(), key=lambda item: (item.path.name != own_file, self.seconds[item.nodeid]))

    def try_out(self, tests: list[pytest.Item], change: Callable[[], object]) -> Verdict:
        """Run tests in a process in which a change is made first, up to the first that fails."""
        chosen, total = [], 0.0
        for item in tests:
            total += self.seconds[item.nodeid]
            if chosen and total > BUDGET_S:
                break
            chosen.append(item)
        if not chosen:
            return Verdict.UNREACHED
        child = os.fork()
        if not child:
            limit = int(LEAST_CPU_S + FACTOR * min(total, BUDGET_S))
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            os._exit(_run(chosen, change))
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            return Verdict.HANGS
        return Verdict.KILLED if os.WEXITSTATUS(status) else Verdict.SURVIVED


def _run(tests: list[pytest.Item], change: Callable[[], object]) -> int:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        change()
        for item, following in zip(tests, [*tests[1:], None], strict=True):
            if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
                return 1
    except BaseException:  # noqa: BLE001  whatever it is, it was noticed
        return 1
    return 0


class _Profile:
    """Notes the code in a directory that is called, in all threads."""

    def __init__(self, inside: str, found: set[CodeType]) -> None:
        self._inside, self._found = inside, found

    def __enter__(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # None ends it

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(self._inside):
            self._found.add(frame.f_code)
