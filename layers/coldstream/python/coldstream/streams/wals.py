"""`Wals`: the write-ahead logs that a client can read, those of others and its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence

from coldstream.manifest.appender import WalKind, WalPlace
from coldstream.manifest.stream import Incarnation
from coldstream.store.wal_object import WalEntry
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.streams.wal.reader import WalReader
from coldstream.streams.wal.seal import seal
from coldstream.streams.wal.store import WalStore
from coldstream.units import Epoch

WalEntries = Sequence[tuple[int, WalEntry]]
"""Chunks of one opening in a WAL, each with the sequence of its object."""


class Wals:
    """WALs by the stores that a client has: its own, and the archive's bucket. Threads may share it; calls block."""

    def __init__(self, stores: Mapping[WalKind, WalStore]) -> None:
        self._stores = stores
        self._readers = {kind: WalReader(store) for kind, store in stores.items()}
        self._lock = threading.Lock()
        self._sealing: dict[WalPlace, threading.Lock] = {}
        self._live: set[WalPlace] = set()
        self._ends: dict[WalPlace, int] = {}

    def begin(self, place: WalPlace) -> None:
        """Take note that this process writes a WAL. It never seals that for a stream: what it sent is settled."""
        self._live.add(place)

    def end(self, place: WalPlace) -> None:
        """Take note that a WAL of this process has ended."""
        self._live.discard(place)

    def can_read(self, place: WalPlace) -> bool:
        """Tell whether what is in a WAL can be read here: all that is in S3, and elsewhere what was written there.

        Cost: none for S3, a LIST for S3 Express. Raises UnavailableError.
        """
        store = self._stores.get(place.kind)
        return store is not None and store.is_here(place)

    def sealed_entries(self, place: WalPlace, incarnation: Incarnation, epoch: Epoch) -> WalEntries:
        """Seal a WAL, and return what an opening has in it, in order. Cost: see `seal`, and `WalReader.entries`.

        What was trimmed is not there, and in the manifest: read its tail after this. Raises UnavailableError,
        CorruptionError.
        """
        with self._lock:
            sealing = self._sealing.setdefault(place, threading.Lock())
        # Held over the requests: of thousands of streams that are opened at once, one seals their writer's WAL.
        with sealing:
            end = self._ends.get(place)
            if end is None and place not in self._live:
                end = self._ends[place] = seal(self._stores[place.kind], place)
        reader = self._readers[place.kind]
        return reader.entries(place, reader.durable_end(place) if end is None else end, incarnation, epoch)

    def durable_entries(self, place: WalPlace, incarnation: Incarnation, epoch: Epoch) -> WalEntries:
        """Return what an opening has durably in a WAL as of now, without sealing it. Errors as above."""
        reader = self._readers[place.kind]
        return reader.entries(place, reader.durable_end(place), incarnation, epoch)

    def chunks(self, place: WalPlace, entries: WalEntries) -> Iterator[CachedChunk]:
        """Yield the chunks of entries. Raises ObjectNotFoundError if they were trimmed, and are in the manifest now."""
        return self._readers[place.kind].read_chunks(place, entries)
