"""`SendingBudget`: the chunks of all subscriptions of a process that are taken from the archive and not sent yet."""

from __future__ import annotations

import asyncio
from collections import deque

from coldstream.units import MIB

_CHUNK_BYTES = MIB
"""What a chunk is thought to have before it is there."""

_AGAIN_S = 0.1


class SendingBudget:
    """Counts them. At the bound, nobody takes a chunk until others have sent theirs, or put them back.

    How large a chunk is, and when it comes, is not known before. So more may ask for one than there is room for, and
    who comes too late with his puts it back, too.
    """

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._again: asyncio.TimerHandle | None = None
        self.used_bytes = 0

    @property
    def is_tight(self) -> bool:
        """Tell whether half of it is used: who can't send is to put back what he has."""
        return self.used_bytes * 2 >= self._total_bytes

    async def room(self) -> None:
        """Wait until there is room, if there is none."""
        while self.used_bytes >= self._total_bytes:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting

    def try_take(self, size_bytes: int) -> bool:
        """Count a chunk, however large, if there is room; tell whether there is."""
        if self.used_bytes >= self._total_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def give(self, size_bytes: int) -> None:
        """Count it no more."""
        self.used_bytes -= size_bytes
        if self._waiting and self._again is None:
            self._wake()

    def _wake(self) -> None:
        """Wake as many as there is room for, and soon more: those may be at a tail, where no chunk comes for long."""
        self._again = None
        free_bytes = self._total_bytes - self.used_bytes
        count = 0 if free_bytes <= 0 else 1 + free_bytes // _CHUNK_BYTES
        while self._waiting and count:
            one = self._waiting.popleft()
            if not one.done():
                one.set_result(None)
                count -= 1
        if self._waiting:
            self._again = asyncio.get_running_loop().call_later(_AGAIN_S, self._wake)
