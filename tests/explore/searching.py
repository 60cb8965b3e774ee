"""Searches of one world, from its text on: what CI, `make prove` and whoever asks at a prompt have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.explore.actors import world
from tests.explore.direct_bases import BASES
from tests.explore.direct_promises import Promises
from tests.explore.direct_world import DIRECT, direct_world
from tests.explore.explorer import Explorer, Findings
from tests.explore.job_promises import JobsMachine
from tests.explore.jobs import JOBS_ACTORS, jobs_world
from tests.explore.machine import Machine, Violation
from tests.explore.nearest import search_nearest
from tests.explore.schedules import text_of
from tests.explore.site import Ask
from tests.explore.watching import Invariants


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a search ends early: after so many states, or so much processor time; None for never."""

    max_states: int | None = None
    until_s: float | None = None


def watched(names: str, faults: str, *, alter: Callable[[Ask], Any] | None = None) -> Machine:
    """Return the machine of a world, of a broker's stream, a direct one or a job, with its invariants.

    `alter` puts something between the actors and their stores.
    """
    actors = names.split("+")
    kind = actors[0].partition(".")[0]
    make = jobs_world if kind in JOBS_ACTORS else direct_world if kind in DIRECT.keys() | BASES.keys() else world
    there = make(actors, faults=faults)
    if alter is not None:
        there = replace(there, roles=[replace(one, alter=alter) for one in there.roles])
    if make is jobs_world:
        return JobsMachine(there)
    machine = Machine(there)
    (Promises if make is direct_world else Invariants)(machine)
    return machine


def search(names: str, faults: str, bounds: Bounds | None = None, *, is_near: bool = False) -> Findings:
    """Search a world. Raises Violation, which says how to play it again."""
    machine = watched(names, faults)
    bounds = bounds or Bounds()
    limits = {"max_states": bounds.max_states, "until_s": bounds.until_s}
    try:
        return search_nearest(machine, **limits) if is_near else Explorer(machine).search(**limits)  # type: ignore[arg-type]
    except Violation as err:
        err.add_note(f"python -m tests.explore '{names}/{faults}:{text_of(err.moves)}'")
        raise
    finally:
        machine.programs.close()
