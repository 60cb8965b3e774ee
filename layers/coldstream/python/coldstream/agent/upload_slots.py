"""Slots for staging: who may send, when many streams want to.

Backfill, of what rolled before the agent came, never takes the last slot, and the oldest waits first.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count

from coldstream.units import TimestampMs


class UploadSlots:
    """`number` slots, of which backfill may take all but one, and one at least."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._free_for_backfill = max(1, number - 1)
        self._waiting: list[tuple[bool, TimestampMs, int, asyncio.Future[None]]] = []
        self._order = count()

    @asynccontextmanager
    async def take(self, *, backfill: bool, since: TimestampMs) -> AsyncIterator[None]:
        """Wait for a slot and hold it. What rolls now goes before backfill; in each, the oldest `since` goes first."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (backfill, since, next(self._order), turn)
        heapq.heappush(self._waiting, entry)
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(backfill=backfill)
            with suppress(ValueError):
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)
            raise
        try:
            yield
        finally:
            self._give_back(backfill=backfill)

    def _give_back(self, *, backfill: bool) -> None:
        self._free += 1
        self._free_for_backfill += backfill
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._free:
            backfill, _, _, turn = self._waiting[0]
            if backfill and not self._free_for_backfill:
                return
            heapq.heappop(self._waiting)
            if turn.cancelled():
                continue
            self._free -= 1
            self._free_for_backfill -= backfill
            turn.set_result(None)
