"""Put small mistakes into a package, one at a time, and see whether a test fails: python -m tests.mutation.run format

Results go to build/mutation, and a run goes on where the last one was stopped. At the end it lists what survived, and
fails if less than 90 % was noticed of what was tried.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.patching import changed_functions, compiled, patch
from tests.mutation.results import Results, explained, share_killed
from tests.mutation.suite import LIBRARY, ROOT, Suite, Verdict

LEAST = 0.9
TESTS = {
    "format": ("tests/format", "tests/fuzz/test_inputs.py"),
    "manifest": ("tests/manifest", "tests/fuzz/test_inputs.py", "tests/archive", "tests/compact", "tests/resolve"),
    "archive": ("tests/archive",),
    "compact": ("tests/compact",),
}
WHOLE_MODULE_S = 300
"""For the tests of a package, in a process of their own, with a mistake that may make them hang."""


@dataclass
class MutationRun:
    """A run, as a plugin of pytest: it collects the tests, and this takes the place of running them."""

    package: str
    ends_at: float
    only: str

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try all mutants that are not known yet."""
        suite = Suite()
        suite.look(session, self.package)
        _tell(f"{self.package}: {len(suite.items)} tests, {sum(suite.seconds.values()):.0f} s")
        codes, tests = codes_of(self.package), _hash({item.path for item in session.items})
        results = Results(self.package)
        known = results.known(codes, tests)
        for module, source, mutant in self._mutants():
            if mutant.name in known or self.only not in mutant.name:
                continue
            if time.time() > self.ends_at:
                _tell("the time is over; the next run goes on here")
                break
            verdict = self._try(suite, module, source, mutant)
            results.add(mutant.name, verdict, codes[module.__name__], tests)
            if verdict in {Verdict.SURVIVED, Verdict.UNREACHED} and mutant.name not in explained():
                _tell(f"{verdict:9} {mutant.name} line {mutant.line}: {mutant.told}")
        return True

    def _mutants(self) -> Iterator[tuple[ModuleType, str, Mutant]]:
        for name, path in modules_of(self.package).items():
            source = path.read_text()
            module = importlib.import_module(name)
            for mutant in mutants_of(name, source):
                yield module, source, mutant

    def _try(self, suite: Suite, module: ModuleType, source: str, mutant: Mutant) -> Verdict:
        pairs = changed_functions(compiled(module, source, None), compiled(module, source, mutant))
        if pairs is None:
            return self._try_whole_module(mutant)
        if not pairs:
            return Verdict.SURVIVED  # the compiler makes the same of it
        return suite.try_out(suite.tests_of(module, pairs), lambda: patch(module, pairs))

    def _nearest_first(self, mutant: Mutant) -> list[str]:
        """Return the tests of the package, with the module's own before all others."""
        own = f"test_{mutant.name.partition(':')[0].rpartition('.')[2]}.py"
        nearest = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / self.package).rglob(own))
        return [*nearest, *TESTS[self.package]]

    def _try_whole_module(self, mutant: Mutant) -> Verdict:
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "tests.mutation.whole_module", mutant.name, *self._nearest_first(mutant)],
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=WHOLE_MODULE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Verdict.HANGS
        return Verdict.KILLED if ended.returncode else Verdict.SURVIVED


def modules_of(package: str) -> dict[str, Path]:
    """Return the modules of a package by name."""
    paths = sorted((LIBRARY / "coldstream" / package).rglob("*.py"))
    return {".".join(path.relative_to(LIBRARY).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def codes_of(package: str) -> dict[str, str]:
    """Return a hash of each module of a package."""
    return {name: _hash([path]) for name, path in modules_of(package).items()}


def _hash(paths: Iterable[Path]) -> str:
    return sha256(b"".join(path.read_bytes() for path in sorted(paths))).hexdigest()[:16]


def main() -> None:
    """Try the mutants of packages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*", choices=[*TESTS, []], help="all without any")
    parser.add_argument("--hours", type=float, default=8)
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    options = parser.parse_args()
    ends_at = time.time() + options.hours * 3600
    failed = []
    for package in options.packages or TESTS:
        run = MutationRun(package, ends_at, options.only)
        arguments = ["-q", "-p", "no:cacheprovider", "-m", "not server and not slow", *TESTS[package]]
        if pytest.main(arguments, plugins=[run]) != pytest.ExitCode.OK:
            sys.exit(f"{package}: the tests could not be run")
        known = Results(package).known(codes_of(package))
        share = share_killed(known)
        _tell(f"{package}: {share:.1%} of {len(known)} mutants were noticed")
        if share < LEAST:
            failed.append(package)
    if failed:
        sys.exit(f"less than {LEAST:.0%}: {', '.join(failed)}")


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
