"""The archive in memory, each change and deletion of which is held against the invariants of docs/design.md."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from coldstream.archive.upload import Uploader
from coldstream.format.chunk import Chunk, iter_chunks
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.change import Change
from coldstream.manifest.entry import Head
from coldstream.manifest.state import ManifestState
from coldstream.store.control import ControlObjects
from coldstream.store.grace import grace_ms
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import TimestampMs
from tests.explore import invariants, marks, removals
from tests.explore.base import INCARNATION, KEYS, URL_EXPIRY_S
from tests.simulation.cluster import ReplicatedStream
from tests.simulation.erased import ErasedMessages
from tests.support.compaction import identity_of


class WatchedTable(MemoryTable):
    """The table. `past` is what invariants need to know of earlier states."""

    def __init__(self, now: Callable[[], TimestampMs], objects: WatchedObjects, erased: ErasedMessages) -> None:
        super().__init__()
        self._now = now
        self._objects = objects
        self._erased = erased
        self.past = removals.Past()
        self.changes = 0
        self._moments: list[tuple[float, ManifestState]] = [(0.0, ManifestState())]

    @property
    def state(self) -> ManifestState:
        """What it holds of the stream."""
        return self._partitions.get(INCARNATION, ManifestState())

    def apply(self, change: Change) -> None:
        if change.head.stream.incarnation != INCARNATION:
            super().apply(change)  # a direct stream's: `appenders.py` judges these
            return
        before = self.state
        super().apply(change)
        after = self.state
        self.changes += 1
        invariants.nothing_lost(before, after, change.event)
        invariants.no_silent_gap(after)
        removals.removed_stays_removed(before, after, self.past, frozenset(self._objects.deleted))
        marks.deleted_stays_as_it_was(before, after)
        marks.held_stays_as_it_is(before, after)
        self._erased.changed(before, after)
        invariants.journal_is_enough(before, change, after)
        self.past = self.past.after(before, change, after, self._now())
        self._moments.append((time.monotonic(), after))

    def was_deleted_since(self, at: float) -> bool:
        """Tell whether the stream was deleted at any moment since one."""
        return any(state.head is not None and state.head.is_deleted for state in self.states_since(at))

    def states_since(self, at: float) -> list[ManifestState]:
        """Return what it has held since a moment of the loop's clock."""
        begin = bisect_right(self._moments, at, key=lambda one: one[0])
        return [state for _, state in self._moments[max(0, begin - 1) :]]


class WatchedObjects(MemoryObjects):
    """The bucket. `answered_holds` are the ids of holds of which somebody was told that they are there."""

    def __init__(self, now: Callable[[], TimestampMs]) -> None:
        super().__init__(clock=now)
        self.table: WatchedTable | None = None
        self.deleted: set[str] = set()
        self.answered_holds: set[str] = set()

    def _remove(self, key: str, *arguments: Any, **named: Any) -> Any:
        table = self.table
        assert table is not None
        if key in self.objects and key.endswith(".fragment") and INCARNATION in key:
            note = ControlObjects(self, KEYS).latest_floor(INCARNATION)
            removals.no_object_goes_too_soon(key, table.state, table.past, self.clock(), frozenset(self.answered_holds))
            removals.bucket_knows_first(key, table.state, table.past, note)
            self.deleted.add(key)
        return super()._remove(key, *arguments, **named)


class SimulatedStores:
    """The archive of a stream. `fragment_bytes` is the size of fragments."""

    def __init__(self, now: Callable[[], TimestampMs], stream: ReplicatedStream, fragment_bytes: int) -> None:
        self.objects = WatchedObjects(now)
        self.erased = ErasedMessages(stream, self.objects)
        self.table = WatchedTable(now, self.objects, self.erased)
        self.answered_holds = self.objects.answered_holds
        self.objects.table = self.table
        self.fragment_bytes = fragment_bytes
        self.now = now

    def uploader(self, table: Any, objects: Any) -> Uploader:
        """Make the upload function's."""
        return Uploader(table, objects, KEYS, self.fragment_bytes, now=self.now)

    def lifecycle(self, table: Any, objects: Any) -> LifecycleStores:
        """Open the archive for jobs."""
        return LifecycleStores.open(table, objects, KEYS, grace_ms=grace_ms(URL_EXPIRY_S))

    @property
    def head(self) -> Head | None:
        """The stream's head."""
        return self.table.state.head

    def chunks(self) -> list[tuple[Chunk, bytes]]:
        """Return all archived chunks in order, with their bytes."""
        found = []
        for entry in sorted(self.table.state.entries.values(), key=lambda one: one.first_offset):
            data = identity_of(self.objects, entry)
            body = data[SEGMENT_HEADER_BYTES : SEGMENT_HEADER_BYTES + entry.data_bytes]
            found += [
                (chunk, body[chunk.position : chunk.position + chunk.header.total_bytes])
                for chunk in iter_chunks(body, source=entry.key, position=0)
            ]
        return found
