"""What the table holds besides a stream's partition: bindings, policies, grants, cursors and state items."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coldstream.errors import ColdstreamError
from coldstream.store.memory.table import MemoryTable
from tests.explore.interning import Numbered
from tests.explore.requests import Refusal, Request

_FIELDS = "_clusters", "_grants", "_policies", "_cursors", "_states"


@dataclass(frozen=True)
class NamesState:
    """The items of each kind, by key."""

    items: tuple[dict[Any, Any], ...] = field(default_factory=lambda: tuple({} for _ in _FIELDS))

    @classmethod
    def of(cls, double: MemoryTable) -> NamesState:
        """Return what a double holds."""
        return cls(tuple(dict(getattr(double, name)) for name in _FIELDS))

    def copy_into(self, double: MemoryTable) -> None:
        """Have a double hold these."""
        for name, some in zip(_FIELDS, self.items, strict=True):
            setattr(double, name, dict(some))


class NamesStore:
    """Numbers the states, and remembers what a request made of which."""

    def __init__(self, answers: Numbered) -> None:
        self._double = MemoryTable()
        self._states, self._answers = Numbered(), answers
        self._known: dict[tuple[int, int], tuple[int, int]] = {}

    def number(self, state: NamesState) -> int:
        """Return the number of a state."""
        return self._states.number_as(tuple(tuple(sorted(some.items())) for some in state.items), state)

    def state(self, number: int) -> NamesState:
        """Return the state of a number."""
        return self._states.values[number]  # type: ignore[return-value]

    def carry_out(self, state: int, number: int, request: Request) -> tuple[int, int]:
        """Return the state after a request, and its answer, both by number."""
        found = self._known.get((state, number))
        if found is None:
            found = self._known[state, number] = self._carry_out(state, request)
        return found

    def _carry_out(self, number: int, request: Request) -> tuple[int, int]:
        self.state(number).copy_into(self._double)
        try:
            answer: Any = getattr(self._double, request.method)(*request.args, **dict(request.options))
            answer = tuple(answer) if request.method == "state_items" else answer
        except ColdstreamError as err:
            answer = Refusal.of(err)
        there = self.number(NamesState.of(self._double)) if request.writes else number
        return there, self._answers.number(answer)
