"""Mutants of what is done while a module is imported: constants, fields, defaults. No function can be changed for them.

A process that has imported libraries, but nothing of ours, waits for them. It tries each in a fork, in which the
module's source is another one before anything imports it.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.mutation.mutants import mutants_of, mutated
from tests.mutation.suite import (
    ROOT,
    EndAtFirstFailure,
    Verdict,
    bound_processor_time,
    in_fork,
)

ARGUMENTS = (
    "-q",
    "-p",
    "no:cacheprovider",
    "-m",
    "not server",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
)
UNSEEN = ("_pytest", "pytest", "hypothesis")
"""What is not imported before, besides all that is ours: what pytest wants to import itself."""


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads one module with a mistake in it."""

    mutant: str

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text()
        (mutant,) = (one for one in mutants_of(fullname, source) if one.name == self.mutant)
        return compile(mutated(source, mutant), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds that module before anybody else does."""

    def __init__(self, mutant: str) -> None:
        self._mutant = mutant
        self._module = mutant.partition(":")[0]

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._module:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)  # type: ignore[arg-type]  # as it was given
        assert found is not None
        assert found.origin is not None
        loader = _Loader(name, found.origin)
        loader.mutant = self._mutant
        return importlib.util.spec_from_file_location(name, found.origin, loader=loader)


class _Chosen:
    """A plugin of pytest: runs these tests alone, in this order, to the first that fails."""

    def __init__(self, chosen: list[str]) -> None:
        self._places = {name: place for place, name in enumerate(chosen)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (one for one in items if one.nodeid in self._places), key=lambda one: self._places[one.nodeid]
        )


class FreshProcess:
    """The process that waits. It has to be made before anything of ours is imported."""

    def __init__(self) -> None:
        asked, asking = os.pipe()
        answering, answered = os.pipe()
        self._child = os.fork()
        if not self._child:
            os.close(asking)
            os.close(answering)
            _serve(asked, answered)
        os.close(asked)
        os.close(answered)
        self._asking, self._answers = os.fdopen(asking, "w"), os.fdopen(answering)

    def prepare(self) -> None:
        """Have it import the libraries that this process has imported. Raises RuntimeError if one imports ours."""
        answer = self._ask({"libraries": [name for name, one in sys.modules.copy().items() if is_library(name, one)]})
        if answer != "done":
            raise RuntimeError(f"no mutant of these would ever be tried: {answer}")

    def try_out(self, mutant: str | None, tests: Iterable[pytest.Item], usual_s: float) -> Verdict:
        """Run tests with a mutant, or without any."""
        chosen = list(tests)
        files = list(dict.fromkeys(str(item.path) for item in chosen))
        names = [item.nodeid for item in chosen]
        return Verdict(self._ask({"mutant": mutant, "files": files, "tests": names, "usual_s": usual_s}))

    def close(self) -> None:
        """End it."""
        self._asking.close()
        self._answers.close()
        os.waitpid(self._child, 0)

    def _ask(self, what: dict[str, Any]) -> str:
        self._asking.write(json.dumps(what) + "\n")
        self._asking.flush()
        return self._answers.readline().strip()


def is_library(name: str, module: object) -> bool:
    """Tell whether a module is none of ours: ours may import what a mutant is about to change."""
    if name.split(".", maxsplit=1)[0] in UNSEEN or name.startswith("_"):
        return False
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return not any(Path(place).is_relative_to(ROOT) for place in places if place and ".venv" not in Path(place).parts)


def _serve(asked: int, answered: int) -> None:
    with os.fdopen(asked) as questions, os.fdopen(answered, "w") as answers:
        for line in questions:
            answers.write(f"{_answer(json.loads(line))}\n")
            answers.flush()
    os._exit(0)


def _answer(asked: dict[str, Any]) -> str:
    if "libraries" in asked:
        for name in asked["libraries"]:
            with suppress(Exception):
                importlib.import_module(name)
        return ",".join(name for name in sys.modules if name.startswith("coldstream")) or "done"
    return in_fork(lambda: _passes(asked), asked["usual_s"])


def _passes(asked: dict[str, Any]) -> bool:
    bound_processor_time(10 + asked["usual_s"])  # their collection, too
    if asked["mutant"] is not None:
        sys.meta_path.insert(0, _Finder(asked["mutant"]))
    os.chdir(ROOT)
    plugins = [_Chosen(asked["tests"]), EndAtFirstFailure(os.getppid())]
    return pytest.main([*ARGUMENTS, "-x", *asked["files"]], plugins=plugins) == pytest.ExitCode.OK
