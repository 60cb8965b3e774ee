"""`PublishBudget`: what all connections of a process have published that is not confirmed."""

from __future__ import annotations

from collections.abc import Callable


class PublishBudget:
    """Counts it. At the bound, no connection that publishes is read from until there is room."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._used_bytes = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_full(self) -> bool:
        """Tell whether nothing more fits."""
        return self._used_bytes >= self._total_bytes

    def take(self, size_bytes: int) -> None:
        """Count bytes, also over the bound: they are there already."""
        self._used_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        """Count them no more."""
        self._used_bytes -= size_bytes
        if self._waiting and self._used_bytes < self._total_bytes * 3 // 4:
            waiting, self._waiting = self._waiting, []
            for tell in waiting:
                tell()

    def when_free(self, tell: Callable[[], None]) -> None:
        """Have something called once when there is room."""
        self._waiting.append(tell)
