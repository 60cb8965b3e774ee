"""Explores for hours: python -m tests.explore.prove --hours 8 --figures FILE [--seed N]

First each world as far as the fewest switches and faults lead, for half of the time at most; then those that are larger
depth first, each for its share of what is left. The worlds of CI come first, and the seed orders the others.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.explore import further
from tests.explore.explorer import Findings
from tests.explore.machine import Violation
from tests.explore.patches import reproducible
from tests.explore.runs import Stuck
from tests.explore.searching import Bounds, search
from tests.explore.worlds import (
    DIRECT,
    DIRECT_FURTHER,
    FURTHER,
    JOBS,
    JOBS_FURTHER,
    NEAREST,
    PAST,
    WHOLE,
    all_worlds,
)

PROVEN_STATES = 3_000_000
"""The most of one world: 500 bytes each."""

NEAR_STATES = 2000
"""Of each world at first: a fraction of a second."""

World = tuple[str, str]


@dataclass
class Proof:
    """What the searches came to."""

    states: int = 0
    moves: int = 0
    ends: int = 0
    cpu_s: float = 0.0
    whole: set[World] = field(default_factory=set)
    cut: set[World] = field(default_factory=set)
    faulty: set[World] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)

    def add(self, world: World, found: Findings) -> None:
        """Count a search."""
        self.states, self.moves, self.ends = (
            self.states + found.states,
            self.moves + found.moves,
            self.ends + len(found.ends),
        )
        self.cpu_s += found.cpu_s
        (self.whole if found.is_whole else self.cut).add(world)

    @property
    def done(self) -> set[World]:
        """Worlds that need not be searched again."""
        return self.whole | self.faulty

    @property
    def figures(self) -> dict[str, object]:
        """What the page says of it."""
        return {
            "states": self.states,
            "requests carried out": self.moves,
            "ends": self.ends,
            "worlds": len(self.whole | self.cut | self.faulty),
            "worlds searched to their ends": len(self.whole),
            "states a second": round(self.states / max(self.cpu_s, 1e-9)),
            "schedules that break an invariant": self.broken,
        }


def ordered(seed: int) -> list[World]:
    """Return all worlds, those of CI first, the others as a seed orders them."""
    first = [*WHOLE, *DIRECT, *PAST, *JOBS, *DIRECT_FURTHER, *JOBS_FURTHER, *NEAREST, *FURTHER]
    others = [one for one in all_worlds() if one not in set(first)]
    random.Random(seed).shuffle(others)
    return [*first, *others]


def prove(worlds: Sequence[World], seconds: float, proof: Proof) -> Iterator[str]:
    """Search worlds for so much processor time, and yield what each came to."""
    begun = time.process_time()
    for world in worlds:
        if time.process_time() - begun > seconds / 2:
            break
        yield _prove_one(world, Bounds(NEAR_STATES), proof, is_near=True)
    large = [world for world in worlds if world not in proof.done]
    for number, world in enumerate(large):
        left = begun + seconds - time.process_time()
        if left <= 0:
            return
        yield _prove_one(world, Bounds(PROVEN_STATES, left / (len(large) - number)), proof, is_near=False)


def _prove_one(world: World, bounds: Bounds, proof: Proof, *, is_near: bool) -> str:
    names, faults = world
    try:
        found = search(names, faults, bounds, is_near=is_near)
    except (Violation, Stuck) as err:
        proof.faulty.add(world)
        (how,) = getattr(err, "__notes__", [f"{names}/{faults}"])
        proof.broken.append(f"{how}: {err}")
        return f"{names}/{faults}: BROKEN: {err}; {how}"
    gc.collect()  # machines are full of circles, and large
    proof.add(world, found)
    how = "whole" if found.is_whole else "cut short"
    return f"{names}/{faults}: {found.states} states, {len(found.ends)} ends, {found.cpu_s:.0f} s, {how}"


def main(given: Sequence[str]) -> int:
    """Explore, tell, and write the figures; return 1 if an invariant was broken."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=float, required=True)
    parser.add_argument("--figures", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(given)
    proof = Proof()
    further.load()
    with reproducible():
        for line in prove(ordered(options.seed), options.hours * 3600, proof):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            # After each world: who ends it early has what was found.
            options.figures.write_text(json.dumps(proof.figures, indent=1))
    return 1 if proof.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
