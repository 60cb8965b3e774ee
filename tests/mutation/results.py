"""What became of each mutant: a line of JSON each, so that a run goes on where the last one was stopped.

    {"name": "coldstream.format.chunk:…", "verdict": "killed", "code": "…", "tests": "…"}

`code` and `tests` are hashes of the module and of all tests. A mutant is tried again if its module has changed; one
that survived also if any test has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tests.mutation.suite import ROOT, Verdict

RESULTS = ROOT / "build/mutation"
NOTICED = (Verdict.KILLED, Verdict.HANGS)
EXPLAINED = Path(__file__).parent / "explained.txt"


@dataclass(frozen=True, slots=True)
class Results:
    """The results of one package."""

    package: str
    directory: Path = RESULTS

    @property
    def path(self) -> Path:
        """The file."""
        return self.directory / f"{self.package}.jsonl"

    def known(self, codes: Mapping[str, str], tests: str | None = None) -> dict[str, Verdict]:
        """Return what is known by name of modules as they are, by the hash of each; with `tests`, also of these."""
        found = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            one = json.loads(line)
            verdict = Verdict(one["verdict"])
            is_of_these = tests in {None, one["tests"]} or verdict in NOTICED
            if codes.get(one["name"].partition(":")[0]) == one["code"] and is_of_these:
                found[one["name"]] = verdict
        return found

    def newest_tests(self) -> str | None:
        """Return the hash of the tests of the newest result. What survived other tests counts as not tried."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return json.loads(lines[-1])["tests"] if lines else None

    def add(self, name: str, verdict: Verdict, code: str, tests: str) -> None:
        """Write a result."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps({"name": name, "verdict": verdict, "code": code, "tests": tests}) + "\n")


def explained() -> dict[str, str]:
    """Return the mutants that no test can or need kill, by name, with the reason."""
    lines = EXPLAINED.read_text().splitlines()
    pairs = (line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: reason.strip() for name, reason in pairs}


def tally(verdicts: Mapping[str, Verdict]) -> dict[str, int | float]:
    """Return how many mutants were tried, and what became of them. The share is of those that are not explained."""
    reasons = explained()
    killed = sum(verdict in NOTICED for verdict in verdicts.values())
    survived = [name for name, verdict in verdicts.items() if verdict not in NOTICED]
    unexplained = sum(name not in reasons for name in survived)
    return {
        "tried": len(verdicts),
        "killed": killed,
        "explained": len(survived) - unexplained,
        "unexplained": unexplained,
        "share killed": round(killed / max(1, killed + unexplained), 4),
    }


def hash_of(paths: Iterable[Path]) -> str:
    """Return a hash of the contents of files."""
    return sha256(b"".join(path.read_bytes() for path in sorted(paths))).hexdigest()[:16]
