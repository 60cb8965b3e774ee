"""What of a write-ahead log is still needed, and the deletion of what is not."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass

from coldstream.errors import ColdstreamError
from coldstream.manifest.appender import WalPlace
from coldstream.store.wal_window import KEPT
from coldstream.streams.wal.counters import WalCounters
from coldstream.streams.wal.store import WalStore

_BATCH = 1000


@dataclass(slots=True)
class _Durable:
    """An acknowledged object: how many of its chunks are not flushed, and its bytes."""

    unflushed: int
    size_bytes: int


class WalTrimming:
    """The acknowledged objects of one WAL, in one event loop. They are deleted in order, the newest KEPT never."""

    def __init__(self, store: WalStore, place: WalPlace, executor: Executor, counters: WalCounters) -> None:
        self.oldest = 1
        self.unflushed_bytes = 0
        self._store = store
        self._place = place
        self._executor = executor
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        # From `oldest` on. The first object of all, 0, has no chunks.
        self._objects: deque[_Durable] = deque()
        self._deleted_to = 0
        self._task: asyncio.Task[None] | None = None

    def add(self, chunks: int, size_bytes: int) -> None:
        """Add the next object, which was acknowledged."""
        self._objects.append(_Durable(chunks, size_bytes))
        self.unflushed_bytes += size_bytes

    def flushed(self, sequence: int, chunks: int) -> None:
        """Take note that chunks of an object are not needed any more."""
        at = sequence - self.oldest
        if not 0 <= at < len(self._objects) or not 0 <= chunks <= self._objects[at].unflushed:
            raise ValueError(f"{chunks} chunks of {self._place}/{sequence} cannot be flushed: it does not have them")
        self._objects[at].unflushed -= chunks
        while self._objects and not self._objects[0].unflushed:
            self.unflushed_bytes -= self._objects.popleft().size_bytes
            self.oldest += 1
        if self._task is None and self._deletable > self._deleted_to:
            self._task = self._loop.create_task(self._trim())

    async def close(self, *, delete_all: bool) -> None:
        """Wait for deletions under way; delete all objects if that is wanted, and no chunk is needed."""
        if self._task is not None:
            await asyncio.wait([self._task])
        if delete_all and not self._objects:
            with suppress(ColdstreamError):
                await self._delete_to(self.oldest)

    @property
    def _deletable(self) -> int:
        """The sequence up to which objects may be deleted now; see `window`."""
        return min(self.oldest, self.oldest + len(self._objects) - KEPT)

    async def _trim(self) -> None:
        try:
            # What is left after a failure goes with what is flushed next.
            with suppress(ColdstreamError):
                while self._deletable > self._deleted_to:
                    await self._delete_to(self._deletable)
        finally:
            self._task = None

    async def _delete_to(self, end: int) -> None:
        while self._deleted_to < end:
            batch = range(self._deleted_to, min(end, self._deleted_to + _BATCH))
            await self._loop.run_in_executor(self._executor, self._store.delete, self._place, batch)
            self._deleted_to = batch.stop
            self._counters.trimmed += len(batch)
