"""An archive in memory with a clock of its own, for all that ends the life of what is archived."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from coldstream.lifecycle.stores import LONGEST_UPLOAD_MS, LifecycleStores
from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.units import Offset, TimestampMs
from tests.support.archive import NOW, STREAM, ChunkArchive, steady
from tests.support.compacting import Calls, log_of

GRACE_MS = 7_200_000
DAY_MS = 24 * 3600 * 1000
INCARNATION = STREAM.incarnation
KEYS = Keys()


@dataclass
class Clock:
    """AWS's clock: it stands still until a test sets it."""

    now: TimestampMs = NOW

    def __call__(self) -> TimestampMs:
        return self.now

    def pass_ms(self, ms: int) -> None:
        self.now = TimestampMs(self.now + ms)


@dataclass
class Scene:
    """One stream of fragments of `messages` messages each, the first of them written at the time 0, one an hour."""

    fragments: int = 5
    messages: int = 2
    versioned: bool = False
    object_lock: bool = False
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        objects = MemoryObjects(versioned=self.versioned, object_lock=self.object_lock, clock=self.clock)
        self.archive = ChunkArchive(objects=objects)
        for _ in range(self.fragments):
            self.add()

    @property
    def next_offset(self) -> int:
        head = self.head
        return 0 if head is None or head.next_offset is None else int(head.next_offset)

    def add(self) -> FragmentEntry:
        """Archive another fragment."""
        first = self.next_offset
        return self.archive.add(first, steady(1, *(self.time_of(first // self.messages),) * self.messages))

    def time_of(self, fragment: int) -> TimestampMs:
        """Return when the messages of a fragment were written."""
        return TimestampMs(NOW - 100 * DAY_MS + fragment * 3_600_000)

    @property
    def stores(self) -> LifecycleStores:
        return self.through(self.archive.table, self.archive.objects)

    def through(self, table: ManifestTable, objects: ObjectStore) -> LifecycleStores:
        """Return the stores, as others than the archive's own show them."""
        return LifecycleStores.open(table, objects, KEYS, grace_ms=GRACE_MS)

    def watched(self, calls: Calls) -> LifecycleStores:
        return self.through(calls.table, calls.objects)

    @property
    def head(self) -> Head | None:
        return self.archive.table.head(INCARNATION)

    @property
    def log(self) -> tuple[FragmentEntry, ...]:
        return log_of(self.archive.table, INCARNATION)

    @property
    def live(self) -> set[str]:
        """Keys of the objects of fragments in the bucket."""
        return {key for key in self.archive.objects.objects if "/control/" not in key}

    def offset(self, fragment: int) -> Offset:
        """Return the first offset of a fragment."""
        return Offset(fragment * self.messages)

    def wait_for_sweep(self) -> None:
        """Let the grace of what was removed pass."""
        self.clock.pass_ms(GRACE_MS)

    def wait_for_purge(self) -> None:
        """Let more pass than the longest upload."""
        self.clock.pass_ms(LONGEST_UPLOAD_MS + 2000)


def memory(stores: LifecycleStores) -> MemoryObjects:
    return cast("MemoryObjects", stores.objects)
