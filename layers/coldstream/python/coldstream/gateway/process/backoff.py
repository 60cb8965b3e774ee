"""When a child that ended is started again."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_S = 0.5
LONGEST_S = 30.0
STEADY_S = 60.0
"""After so long, a child's end has nothing to do with its beginning."""


@dataclass(slots=True)
class Backoff:
    """The pause before the next start: it doubles while children end soon after they began."""

    _next_s: float = FIRST_S

    def after(self, ran_s: float) -> float:
        """Return how long to wait once a child that ran for so long has ended."""
        if ran_s >= STEADY_S:
            self._next_s = FIRST_S
        pause_s = self._next_s
        self._next_s = min(LONGEST_S, pause_s * 2)
        return pause_s
