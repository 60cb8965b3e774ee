"""Hunts for what goes wrong without each guard: the shortest schedule that breaks an invariant, if there is one.

python -m tests.explore.hunting [SECONDS] [KIND]      writes the table of docs/proof.md
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.explore.actors import PLAIN, STAGED, world
from tests.explore.guards import Guard, GuardKind, all_guards, heard
from tests.explore.machine import Machine, Violation
from tests.explore.nearest import search_nearest
from tests.explore.patches import reproducible
from tests.explore.playing import written
from tests.explore.runs import Stuck
from tests.explore.watching import Invariants
from tests.explore.world import Faults

ACTORS = (*PLAIN, *STAGED, "rival")

GROUNDS = (
    ("{}", "1c0l0r"),
    ("{}+sweep", "1c0l0r"),
    ("{}+garbage", "0c0l0r"),
    ("{}+rival", "0c0l0r"),
    ("{}+twice", "0c0l0r"),
    ("{}+slice", "0c1l0r"),
    ("{}+delete", "0c0l0r"),
    ("{}+cut", "0c0l0r"),
    ("{}+fold", "0c0l0r"),
    ("{}+hold", "0c0l0r"),
    ("{}+other", "0c0l0rh"),
    ("{}+compact", "0c0l0rh"),
    ("{}+lose", "0c0l0rh"),
    ("{}+purge", "1c0l0r"),
)
"""Worlds in which an actor's guards are hunted, one after the other."""

OF_TRANSACTIONS = (
    ("slice+delete", "0c0l0r"),
    ("upload+twice", "0c0l0rh"),
    ("slice+other", "0c1l0r"),
    ("slice+other", "0c0l0rh"),
    ("lose+other", "0c0l0rh"),
    ("compact+slice", "0c0l0rh"),
    ("compact+compact.2", "0c0l0rh"),
    ("compact+cut", "0c0l0rh"),
    ("lose+lose.2", "0c1l0rh"),
    ("bad+slice", "0c1l0rh"),
    ("fold+sweep", "0c0l0rh"),
    ("release+hold", "0c1l0rh"),
    ("erase+compact", "0c0l0rh"),
    ("erase+erase.2", "0c1l0rh"),
    ("garbage+cut", "0c0l0rh"),
)
"""Worlds in which conditions of transactions are: only who sees half of a change plans on something else."""

WHO_CHECKS = {
    "archive": ("upload", "bad", "rival"),
    "manifest.commit": ("upload", "slice"),
    "manifest.floors": ("upload", "slice"),
    "compact": ("compact",),
    "manifest.compaction": ("compact", "sweep"),
    "erase": ("erase",),
    "manifest.erasing": ("erase",),
    "manifest.claiming": ("fold",),
    "manifest.deletion": ("regret", "delete"),
    "manifest.purging": ("purge",),
    "manifest.removal": ("cut", "purge"),
    "lifecycle": ("cut", "purge", "retain"),
}
"""By module, the actors that come to its checks."""


@dataclass(frozen=True, slots=True)
class Find:
    """What goes wrong without a guard: the schedule, and how that shows."""

    text: str
    told: str


def hunt(guard: Guard, grounds: Sequence[tuple[str, str]], *, seconds: float, max_states: int = 10_000) -> Find | None:
    """Return what goes wrong in the first of some worlds in which anything does, None if nothing is found in time."""
    begun = time.process_time()
    for names, faults in grounds:
        left = seconds - (time.process_time() - begun)
        if left <= 0:
            return None
        found = hunt_in(guard, names.split("+"), faults, until_s=left, max_states=max_states)
        if found is not None:
            return found
    return None


def hunt_in(
    guard: Guard, names: list[str], faults: str, *, until_s: float | None = None, max_states: int | None = None
) -> Find | None:
    """Return what goes wrong in one world, None if nothing is found."""
    with guard.taken_away() as alter:
        there = world(names, faults=faults)
        if alter is not None:
            there = replace(there, roles=[replace(one, alter=alter) for one in there.roles])
        machine = Machine(there)
        Invariants(machine)
        try:
            search_nearest(machine, until_s=until_s, max_states=max_states)
        except Violation as err:
            return Find(written(names, Faults.parse(faults), err.moves), str(err))
        except Stuck as err:
            return Find("", f"{err}")
        finally:
            machine.programs.close()
    return None


def grounds_of(guard: Guard) -> Iterator[tuple[str, str]]:
    """Yield the worlds for a guard: each of the actors that have it alone, and beside each of the others."""
    if guard.kind is GuardKind.CONDITION:
        yield from OF_TRANSACTIONS
        return
    who = guard.actors or next((some for place, some in WHO_CHECKS.items() if guard.name.startswith(place)), ())
    for ground, faults in GROUNDS:
        for actor in who:
            names = ground.format(actor).split("+")
            if names.count(actor) > 1:
                if actor in STAGED or actor == "rival":
                    continue  # both would stage at one key
                names[1] = f"{actor}.2"
            yield "+".join(names), faults


def main() -> None:
    """Hunt for all, or those of some kinds, each for its share of the time, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", choices=[*map(str, GuardKind), []], help="all without any")
    parser.add_argument("--hours", type=float, default=0.5)
    parser.add_argument("--figures", type=Path, help="a file for the figures, as JSON")
    options = parser.parse_args()
    with reproducible():
        guards = [one for one in all_guards(heard(ACTORS)) if not options.kinds or str(one.kind) in options.kinds]
        shown = 0
        for guard in guards:
            found = hunt(guard, list(grounds_of(guard)), seconds=options.hours * 3600 / len(guards))
            shown += found is not None
            told = f"`{found.text}` | {found.told}" if found else "- | none found"
            sys.stdout.write(f"| {guard} | {told} |\n")
            sys.stdout.flush()
    sys.stdout.write(f"{shown} of {len(guards)} shown\n")
    if options.figures is not None:
        options.figures.write_text(json.dumps({"guards": len(guards), "found anew": shown}))


if __name__ == "__main__":
    main()
