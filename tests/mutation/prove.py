"""Put small mistakes into packages, one at a time, and see whether a test fails: python -m tests.mutation.prove format

Mutants are tried in an order by chance, by seed: what was tried when the time is over is a fair sample of a package. A
mutant keeps its place in that order when others come and go, as it follows from the seed and its name.
Results go to build/mutation, and a run goes on where the last one was stopped. At the end it tells what survived, and
fails if less than 90 % was noticed of what was tried, or if a survivor is not explained; also if tests of a package
fail without any mistake, but then the others are tried all the same.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.patching import ModuleFunctions, changed_functions, compiled
from tests.mutation.reached import statement_around
from tests.mutation.results import RESULTS, Results, explained, hash_of, tally
from tests.mutation.suite import LIBRARY, EndAtFirstFailure, Suite, Verdict
from tests.mutation.whole_module import ARGUMENTS, FreshProcess

LEAST = 0.9
LEAST_TRIED = 10
"""Of each package, also if the time is over once its tests have been looked at."""

TESTS = {
    "format": ("tests/format", "tests/fuzz/test_inputs.py"),
    "manifest": (
        "tests/manifest",
        "tests/fuzz/test_inputs.py",
        "tests/archive/test_commit.py",
        "tests/archive/test_coverage.py",
        "tests/archive/test_missing.py",
        "tests/archive/test_removed.py",
        "tests/archive/test_upload.py",
        "tests/compact/test_commit.py",
        "tests/erase/test_copies.py",
        "tests/erase/test_versions.py",
        "tests/garbage/test_quarantined.py",
        "tests/lifecycle/test_deletion.py",
        "tests/lifecycle/test_direct.py",
        "tests/lifecycle/test_holds.py",
        "tests/lifecycle/test_prefix.py",
        "tests/operate/test_quarantine.py",
        "tests/rebuild/test_direct.py",
        "tests/rebuild/test_stream.py",
        "tests/store/test_direct_notes.py",
        "tests/store/test_journal.py",
        "tests/store/test_reserved.py",
        "tests/store/test_shard_maps.py",
    ),
    "archive": ("tests/archive", "tests/erase/test_fragment.py"),
    "compact": ("tests/compact",),
}
SEEDED = ("archive/test_histories.py", "archive/test_upload_histories.py", "compact/test_chaos.py")
"""Left out: they run everything by hundreds of seeds, and would be the last to be asked."""


@dataclass(frozen=True)
class MutatedModule:
    """A module, by its name and its file, with what is computed of it once."""

    name: str
    path: Path

    @cached_property
    def source(self) -> str:
        """Its text."""
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        """Its tree."""
        return ast.parse(self.source)

    @cached_property
    def code(self) -> CodeType:
        """What the compiler makes of it without any mistake."""
        return compiled(str(self.path), self.source, None)

    @cached_property
    def functions(self) -> ModuleFunctions:
        """Its functions, once it has been imported."""
        importlib.import_module(self.name)
        return ModuleFunctions(str(self.path))


@dataclass
class MutationRun:
    """A run, as a plugin of pytest: it collects the tests, and this takes the place of running them."""

    package: str
    ends_at: float
    fresh: FreshProcess
    seed: int = 0
    only: str = ""
    names: frozenset[str] = frozenset()
    most: int | None = None
    results: Path = RESULTS
    tests: Sequence[str] = ()
    tried: dict[str, Verdict] = field(default_factory=dict)
    seconds: float = 0.0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try all mutants that are not known yet, or as many as the time allows."""
        suite = Suite()
        suite.look(session, self.package)
        _tell(f"{self.package}: {len(suite.items)} tests, {sum(suite.seconds.values()):.0f} s")
        self.fresh.prepare()
        if self.fresh.try_out(None, suite.items[:5], 60) != Verdict.SURVIVED:
            raise RuntimeError("tests fail in a fresh process without any mistake")
        mutants = self._mutants()
        gc.collect()
        gc.freeze()  # a collection in a fork would copy all that it looks at
        codes, tests = codes_of(self.package), hash_of({item.path for item in session.items})
        results = Results(self.package, self.results)
        known = results.known(codes, tests)
        began = time.monotonic()
        for module, mutant in mutants:
            if mutant.name in known:
                continue
            is_over = time.time() > self.ends_at and len(self.tried) >= LEAST_TRIED
            if is_over or len(self.tried) == self.most:
                break
            verdict = self._try(suite, module, mutant)
            self.tried[mutant.name] = verdict
            results.add(mutant.name, verdict, codes[module.name], tests)
            if verdict in {Verdict.SURVIVED, Verdict.UNREACHED} and mutant.name not in explained():
                _tell(f"{verdict:9} {mutant.name} line {mutant.line}: {mutant.told}")
        self.seconds = time.monotonic() - began
        return True

    def _mutants(self) -> list[tuple[MutatedModule, Mutant]]:
        modules = [MutatedModule(name, path) for name, path in modules_of(self.package).items()]
        for module in modules:
            _ = module.functions  # before they are frozen, and hidden from who looks for them
        found = [(module, one) for module in modules for one in mutants_of(module.name, module.source)]
        found.sort(key=lambda pair: sha256(f"{self.seed} {pair[1].name}".encode()).digest())
        return [
            (module, one) for module, one in found if self.only in one.name and one.name in (self.names or {one.name})
        ]

    def _try(self, suite: Suite, module: MutatedModule, mutant: Mutant) -> Verdict:
        file = str(module.path)
        pairs = changed_functions(module.code, compiled(file, module.source, mutant))
        if pairs == []:
            return Verdict.SURVIVED  # the compiler makes the same of it
        reaching = suite.tests_of(file, statement_around(module.tree, mutant.line))
        # What no test reaches may be called while the module is imported.
        if pairs is None or not module.functions.count(pairs) or not reaching:
            files = suite.files_reaching(file)
            near = [item for item in suite.items if item.path in files] or suite.items
            tests = suite.nearest_first(file, near)
            verdict = self.fresh.try_out(mutant.name, tests, sum(suite.seconds[item.nodeid] for item in tests))
            return Verdict.UNREACHED if verdict is Verdict.SURVIVED and pairs and not reaching else verdict
        return suite.try_out(reaching, lambda: module.functions.patch(pairs))


