"""The long run: larger worlds of the model, and the steps of the code from every world of the explorer.

python -m tests.model.prove --hours 1 --figures model.json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.explore import further
from tests.explore.patches import reproducible
from tests.explore.world import Faults
from tests.explore.worlds import FURTHER, all_worlds
from tests.model.binding import ACTIONS, compare
from tests.model.tlc import check, find_tlc
from tests.model.transitions import Transitions
from tests.model.worlds import LARGER

HEAP, WORKERS = "2g", 1
STATES = 20_000
"""The most of the explorer's, in one world."""
ROUND = 1500
"""Steps that TLC is given at once."""


def main() -> int:
    """Run for so many hours, half of it on each part; return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--figures", type=Path)
    options = parser.parse_args()
    if find_tlc() is None:
        sys.stderr.write("TLC or Java is missing: make tlc\n")
        return 1
    half_s = options.hours * 1800
    worlds, broken = look_through(half_s)
    code = hold_code(half_s)
    if options.figures is not None:
        options.figures.write_text(json.dumps({**worlds, **code}, indent=1))
    return 1 if broken or code["forbidden by the model"] else 0


def look_through(seconds: float) -> tuple[dict[str, int | str], bool]:
    """Have TLC look through the larger worlds; return how far it came, and whether anything was broken."""
    figures: dict[str, int | str] = {}
    is_broken = False
    for number, (name, world) in enumerate(LARGER.items()):
        begun = time.monotonic()
        within_s = seconds / (len(LARGER) - number)
        with TemporaryDirectory() as directory:
            found = check(
                Path(directory),
                "Large",
                world.config(),
                {"Large": world.module("Large")},
                heap=HEAP,
                workers=WORKERS,
                within_s=within_s,
            )
        seconds -= time.monotonic() - begun
        told = f"{found.distinct_states:,} states, {'all' if found.is_whole else f'the first {found.depth} levels'}"
        figures[f"world {name}"] = told
        sys.stdout.write(f"{name}: {told}\n")
        if found.broken is not None:
            is_broken = True
            sys.stdout.write(f"{found.broken} does not hold\n{found.text}\n")
    return figures, is_broken


def hold_code(seconds: float) -> dict[str, int | str]:
    """Hold what the code does in the explorer's worlds against the model, as many worlds as there is time for."""
    begun, states, steps, slept, explored, worlds = time.monotonic(), 0, 0, 0, 0, 0
    forbidden: list[str] = []
    taken: set[str] = set()
    found = Transitions()
    further.load()
    # A stream of which nothing is archived has no head, and the model begins with one.
    known = [(names, faults) for names, faults in (*FURTHER, *all_worlds()) if not Faults.parse(faults).is_new]
    with reproducible():
        for names, faults in known:
            is_over = time.monotonic() - begun > seconds
            if not is_over:
                found.explore(names, faults, max_states=STATES)
                worlds += 1
            if found.steps and (is_over or len(found.steps) >= ROUND or (names, faults) == known[-1]):
                with TemporaryDirectory() as directory:
                    agreed = compare(Path(directory), found, heap=HEAP)
                for one in agreed.forbidden:
                    sys.stdout.write(f"the model forbids: {one}\n")
                forbidden += agreed.forbidden
                taken |= agreed.taken
                states, steps = states + len(found.states), steps + len(found.steps)
                slept, explored = slept + found.slept, explored + found.explored
                found = Transitions()
            if is_over:
                break
    sys.stdout.write(f"{steps} steps of the code in {worlds} worlds, {len(forbidden)} of them forbidden\n")
    return {
        "worlds": worlds,
        "states of the code": explored,
        "states of the model": states,
        "distinct steps": steps,
        "left out, as somebody slept for too long": slept,
        "forbidden by the model": len(forbidden),
        "actions of the model that the code took": len(taken),
        "actions of the model": len(ACTIONS),
        "actions that it did not take": ", ".join(sorted({*ACTIONS} - taken)) or "none",
    }


if __name__ == "__main__":
    sys.exit(main())
