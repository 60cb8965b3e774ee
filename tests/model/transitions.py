"""The transitions of the shipped code, as the explorer plays it, and whether the model allows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from coldstream.store.grace import MARGIN_MS
from tests.explore.actors import world
from tests.explore.explorer import Explorer
from tests.explore.machine import Machine, State
from tests.explore.schedules import Move
from tests.explore.world import World
from tests.model.observed import Moment, Observer, moment_of


class RecordingMachine(Machine):
    """A machine that takes down from which moment to which each move led, and an example of who did it."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.moved: dict[tuple[Moment, Moment], str] = {}

    def moves(self, state: State, actor: int) -> Iterator[tuple[Move, State]]:
        """Yield what the machine does, and take it down."""
        before = moment_of(self, state)
        for move, after in super().moves(state, actor):
            pair = before, moment_of(self, after)
            if pair[0] != pair[1] and pair not in self.moved:
                asked = "" if self.asking is None else self.asking.request.method
                self.moved[pair] = f"{self.world.roles[actor].name}: {asked}"
            yield move, after


@dataclass
class Transitions:
    """Distinct states of the model that the code reached, by number, and distinct steps between two of them."""

    states: dict[tuple[tuple[str, str], ...], int] = field(default_factory=dict)
    steps: dict[tuple[int, int], str] = field(default_factory=dict)
    """Each with a world and a request that made it."""

    explored: int = 0
    slept: int = 0
    """Steps that are left out: of who slept for longer than the margin of the grace, which the model takes to be long
    enough (docs/proof.md)."""

    def explore(self, names: str, faults: str, *, max_states: int | None = None) -> None:
        """Add those of a world."""
        machine = RecordingMachine(world(names.split("+"), faults=faults))
        try:
            self.explored += Explorer(machine).search(max_states=max_states).states
        finally:
            machine.programs.close()
        observer = Observer(machine)
        for (before, after), told in machine.moved.items():
            if before[0] != after[0] and _has_slept(machine, after):
                self.slept += 1
                continue
            # What somebody tells follows what he did: a step of its own.
            between = (*after[:2], before[2], after[3])
            numbers = [self._number(observer, one) for one in (before, between, after)]
            for step in pairwise(numbers):
                if step[0] != step[1]:
                    self.steps.setdefault(step, f"{names}/{faults}: {told}")

    def _number(self, observer: Observer, moment: Moment) -> int:
        return self.states.setdefault(tuple(observer.observe(moment).items()), len(self.states) + 1)


def _has_slept(machine: Machine, moment: Moment) -> bool:
    """Tell whether a transaction reached the table later than the margin after the time that it carries."""
    log = machine.log.partition(moment[0])
    return log.change is not None and moment[3] - log.change.event.at > MARGIN_MS