def modules_of(package: str) -> dict[str, Path]:
    """Return the modules of a package by name."""
    paths = sorted((LIBRARY / "coldstream" / package).rglob("*.py"))
    return {".".join(path.relative_to(LIBRARY).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def codes_of(package: str) -> dict[str, str]:
    """Return a hash of each module of a package."""
    return {name: hash_of([path]) for name, path in modules_of(package).items()}


def run_package(run: MutationRun) -> None:
    """Run it within pytest. Raises RuntimeError if the tests fail without any mistake."""
    arguments = [*ARGUMENTS, *(f"--ignore=tests/{path}" for path in SEEDED), *(run.tests or TESTS[run.package])]
    if pytest.main(arguments, plugins=[run, EndAtFirstFailure()]) != pytest.ExitCode.OK:
        raise RuntimeError(f"{run.package}: the tests could not be run")


def figures_of(package: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what is known of a package by now, in plain words: also in which order, and by which tests."""
    directory = options.results
    results = Results(package, directory)
    names = {one.name for name, path in modules_of(package).items() for one in mutants_of(name, path.read_text())}
    known = {
        name: verdict
        for name, verdict in results.known(codes_of(package), results.newest_tests()).items()
        if name in names
    }
    asked = [*(options.tests or TESTS[package])]
    return {"mutants": len(names), **tally(known), "seed of the order": options.seed, "tests asked": asked}


def _try_packages(packages: list[str], options: argparse.Namespace) -> list[str]:
    """Give each package its share of the time, in a process without the others' modules.

    Returns those that ended early, as their tests could not be run.
    """
    ends_at = time.time() + options.hours * 3600
    ended_early = []
    for at, package in enumerate(packages):
        now = time.time()
        until = now + (ends_at - now) / (len(packages) - at)
        child = os.fork()
        if not child:
            fresh = FreshProcess()
            names = frozenset(options.names.read_text().split()) if options.names else frozenset()
            run = MutationRun(
                package, until, fresh, options.seed, options.only, names, options.most, options.results, options.tests
            )
            run_package(run)
            fresh.close()
            _tell(f"{package}: {len(run.tried)} in {run.seconds:.0f} s")
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            _tell(f"{package}: the tests could not be run")
            ended_early.append(package)
    return ended_early


def main() -> None:
    """Try the mutants of packages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*", choices=[*TESTS, []], help="all without any")
    parser.add_argument("--hours", type=float, default=8, help="for all packages together")
    parser.add_argument("--seed", type=int, default=0, help="of the order in which mutants are tried")
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument("--names", type=Path, help="a file of mutants' names, one a line: these only")
    parser.add_argument("--most", type=int, help="so many of each package")
    parser.add_argument("--tests", nargs="*", default=(), help="these only, and not all of a package")
    parser.add_argument("--results", type=Path, default=RESULTS, help="a directory, for going on later")
    parser.add_argument("--figures", type=Path, help="a file for what is known by now, as JSON")
    options = parser.parse_args()
    packages = options.packages or list(TESTS)
    ended_early = _try_packages(packages, options)
    figures = {package: figures_of(package, options) for package in packages}
    for package in ended_early:
        figures[package]["ended early"] = "its tests could not be run"
    text = json.dumps(figures, indent=2)
    _tell(text)
    if options.figures:
        options.figures.write_text(text + "\n")
    failed = [name for name, one in figures.items() if one["share killed"] < LEAST or one["unexplained"]]
    if failed:
        _tell(f"less than {LEAST:.0%}, or survivors that nobody explained: {', '.join(failed)}")
    if failed or ended_early:
        sys.exit(1)


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
