"""`SharedReads`: parts of a WAL's objects, for many streams at a time.

A hundred streams that are recovered at once want a hundred parts of each object of their writer. A GET each would take
minutes: it costs milliseconds of CPU, whatever its size. So whoever wants the second part of an object reads all of it,
for those who come after, too. One stream alone reads only its own parts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future

from coldstream.manifest.appender import WalPlace
from coldstream.streams.wal.store import WalStore
from coldstream.units import MIB, ByteRange

LARGEST_BYTES = 8 * MIB
"""What is read of an object at most; parts that lie farther back are read by themselves."""

HELD_BYTES = 32 * MIB
MAX_LOADS = 2
"""Whole objects that are read at a time."""

MAX_KNOWN = 4096
"""Objects of which a part was read, and that are remembered for it."""


class SharedReads:
    """Reads parts of objects in `store`. Threads may share it; each call blocks. Memory: 32 MiB, and two loads.

    What a thread waits for stays in memory until the thread has run: with 32 streams at a time, 100 MiB were measured.
    Objects never change, so that what is held stays right; also of one that was trimmed meanwhile.
    """

    def __init__(self, store: WalStore, *, held_bytes: int = HELD_BYTES, largest_bytes: int = LARGEST_BYTES) -> None:
        self._store = store
        self._limit_bytes = held_bytes
        self._largest_bytes = largest_bytes
        self._held_bytes = 0
        # Those that are held, or on their way, and those of which a part was read; used longest ago comes first.
        self._held: OrderedDict[tuple[WalPlace, int], Future[bytes]] = OrderedDict()
        self._known: OrderedDict[tuple[WalPlace, int], None] = OrderedDict()
        self._loads = threading.Semaphore(MAX_LOADS)
        self._lock = threading.Lock()

    def read(self, place: WalPlace, sequence: int, byte_range: ByteRange) -> bytes:
        """Return a part of an object, shorter if that ends before. Cost: a GET at most. Raises what the store does."""
        if byte_range.end > self._largest_bytes:
            return self._store.read(place, sequence, byte_range)
        at = (place, sequence)
        with self._lock:
            whole = self._held.get(at)
            is_loader = whole is None and at in self._known
            if is_loader:
                whole = self._held[at] = Future()
            if whole is not None:
                self._held.move_to_end(at)
            self._remember(at)
        if whole is None:
            return self._store.read(place, sequence, byte_range)
        if is_loader:
            self._load(at, whole)
        return whole.result()[byte_range.start : byte_range.end]

    def _remember(self, at: tuple[WalPlace, int]) -> None:
        self._known[at] = None
        self._known.move_to_end(at)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    def _load(self, at: tuple[WalPlace, int], whole: Future[bytes]) -> None:
        """Read an object for all who wait for it, who fail with it: a later call tries again."""
        place, sequence = at
        try:
            with self._loads:
                data = self._store.read(place, sequence, ByteRange(0, self._largest_bytes))
        except BaseException as err:  # noqa: BLE001  whatever it is, others wait for it, and raise it
            with self._lock:
                del self._held[at]
            whole.set_exception(err)
            return
        with self._lock:
            self._held_bytes += len(data)
            whole.set_result(data)
            self._evict()

    def _evict(self) -> None:
        for at, whole in tuple(self._held.items()):
            if self._held_bytes <= self._limit_bytes:
                break
            if whole.done():
                del self._held[at]
                self._held_bytes -= len(whole.result())
