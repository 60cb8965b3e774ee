"""Play runs for a time, by seed: python -m tests.faults.prove --hours H [--runs N] [--seed N] [--figures FILE].

It goes on after a run that is wrong, and ends with status 1 then. Figures tell how many call sites had every kind.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.faults.fault_kinds import FaultKind
from tests.faults.fault_scenarios import SCENARIOS
from tests.faults.faulty_world import Worlds
from tests.faults.judge import FaultJudge
from tests.faults.slice import runs_of_slice

_TOLD = 20


class Proof:
    """Plays seeds, and keeps what failed."""

    def __init__(self) -> None:
        self.worlds = Worlds()
        self.judge = FaultJudge(self.worlds)
        self.kinds: Counter[FaultKind] = Counter()
        self.failed: dict[int, str] = {}

    def play(self, seed: int) -> None:
        """Play a seed; say so if it is wrong."""
        try:
            _, faults = self.judge.of_seed(seed)
            self.kinds[faults.kind] += self.judge.play_seed(seed)
        except Exception as err:  # noqa: BLE001  whatever a run raises is a finding, and others are still to be played
            self.failed[seed] = f"{type(err).__name__}: {err}"
            sys.stderr.write(f"seed {seed}: {self.failed[seed][:3000]}\n")

    def figures(self, seconds: float, first_seed: int, runs: int) -> dict[str, Any]:
        """Return what was played."""
        coverage = self.judge.coverage
        pairs, missing = len(coverage.pairs()), coverage.missing()
        operations = {site for sites in coverage.sites.values() for site in sites.kinds}
        of_slice = {site for _, faults in runs_of_slice(self.judge) for site in (faults.site,)}
        return {
            "runs": runs,
            "first seed": first_seed,
            "seconds": round(seconds, 1),
            "runs whose fault took effect": sum(self.kinds.values()),
            "runs whose fault took effect, by kind": {kind.value: self.kinds[kind] for kind in FaultKind},
            "runs that were wrong": len(self.failed),
            "seeds that were wrong": list(self.failed)[:_TOLD],
            "commands and functions": len(coverage.sites),
            "commands and functions that were not played": sorted(set(SCENARIOS) - set(coverage.sites)),
            "operations": len(operations),
            "operations that the slice in CI leaves out": sorted(operations - of_slice),
            "call sites": sum(len(sites.kinds) for sites in coverage.sites.values()),
            "call sites by kinds that take effect there": pairs,
            "call sites by kinds that were struck": pairs - len(missing),
            "share that was struck": round(1 - len(missing) / pairs, 4) if pairs else 0,
            "not struck yet": [f"{name}, {site}, {kind.value}" for name, site, kind in missing[:_TOLD]],
        }


def main(arguments: list[str] | None = None) -> int:
    """Play, and write figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.prove", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figures", type=Path)
    options = parser.parse_args(arguments)
    proof, began, played = Proof(), time.monotonic(), 0
    while played < options.runs and time.monotonic() - began < options.hours * 3600:
        proof.play(options.seed + played)
        played += 1
    figures = proof.figures(time.monotonic() - began, options.seed, played)
    proof.worlds.close()
    text = json.dumps(figures, indent=2) + "\n"
    sys.stdout.write(text)
    if options.figures is not None:
        options.figures.write_text(text)
    return 1 if proof.failed else 0


if __name__ == "__main__":
    sys.exit(main())
