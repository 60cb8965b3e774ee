"""Stores and calls that fail: before something is done, or after it, so that its answer is lost; or the caller dies."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from coldstream.errors import OutcomeUnknownError, UnavailableError
from tests.support.compacting import Killed

TABLE_WRITES = frozenset({"apply", "put_state", "add_state", "delete_state"})
"""Calls that must not simply be repeated: if their answer is lost, the outcome is unknown."""


class Trouble:
    """How often a caller's requests fail, answers are lost, and the caller dies at a request."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.failing = self.dying = 0.0
        self.counts: dict[str, int] = {}

    def made(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Make a call, or fail."""
        self._meet(self.dying / 2, Killed("before a request"))
        self._meet(self.failing / 2, UnavailableError("throttled"))
        answer = call(*arguments, **named)
        self._meet(self.failing / 2, lost_answer(call))
        self._meet(self.dying / 2, Killed("after a request"))
        return answer

    def _meet(self, chance: float, error: BaseException) -> None:
        if chance and self.rng.random() < chance:
            self.counts[str(error)] = self.counts.get(str(error), 0) + 1
            raise error


def lost_answer(call: Callable[..., Any]) -> OutcomeUnknownError | UnavailableError:
    """Return what the port raises where the answer of a call is lost."""
    kind = OutcomeUnknownError if getattr(call, "__name__", "") in TABLE_WRITES else UnavailableError
    return kind("the answer was lost")


class Troubled:
    """A store, bus or prover whose calls fail as `trouble` says."""

    def __init__(self, real: Any, trouble: Trouble) -> None:
        self._real = real
        self._trouble = trouble

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if not callable(found) or name == "clock":
            return found
        return lambda *arguments, **named: self._trouble.made(found, *arguments, **named)
