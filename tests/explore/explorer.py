"""The search through all states of a world, depth first, each once, with partial-order reduction.

Two kinds of reduction, both exact:

- *Sleep sets*: of two moves that make no difference to each other in a state, only one order is followed. Whether they
  do is looked up: the requests' parts and keys, and if these meet, the outcomes of both orders in that very state.
- *Private reads*: if an actor is about to read what nobody else who is still at work ever writes, only it moves. Who
  writes what is learned: if somebody turns out to write what he was not known to, the search begins again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.explore.machine import LOG, NODES, NOW, TOLD, Machine, RequestFacts, State, Violation
from tests.explore.requests import Part
from tests.explore.schedules import Fate, Move

FATES = len(Fate)


class _Unforeseen(Exception):  # noqa: N818  it is no error
    """Somebody writes what he was not known to write."""


@dataclass(slots=True)
class Findings:
    """What a search came to. `ends` are the states in which everybody is done."""

    states: int = 0
    moves: int = 0
    ends: set[State] = field(default_factory=set)
    cpu_s: float = 0.0
    is_whole: bool = True

    @property
    def states_a_second(self) -> float:
        """How many states a second of the processor's time."""
        return self.states / max(self.cpu_s, 1e-9)


class Explorer:
    """Searches one machine."""

    def __init__(self, machine: Machine, *, sleeping: bool = True, private: bool = True) -> None:
        self.machine = machine
        self._is_sleeping, self._is_private = sleeping, private
        self._actors = range(len(machine.world.roles))
        self._known_writes: list[set[RequestFacts]] = [set() for _ in self._actors]
        self._written: list[set[tuple[Part, str]]] = [set() for _ in self._actors]
        self._meets: dict[tuple[int, int], bool] = {}
        self._commutes: dict[tuple[int, int, int], bool] = {}
        self._writers: dict[int, tuple[int, ...] | None] = {}

    def search(self, *, max_states: int | None = None, until_s: float | None = None) -> Findings:
        """Visit every state, up to so many, or for so long. Raises Violation, with the moves that led to it."""
        while True:
            try:
                return self._search(max_states, until_s)
            except _Unforeseen:
                self._writers.clear()

    def _search(self, max_states: int | None, until_s: float | None) -> Findings:
        begun, found = time.process_time(), Findings()
        start = self.machine.start
        visited: dict[State, int] = {start: 0}
        path: list[Move] = []
        try:
            stack = [self._successors(start, 0, -1, path)]
            while stack:
                step = next(stack[-1], None)
                if step is None:
                    stack.pop()
                    if path:
                        path.pop()
                    continue
                move, state, asleep = step
                found.moves += 1
                known = visited.get(state)
                if known is None:
                    visited[state] = asleep
                    waking = -1
                    if self.machine.is_over(state):
                        self._end(state, found, [*path, move])
                        continue
                elif known & ~asleep:
                    waking, visited[state] = known & ~asleep, known & asleep
                else:
                    continue
                path.append(move)
                stack.append(self._successors(state, asleep, waking, path))
                if max_states is not None and len(visited) >= max_states:
                    found.is_whole = False
                    break
                if until_s is not None and not found.moves % 1024 and time.process_time() - begun > until_s:
                    found.is_whole = False
                    break
        except Violation as err:
            err.moves = err.moves or tuple(path)
            raise
        found.states, found.cpu_s = len(visited), time.process_time() - begun
        return found

    def _end(self, state: State, found: Findings, path: list[Move]) -> None:
        found.ends.add(state)
        if self.machine.watch is not None:
            try:
                self.machine.watch.ended(state)
            except Violation as err:
                err.moves = tuple(path)
                raise

    def _successors(
        self, state: State, asleep: int, waking: int, path: list[Move]
    ) -> Iterator[tuple[Move, State, int]]:
        """Yield moves, each with its state and what sleeps there; of those that slept before, only the `waking`."""
        alone = self._who_is_alone(state)
        for actor in self._actors if alone is None else (alone, *(one for one in self._actors if one != alone)):
            ends = False
            for move, after in self._moves(state, actor, path):
                ends |= self._is_start_or_end(after[NODES + actor])
                bit = 1 << (actor * FATES + move.fate)
                if bit & waking and not asleep & bit:
                    yield move, after, self._asleep_after(state, asleep, move)
            if actor == alone and not ends:
                return  # a circle that leaves others out for ever would need a start or an end
            if self._is_sleeping:
                asleep |= (1 << FATES) - 1 << actor * FATES

    def _moves(self, state: State, actor: int, path: list[Move]) -> Iterator[tuple[Move, State]]:
        try:
            for move, after in self.machine.moves(state, actor):
                self._learn(actor)
                yield move, after
        except Violation as err:
            err.moves = err.moves or (*path, self.machine.trying)
            raise

    def _asleep_after(self, state: State, asleep: int, move: Move) -> int:
        """Return what of those asleep makes no difference to a move: it needs not be tried after it either."""
        if not asleep or self.machine.log.is_half_shown(state[LOG]) or self.machine.told.values[state[TOLD]].is_looking:
            return 0  # each move of a writer shows what it wrote, and each change is a moment of a look
        kept = 0
        for other in self._actors:
            bits = asleep >> other * FATES & (1 << FATES) - 1
            if move.fate:
                bits &= 1 << Fate.GOES_ON  # one fault leaves fewer for others
            if bits and other != move.actor and self._is_apart(state, move.actor, other):
                kept |= bits << other * FATES
        return kept

    def _is_apart(self, state: State, actor: int, other: int) -> bool:
        """Tell whether it makes no difference which of two goes first."""
        requests = self.machine.programs.request
        one, two = requests[state[NODES + actor]], requests[state[NODES + other]]
        if one < 0 or two < 0:
            return False
        meets = self._meets.get((one, two))
        if meets is None:
            meets = self._meets[one, two] = self._may_meet(one, two)
        return not meets or self._commute(state, one, two)

    def _may_meet(self, one: int, two: int) -> bool:
        first, second = (self.machine.programs.requests.values[number] for number in (one, two))
        return first.part >= Part.CLOCK or second.part >= Part.CLOCK or first.meets(second)  # type: ignore[attr-defined]

    def _commute(self, state: State, one: int, two: int) -> bool:
        """Tell whether a read of the log has the same answer before and after a write, in this state."""
        key = state[LOG], one, two
        found = self._commutes.get(key)
        if found is None:
            requests = self.machine.programs.requests.values
            read, write = sorted((one, two), key=lambda number: requests[number].writes)  # type: ignore[attr-defined]
            is_pair = requests[write].part is requests[read].part is Part.LOG and not requests[read].writes  # type: ignore[attr-defined]
            found = self._commutes[key] = is_pair and self._same_after(state, read, write)
        return found

    def _same_after(self, state: State, read: int, write: int) -> bool:
        log, requests, now = self.machine.log, self.machine.programs.requests.values, state[NOW]
        written = log.carry_out(state[LOG], write, requests[write], now)  # type: ignore[arg-type]
        if len(written) != 1:
            return False
        before = log.carry_out(state[LOG], read, requests[read], now)  # type: ignore[arg-type]
        after = log.carry_out(written[0][0], read, requests[read], now)  # type: ignore[arg-type]
        return [answer for _, answer in before] == [answer for _, answer in after]

    def _who_is_alone(self, state: State) -> int | None:
        """Return an actor that is about to read what nobody else writes who is still at work, None if there is none."""
        if not self._is_private:
            return None
        nodes, requests = state[NODES:], self.machine.programs.request
        for actor in self._actors:
            node = nodes[actor]
            if node not in self._writers:
                self._writers[node] = self._who_writes(node, actor)
            writers = self._writers[node]
            if writers is not None and all(requests[nodes[other]] < 0 for other in writers):
                return actor
        return None

    def _who_writes(self, node: int, actor: int) -> tuple[int, ...] | None:
        """Return the other actors that are known to write what is read at a node, None if that is no such read."""
        if self.machine.programs.request[node] < 0:
            return None
        facts = self.machine.facts(node)
        if facts.writes or facts.part not in {Part.NAMES, Part.BUCKET}:
            return None
        key, is_prefix = facts.request.touches
        return tuple(
            other
            for other in self._actors
            if other != actor
            and any(
                part is facts.part and (written.startswith(key) if is_prefix else written == key)
                for part, written in self._written[other]
            )
        )

    def _learn(self, actor: int) -> None:
        """Take down what an actor has just asked, if it writes."""
        facts = self.machine.asking
        if facts.writes and facts.part is not Part.LOG and facts not in self._known_writes[actor]:
            self._known_writes[actor].add(facts)
            new = {(facts.part, key) for key in facts.request.written} - self._written[actor]
            self._written[actor] |= new
            if new and self._is_private:
                raise _Unforeseen

    def _is_start_or_end(self, node: int) -> bool:
        programs = self.machine.programs
        return programs.request[node] < 0 or node in programs.roots
