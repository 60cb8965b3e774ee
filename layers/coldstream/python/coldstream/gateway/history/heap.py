"""Give the heap's free pages back to the system while chunks are read.

Ranges of megabytes come and go in many threads, and glibc keeps what each of its arenas had at most: with a hundred
readings three to four times the budget. `MALLOC_ARENA_MAX=2` in the environment keeps that down to the budget, too, at
a third more processor time for a gigabyte. This costs nothing that can be measured.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from functools import cache

TRIM_EVERY_S = 1.0


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """Return glibc's function, None with another C library."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return trim


class HeapTrimmer:
    """Trims the heap every second while `is_needed` says so, and once after that. Call `start` when it may be."""

    def __init__(self, is_needed: Callable[[], bool], *, every_s: float = TRIM_EVERY_S) -> None:
        self._is_needed = is_needed
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._task is None and _malloc_trim() is not None:
            self._task = asyncio.ensure_future(self._run())

    def close(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        trim = _malloc_trim()
        assert trim is not None
        try:
            is_needed = True
            while is_needed:
                await asyncio.sleep(self._every_s)
                is_needed = self._is_needed()
                # In a thread: it takes milliseconds, and lets go of the GIL meanwhile.
                await asyncio.to_thread(trim, 0)
        finally:
            self._task = None
