"""The search by distance: first what no actor interrupts and nothing befalls, then one switch or fault, then two.

So what it finds is the shortest there is, and a search that is cut short has seen all schedules of few switches. It
keeps how each state was reached, so it is for fewer states than the explorer's.
"""

from __future__ import annotations

import time
from collections import deque

from tests.explore.explorer import Findings
from tests.explore.machine import Machine, State, Violation
from tests.explore.schedules import Move

Place = tuple[State, int]
"""A state, and who moved last."""


def search_nearest(machine: Machine, *, max_states: int | None = None, until_s: float | None = None) -> Findings:
    """Visit states by their distance from the first, up to so many. Raises Violation, with a shortest way to it."""
    begun, found = time.process_time(), Findings()
    actors = range(len(machine.world.roles))
    start: Place = machine.start, -1
    reached: dict[Place, tuple[Place, Move] | None] = {start: None}
    done: set[Place] = set()
    states: set[State] = {start[0]}
    queue: deque[tuple[Place, tuple[Place, Move] | None]] = deque([(start, None)])
    while queue:
        place, how = queue.popleft()
        if place in done:
            continue
        done.add(place)
        reached[place] = how
        state, last = place
        if machine.is_over(state):
            found.ends.add(state)
            _watch_end(machine, state, reached, place)
            continue
        for actor in actors:
            try:
                steps = list(machine.moves(state, actor))
            except Violation as err:
                err.moves = (*_way(reached, place), machine.trying)
                raise
            for move, after in steps:
                found.moves += 1
                then = after, actor
                if then in done:
                    continue
                states.add(after)
                is_near = last in {actor, -1} and not move.sign
                (queue.appendleft if is_near else queue.append)((then, (place, move)))
        if (max_states is not None and len(states) >= max_states) or (
            until_s is not None and time.process_time() - begun > until_s
        ):
            found.is_whole = False
            break
    found.states, found.cpu_s = len(states), time.process_time() - begun
    return found


def _watch_end(machine: Machine, state: State, reached: dict[Place, tuple[Place, Move] | None], place: Place) -> None:
    if machine.watch is not None:
        try:
            machine.watch.ended(state)
        except Violation as err:
            err.moves = _way(reached, place)
            raise


def _way(reached: dict[Place, tuple[Place, Move] | None], place: Place) -> tuple[Move, ...]:
    moves: list[Move] = []
    while (step := reached[place]) is not None:
        place, move = step
        moves.append(move)
    return tuple(reversed(moves))
