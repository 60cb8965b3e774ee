"""The shipped code explored: a million states of small worlds, each held against the invariants.

`make prove` goes on for as long as it is told. A failure's text plays it again: python -m tests.explore 'TEXT'.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import pytest

from tests.explore.actors import world
from tests.explore.direct import Promises, direct_world
from tests.explore.explorer import Explorer, Findings
from tests.explore.machine import Machine, Violation
from tests.explore.nearest import search_nearest
from tests.explore.patches import reproducible
from tests.explore.playing import play
from tests.explore.schedules import text_of
from tests.explore.watching import Invariants
from tests.explore.worlds import DIRECT, DIRECT_FURTHER, NEAREST, WHOLE, all_worlds

STATES = int(os.environ.get("COLDSTREAM_EXPLORED_STATES", "5000"))
"""Of each world that is not searched to its end."""

HOURS = float(os.environ.get("COLDSTREAM_EXPLORE_HOURS", "0"))
"""Processor time of `make prove` for all worlds together."""

PROVEN_STATES = 3_000_000
"""The most of one world: 500 bytes each."""

FOUND = ("upload+delete/0c0l0r:a3b2a9",)
"""Schedules that once ended badly, or found a mistake of the explorer."""


@pytest.fixture(autouse=True)
def _reproducible() -> Iterator[None]:
    with reproducible():
        yield


def searched(machine: Machine, text: str, *, is_near: bool = False, **bounds: float | None) -> Findings:
    """Search a machine. Raises Violation, which says how to play it again; `text` is its world."""
    try:
        return search_nearest(machine, **bounds) if is_near else Explorer(machine).search(**bounds)
    except Violation as err:
        err.add_note(f"python -m tests.explore '{text}:{text_of(err.moves)}'")
        raise
    finally:
        machine.programs.close()


def explore(names: str, faults: str, *, is_near: bool = False, **bounds: float | None) -> Findings:
    """Search a world of a broker's stream."""
    machine = Machine(world(names.split("+"), faults=faults))
    Invariants(machine)
    return searched(machine, f"{names}/{faults}", is_near=is_near, **bounds)


def explore_direct(names: str, faults: str, **bounds: float | None) -> Findings:
    """Search a world of a direct stream."""
    machine = Machine(direct_world(names.split("+"), faults=faults))
    Promises(machine)
    return searched(machine, f"{names}/{faults}", **bounds)


@pytest.mark.parametrize(("names", "faults"), WHOLE)
def test_a_small_world_is_right_in_all_of_its_states(names: str, faults: str) -> None:
    found = explore(names, faults)
    assert found.is_whole
    assert found.ends


@pytest.mark.parametrize(("names", "faults"), NEAREST)
def test_a_larger_world_is_right_as_far_as_few_switches_and_faults_lead(names: str, faults: str) -> None:
    assert explore(names, faults, is_near=True, max_states=STATES).states >= STATES


@pytest.mark.parametrize(("names", "faults"), DIRECT)
def test_appenders_of_a_direct_stream_keep_their_promises_in_all_states(names: str, faults: str) -> None:
    found = explore_direct(names, faults)
    assert found.is_whole
    assert found.ends


@pytest.mark.parametrize("text", FOUND)
def test_schedules_that_once_ended_badly_end_well(text: str) -> None:
    assert play(text) == 0


@pytest.mark.skipif(not HOURS, reason="make prove")
def test_all_worlds_are_right_for_some_hours() -> None:
    left_s, worlds = HOURS * 3600, [*DIRECT_FURTHER, *all_worlds()]
    states = whole = 0
    for number, (names, faults) in enumerate(worlds):
        begun = time.process_time()
        search = explore_direct if (names, faults) in DIRECT_FURTHER else explore
        found = search(names, faults, until_s=left_s / (len(worlds) - number), max_states=PROVEN_STATES)
        left_s -= time.process_time() - begun
        states, whole = states + found.states, whole + found.is_whole
        sys.stdout.write(f"{names}/{faults}: {found.states} states{'' if found.is_whole else ', cut short'}\n")
    sys.stdout.write(f"{states} states of {len(worlds)} worlds, of which {whole} were searched to their ends\n")
