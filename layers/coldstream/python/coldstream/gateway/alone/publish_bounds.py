"""`PublishBounds`: what one connection has published that is not confirmed, and whether more is read from it."""

from __future__ import annotations

from coldstream.gateway.alone.client_side import HoldReason
from coldstream.gateway.alone.peer import PausableLink
from coldstream.gateway.alone.publish_budget import PublishBudget


class PublishBounds:
    """Counts it, and leaves the client unread while that is too much, or what all connections have is."""

    def __init__(self, link: PausableLink, budget: PublishBudget, most_bytes: int) -> None:
        self._link = link
        self._budget = budget
        self._most_bytes = most_bytes
        self.pending_bytes = 0
        self._is_paused = self._is_waiting = False

    def take(self, size_bytes: int) -> None:
        """Count bytes, also over a bound: they are there already."""
        self.pending_bytes += size_bytes
        self._budget.take(size_bytes)
        if self._budget.is_full and not self._is_waiting:
            self._is_waiting = True
            self._budget.when_free(self._freed)
        if not self._is_paused and (self._is_waiting or self.pending_bytes >= self._most_bytes):
            self._is_paused = True
            self._link.pause(HoldReason.PUBLISHING)

    def give(self, size_bytes: int) -> None:
        """Count them no more, and read on if there is room."""
        self.pending_bytes -= size_bytes
        self._budget.give(size_bytes)
        self._go_on()

    def _freed(self) -> None:
        self._is_waiting = False
        self._go_on()

    def _go_on(self) -> None:
        if self._is_paused and not self._is_waiting and self.pending_bytes < self._most_bytes // 2:
            self._is_paused = False
            self._link.resume(HoldReason.PUBLISHING)
