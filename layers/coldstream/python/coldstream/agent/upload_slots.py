"""Slots for uploads: which stream may send when many want to.

Backfill is what rolled before the agent came. It never takes the last slot, so that it does not delay what rolls now.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count

from coldstream.units import TimestampMs


class UploadSlots:
    """`number` slots. Backfill may take all but one of them, and at least one."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._free_for_backfill = max(1, number - 1)
        self._waiting: list[tuple[bool, TimestampMs, int, asyncio.Future[None]]] = []
        self._order = count()

    @asynccontextmanager
    async def take(self, *, backfill: bool, since: TimestampMs) -> AsyncIterator[None]:
        """Wait for a slot and hold it. Backfill goes after everything else; otherwise the oldest `since` goes first."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The count keeps entries apart that are equal up to it: the heap would otherwise compare futures, and raise.
        entry = (backfill, since, next(self._order), turn)
        heapq.heappush(self._waiting, entry)
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            # The slot may have been granted in the very moment of the cancellation: give it back, or it is lost for
            # ever.
            if turn.done() and not turn.cancelled():
                self._give_back(backfill=backfill)
            # An entry that was granted has left the heap already.
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
            # Everything after it in the heap is backfill, too: nobody else could use the slot either.
            if backfill and not self._free_for_backfill:
                return
            heapq.heappop(self._waiting)
            if turn.cancelled():
                continue
            # Count it before its task runs: a second grant in this turn of the loop would else give the slot away
            # twice.
            self._free -= 1
            self._free_for_backfill -= backfill
            turn.set_result(None)
