"""One memory budget for all readings of a process, shared fairly.

    total        first ranges only            a quarter
                 ranges read ahead, too       three quarters, in equal shares of the readings that hold or want memory

A reading that holds nothing gets its first range at once, if need be by taking from others what they have read ahead:
from those over their share first, then from those that nobody takes from (paused clients), who give up all they hold
and fetch it again later. Only if every byte is under way or in use does it wait, in turn, and after some seconds even
those give way that somebody takes from: else clients that take a chunk now and then would keep all others out. Ranges
that are read ahead never wait: a reading without room just does not begin them. A single range larger than the total is
admitted alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from coldstream.gateway.figures import GatewayFigures
from coldstream.read.http import ClosedError

IDLE_S = 1.0
"""From when on a reading that nobody takes from gives way to others."""

PATIENCE_S = 5.0
"""How long whoever is next in turn waits for those that are being taken from."""

_AHEAD = 0.75


@dataclass(eq=False, slots=True)
class BudgetShare:
    """What one reading holds of the budget, and when somebody last took from the reading.

    `give_up` is called to free what the reading can do without, for somebody else; it is told whether to keep the range
    that chunks are being taken from. It gives the memory back before it returns.
    """

    give_up: Callable[[bool], None]
    touched_at: float
    held_bytes: int = 0


class ReadingBudget:
    """The budget: `total_bytes` of chunks, for one event loop, whose clock is `now`. `figures` gets what is used."""

    def __init__(self, total_bytes: int, figures: GatewayFigures, now: Callable[[], float] = time.monotonic) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = 0
        self._figures = figures
        self._figures.memory_budget_bytes = total_bytes
        self._now = now
        self._shares: dict[BudgetShare, None] = {}
        self._waiting: deque[asyncio.Event] = deque()

    @property
    def fair_bytes(self) -> int:
        """What one reading may read ahead, of those that hold memory."""
        holders = sum(1 for share in self._shares if share.held_bytes)
        return int(self.total_bytes * _AHEAD) // max(1, holders)

    def join(self, give_up: Callable[[bool], None]) -> BudgetShare:
        """Let a reading in. Its share holds nothing yet."""
        share = BudgetShare(give_up, self._now())
        self._shares[share] = None
        return share

    def leave(self, share: BudgetShare) -> None:
        """Take back all that a share holds, and forget it: whoever waits for it is released. Again is the same."""
        if share in self._shares:
            del self._shares[share]
            self.give(share, share.held_bytes)
            for turn in self._waiting:
                turn.set()

    def touch(self, share: BudgetShare) -> None:
        """Note that somebody takes from a reading now."""
        share.touched_at = self._now()

    def take(self, share: BudgetShare, size: int, *, idle_s: float | None = None) -> bool:
        """Take memory for a range, or return False if there is none for this reading now, or none any more.

        Readings that nobody has taken from for `idle_s`, by default `IDLE_S`, give way to a first range.
        """
        if share not in self._shares:
            return False
        is_first = share.held_bytes == 0
        if self._waiting and not is_first:
            return False  # or one that waits for a large range would do so for as long as others read on
        limit = self.total_bytes if is_first else int(self.total_bytes * _AHEAD)
        if self.used_bytes + size > limit and (is_first or share.held_bytes + size <= self.fair_bytes):
            self._make_room(share, size, limit, IDLE_S if idle_s is None else idle_s)
        if self.used_bytes + size > limit and not (is_first and self.used_bytes == 0):
            return False
        share.held_bytes += size
        self._count(size)
        return True

    async def wait(self, share: BudgetShare, size: int) -> None:
        """Take memory for a first range, as soon as there is some: in turn. Raises ClosedError after `leave`."""
        if not self._waiting and self.take(share, size):
            return
        turn = asyncio.Event()
        self._waiting.append(turn)
        is_next_since: float | None = None
        try:
            while True:
                if self._waiting[0] is turn:
                    is_next_since = self._now() if is_next_since is None else is_next_since
                    is_impatient = self._now() - is_next_since >= PATIENCE_S
                    if self.take(share, size, idle_s=0.0 if is_impatient else None):
                        return
                turn.clear()
                if share not in self._shares:
                    raise ClosedError
                # By time as well: a reading that is being taken from may become idle, and nobody says so.
                with suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_S / 2):
                        await turn.wait()
        finally:
            self._waiting.remove(turn)
            self._wake()

    def give(self, share: BudgetShare, size: int) -> None:
        """Give back memory."""
        share.held_bytes -= size
        self._count(-size)
        self._wake()

    def _count(self, size: int) -> None:
        self.used_bytes += size
        self._figures.memory_used_bytes = self.used_bytes

    def _wake(self) -> None:
        if self._waiting:
            self._waiting[0].set()

    def _make_room(self, share: BudgetShare, size: int, limit: int, idle_s: float) -> None:
        """Have others give up what they read ahead over their share; then the idle ones all that they hold."""
        fair, idle_before = self.fair_bytes, self._now() - idle_s
        over = sorted((one for one in self._shares if one.held_bytes > fair), key=lambda one: -one.held_bytes)
        idle = sorted((one for one in self._shares if one.touched_at <= idle_before), key=lambda one: one.touched_at)
        for others, keeps_current in ((over, True), (idle, True), (idle, False)):
            for other in others:
                if self.used_bytes + size <= limit:
                    return
                if other is not share and other.held_bytes:
                    other.give_up(keeps_current)
