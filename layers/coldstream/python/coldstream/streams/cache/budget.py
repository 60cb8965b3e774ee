"""`MemoryBudget`: the one bound on what batches take in memory, from the append to the last reader.

What is appended and what is read takes from the same budget. What a cache holds is taken, too, but a cache gives it
back when somebody asks: it registers an *evictor*. Whoever finds no room even so waits in line; that is the only thing
that slows an append down, and it ends when the flusher has written something to the archive.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

Evictor = Callable[[int], int]
"""Drops cached bytes, at least as many as it is asked for or all that it may; returns how many it dropped."""


@dataclass(slots=True, eq=False)
class _Waiter:
    size_bytes: int
    admitted: asyncio.Future[None]


class MemoryBudget:
    """At most `limit_bytes` are reserved at any moment, but for what is overdrawn; a request larger than that is alone.

    For one event loop, and not for threads. `on_pressure`, if it is set, is called whenever somebody begins to wait,
    and again whenever something has changed and somebody still waits: it wakes the flusher, and returns at once.
    """

    def __init__(self, limit_bytes: int) -> None:
        if limit_bytes < 1:
            raise ValueError(f"a memory budget has at least one byte, not {limit_bytes}")
        self.limit_bytes = limit_bytes
        self.on_pressure: Callable[[], None] | None = None
        self._used = 0
        self._evictors: list[Evictor] = []
        self._waiters: deque[_Waiter] = deque()
        self._waking = 0

    @property
    def used(self) -> int:
        """Bytes that are reserved, those of caches included."""
        return self._used

    @property
    def waiting(self) -> int:
        """How many requests wait for room."""
        return sum(not waiter.admitted.cancelled() for waiter in self._waiters)

    def add_evictor(self, evictor: Evictor) -> None:
        """Have a cache give bytes back when room is needed. The least valuable come first.

        What an evictor says that it dropped is free: it calls nothing of the budget.
        """
        self._evictors.append(evictor)

    async def reserve(self, size_bytes: int) -> None:
        """Take bytes of the budget, in the order of the calls. Waits until there is room; never fails.

        A request of more than the whole budget waits until nothing else is reserved. Cancelling takes nothing.
        """
        # Whoever was let in and has not run yet is to go on first, too: callers rely on the order.
        if not self._waking and self.try_reserve(size_bytes):
            return
        loop = asyncio.get_running_loop()
        waiter = _Waiter(size_bytes, loop.create_future())
        self._waiters.append(waiter)
        loop.call_soon(self.admit)  # not at once: nobody waits for a future that is done already
        try:
            await waiter.admitted
        except asyncio.CancelledError:
            if waiter.admitted.cancelled():
                self.admit()  # a small request may stand right after this one
            else:
                self._waking -= 1
                self.free(size_bytes)  # it was let in just before the cancellation
            raise
        self._waking -= 1

    def try_reserve(self, size_bytes: int) -> bool:
        """Take bytes if there is room now and nobody waits; tell whether they were taken."""
        if self._waiters or not self._make_room(size_bytes):
            return False
        self._used += size_bytes
        return True

    def overdraw(self, size_bytes: int) -> None:
        """Take bytes whether or not there is room: for what must be, so that room can be made."""
        self._used += size_bytes

    def free(self, size_bytes: int) -> None:
        """Give bytes back."""
        if size_bytes > self._used:
            raise ValueError(f"{size_bytes} bytes are given back, and only {self._used} are reserved")
        self._used -= size_bytes
        self.admit()

    def admit(self) -> None:
        """Let in whoever waits and now has room. A cache calls it when it can evict what it could not before."""
        while self._waiters:
            waiter = self._waiters[0]
            # A cancelled task has not run yet when its future shows it: it takes nothing.
            if not waiter.admitted.cancelled():
                if not self._make_room(waiter.size_bytes):
                    break
                # Taken here, not by the task when it wakes up: until then somebody else would see the room as free.
                self._used += waiter.size_bytes
                self._waking += 1
                waiter.admitted.set_result(None)
            self._waiters.popleft()
        self.press()

    def press(self) -> None:
        """Call `on_pressure` if somebody waits. A cache calls it when it holds something new that can be flushed."""
        if self._waiters and self.on_pressure is not None:
            self.on_pressure()

    def _make_room(self, size_bytes: int) -> bool:
        room = max(0, self.limit_bytes - size_bytes)
        for evictor in self._evictors:
            if self._used <= room:
                break
            self._used -= evictor(self._used - room)
        return self._used <= room
