"""Plays one schedule, from its text: the world's actors, its faults, and the moves."""

from __future__ import annotations

import sys

from tests.explore.machine import Machine, State, Violation
from tests.explore.patches import reproducible
from tests.explore.requests import Request
from tests.explore.schedules import Move, moves_of, text_of
from tests.explore.searching import watched
from tests.explore.world import Faults


def written(names: list[str], faults: Faults, moves: tuple[Move, ...]) -> str:
    """Return the text of a schedule in a world."""
    return f"{'+'.join(names)}/{faults}:{text_of(moves)}"


def play(text: str) -> int:
    """Play a schedule and tell each request; return 1 if it breaks an invariant."""
    place, _, moves = text.partition(":")
    names, _, faults = place.partition("/")
    with reproducible():
        machine = watched(names, faults or "0c0l0r")
        try:
            follow(machine, moves_of(moves))
        except Violation as err:
            sys.stdout.write(f"{err}\n")
            return 1
        finally:
            machine.programs.close()
    return 0


def follow(machine: Machine, moves, *, tell: bool = True) -> State:
    """Make moves from the first state on, and return the last state. Raises Violation, ValueError if one cannot be."""
    state = machine.start
    for wanted in moves:
        after = None
        for move, reached in machine.moves(state, wanted.actor):
            if tell and move == Move(wanted.actor):
                _tell(machine, move)
            if move == wanted:
                after = reached
                break
        if after is None:
            raise ValueError(f"nobody can do {text_of([wanted])} there")
        if tell and wanted.sign:
            sys.stdout.write(f"  {wanted.sign}\n")
        state = after
        if machine.is_over(state) and machine.watch is not None:
            machine.watch.ended(state)
    return state


def _tell(machine: Machine, move: Move) -> None:
    assert machine.asking is not None
    request: Request = machine.asking.request
    sys.stdout.write(f"{machine.world.roles[move.actor].name:12} {request}\n")
