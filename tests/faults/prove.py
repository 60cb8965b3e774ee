"""Play runs for a time, by seed: python -m tests.faults.prove --hours H [--runs N] [--seed N] [--figures FILE].

Scenarios take turns, as many at once as there are cores: each is prepared once for some of its seeds, first for one,
then for twice as many, and so on. It goes on after a run that is wrong, and ends with status 1 then. Figures tell how
many call sites had every kind; they are written each minute, so whoever ends it has those until then.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import selectors
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.call_sites import CallSites
from tests.faults.fault_kinds import FaultKind
from tests.faults.fault_scenario import FaultScenario
from tests.faults.fault_scenarios import SCENARIOS
from tests.faults.faulty_world import Worlds
from tests.faults.fork import Fork, ForkError
from tests.faults.judge import FaultJudge, RunEnd
from tests.faults.slice import runs_of_slice

_TOLD = 20
_TELL_EVERY_S = 60
_FEWEST_SEEDS, _MOST_SEEDS = 4, 128
"""Seeds of a group. It is prepared, and played once without faults, before its first run: that costs three runs."""


@dataclass(frozen=True, slots=True)
class Played:
    """What became of some seeds of a scenario."""

    scenario: str
    sites: CallSites
    ends: dict[int, RunEnd]


class Proof:
    """Plays seeds, and keeps what failed."""

    def __init__(self) -> None:
        self.worlds = Worlds()
        self.judge = FaultJudge(self.worlds)
        self.kinds: Counter[FaultKind] = Counter()
        self.failed: dict[int, str] = {}
        self.unplayable: set[str] = set()
        self.runs = 0

    def play(
        self, first_seed: int, runs: int, ends_at: float, processes: int, on_group: Callable[[], None] = lambda: None
    ) -> None:
        """Play seeds until all are, or it is time; `on_group` is called whenever some have been."""
        # What all runs need is made here, once.
        with self.worlds.world() as world:
            world.upload(1)
        under_way = selectors.DefaultSelector()
        for seeds in groups(first_seed, runs, self._pairs_of):
            if time.monotonic() > ends_at:
                break
            if len(under_way.get_map()) == processes:
                self._take(under_way)
                on_group()
            under_way.register(Fork.begin(partial(self._played, seeds)), selectors.EVENT_READ, seeds)
        while under_way.get_map():
            self._take(under_way)
        under_way.close()

    def _played(self, seeds: Sequence[int]) -> Played:
        """Play seeds that have one scenario."""
        self.worlds.time_ns = time.time_ns()  # not that of hours ago, as the emulated S3 has a clock of its own
        scenario = self.judge.scenario_of(seeds[0])
        all_faults = [self.judge.of_seed(seed)[1] for seed in seeds]
        ends = dict(zip(seeds, self.judge.play_all(scenario, all_faults), strict=True))
        return Played(scenario.name, self.judge.expected(scenario).sites, ends)

    def _take(self, under_way: selectors.BaseSelector) -> None:
        """Wait until seeds have been played, and keep what became of them; say so if one was wrong."""
        for key, _ in under_way.select():
            under_way.unregister(key.fileobj)
            assert isinstance(key.fileobj, Fork)
            try:
                played = key.fileobj.result()
            except ForkError as err:  # the scenario itself: none of its runs could be played
                self._keep(key.data[0], str(err))
                self.unplayable.add(self.judge.scenario_of(key.data[0]).name)
                continue
            for seed, end in played.ends.items():
                self.runs += 1
                self.kinds[end.faults.kind] += bool(end.struck)
                self.judge.coverage.add(played.scenario, played.sites, end.faults.kind, end.struck)
                if end.wrong is not None:
                    self._keep(seed, end.wrong)

    def _pairs_of(self, name: str) -> int | None:
        """Return how many call sites by kinds a scenario has; none if it could not be played."""
        sites = self.judge.coverage.sites.get(name)
        if sites is None:
            return 0 if name in self.unplayable else None
        return len(sites.pairs())

    def _sites_of(self, scenario: FaultScenario) -> CallSites:
        played = self.judge.coverage.sites.get(scenario.name)
        return self.judge.expected(scenario).sites if played is None else played

    def _keep(self, seed: int, wrong: str) -> None:
        self.failed[seed] = wrong
        sys.stderr.write(f"seed {seed}: {wrong[:3000]}\n")

    def figures(self, seconds: float, first_seed: int) -> dict[str, Any]:
        """Return what was played."""
        coverage = self.judge.coverage
        pairs, missing = len(coverage.pairs()), coverage.missing()
        operations = {site for sites in coverage.sites.values() for site in sites.kinds}
        of_slice = {site for _, faults in runs_of_slice(self._sites_of) for site in (faults.site,)}
        return {
            "runs": self.runs,
            "first seed": first_seed,
            "seconds": round(seconds, 1),
            "processor seconds of a run": round(_processor_s() / max(self.runs, 1), 3),
            "runs whose fault took effect": sum(self.kinds.values()),
            "runs whose fault took effect, by kind": {kind.value: self.kinds[kind] for kind in FaultKind},
            "runs that were wrong": len(self.failed),
            "seeds that were wrong": sorted(self.failed)[:_TOLD],
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


def groups(first_seed: int, runs: int, pairs_of: Callable[[str], int | None]) -> Iterator[list[int]]:
    """Give seeds, all of them once, in groups of one scenario: small groups first, then larger ones.

    No call site is struck again by a kind before each was by each: a scenario that has had all of its own waits for the
    others. `pairs_of` tells how many a scenario has, None if that is not known yet.
    """
    names, end = list(SCENARIOS), first_seed + runs
    left = [range(first, end, len(names)) for first in range(first_seed, min(first_seed + len(names), end))]
    given, size = [0] * len(left), _FEWEST_SEEDS
    while any(left):
        new = [
            len(seeds)
            if (most := pairs_of(names[(first_seed + number) % len(names)])) is None
            else most - given[number]
            for number, seeds in enumerate(left)
        ]
        is_first_time = any(seeds and more > 0 for seeds, more in zip(left, new, strict=True))
        for number, (seeds, more) in enumerate(zip(left, new, strict=True)):
            taken = seeds[: max(0, min(size, more)) if is_first_time else size]
            left[number] = seeds[len(taken) :]
            given[number] += len(taken)
            if taken:
                yield list(taken)
        size = min(4 * size, _MOST_SEEDS)


def _processor_s() -> float:
    """Return what this process and those that it waited for took."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main(arguments: list[str] | None = None) -> int:
    """Play, and write figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.prove", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--figures", type=Path)
    options = parser.parse_args(arguments)
    proof, began = Proof(), time.monotonic()

    def write() -> str:
        text = json.dumps(proof.figures(time.monotonic() - began, options.seed), indent=2) + "\n"
        if options.figures is not None:
            options.figures.write_text(text)
        return text

    told_at = began

    def tell() -> None:
        nonlocal told_at
        if time.monotonic() - told_at > _TELL_EVERY_S:
            told_at = time.monotonic()
            sys.stderr.write(f"{proof.runs:,} runs, {len(proof.failed)} of them wrong\n")
            write()

    proof.play(options.seed, options.runs, began + options.hours * 3600, options.processes, tell)
    text = write()
    proof.worlds.close()
    sys.stdout.write(text)
    return 1 if proof.failed else 0


if __name__ == "__main__":
    sys.exit(main())
