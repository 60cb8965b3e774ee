"""An archive in memory, with what nobody needs beside what is archived, on a clock of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coldstream.archive.missing import record_missing
from coldstream.garbage.cursor import GarbageCursor
from coldstream.garbage.kinds import DAY_MS
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.report import GarbageReport
from coldstream.garbage.run import GarbageCollector
from coldstream.manifest.commit import Neighbourhood, plan_commit
from coldstream.manifest.compaction import plan_replacement
from coldstream.manifest.entry import FragmentEntry, Head, Hold, Quarantine, Tombstone
from coldstream.manifest.fence import plan_discard
from coldstream.manifest.groups import Group
from coldstream.manifest.holding import plan_hold
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset, TimestampMs
from tests.store.samples import ORDERS, entry

START = TimestampMs(1_763_700_000_000)
DELETE = GarbageOptions(delete=True)
REPORT = GarbageOptions()


class LitteredArchive:
    """One table, one bucket, and AWS's clock, which `pass_days` moves."""

    def __init__(self, prefix: str = "some/prefix/", *, objects: MemoryObjects | None = None) -> None:
        self.at = START
        self.table = MemoryTable()
        self.objects = objects or MemoryObjects(clock=self.now)
        self.objects.clock = self.now
        self.keys = Keys(prefix)

    def now(self) -> TimestampMs:
        return self.at

    def pass_days(self, days: float) -> None:
        self.at = TimestampMs(int(self.at + days * DAY_MS))

    def put(self, key: str, size_bytes: int = 100) -> str:
        """Write an object as its writer does, and return its key."""
        self.objects.put(key, bytes(size_bytes))
        return key

    def fragment(self, first: int, generation: int = 0, *, of: Incarnation = ORDERS.incarnation) -> str:
        """Put a fragment's object, and commit nothing."""
        return self.put(self.keys.fragment(of, Offset(first), generation))

    def archive(self, first: int, following: int, generation: int = 0, *, stream: StreamId = ORDERS) -> FragmentEntry:
        """Put a fragment and append its entry."""
        key = self.fragment(first, generation, of=stream.incarnation)
        new = replace(entry(first, following), key=key, generation=generation)
        head = self.table.head(stream.incarnation) or Head(stream)
        self.table.apply(plan_commit(Neighbourhood(head), new, self.at))
        return new

    def compact_half(self, generation: int = 1) -> str:
        """Merge the whole log, but stop after the first transaction; return the key of the merged object."""
        log = self.table.log_from_offset(ORDERS.incarnation, Offset(0), 1000).entries
        group = Group(log)
        key = self.fragment(group.first_offset, generation)
        merged = group.merged(key=key, generation=generation, object_bytes=100, crc32=0)
        due_at = TimestampMs(self.at + 1000 * DAY_MS)
        self.table.apply(plan_replacement(self.head(), log, group, merged, at=self.at, due_at=due_at))
        assert self.head().compacting is not None
        return key

    def bury(self, key: str, first: int) -> None:
        """Write a tombstone, due much later, for an object that no entry names."""
        tombstone = Tombstone(key, TimestampMs(self.at + 1000 * DAY_MS), Offset(first), Offset(first + 10), 100)
        self.table.apply(plan_discard(self.head(), [tombstone], 1, self.at))

    def hold(self, hold: Hold) -> None:
        self.table.apply(plan_hold(self.head(), hold))

    def quarantine(self, record: Quarantine) -> None:
        record_missing(self.table, ORDERS, record)

    def head(self, stream: StreamId = ORDERS) -> Head:
        head = self.table.head(stream.incarnation)
        assert head is not None
        return head

    def collect(self, options: GarbageOptions = DELETE, **how: Any) -> GarbageReport:
        return self.collector().run(options, **how)

    def collector(self, cursor: GarbageCursor | None = None) -> GarbageCollector:
        return GarbageCollector(self.table, self.objects, self.keys, self.now, cursor)

    @property
    def stored(self) -> set[str]:
        """The keys of all objects, but for the notes of fences that collecting leaves."""
        return {key for key in self.objects.objects if "/control/floor." not in key}


def another(number: int) -> StreamId:
    """Return one of many streams."""
    return StreamId("/", f"stream {number}", Incarnation(f"__stream{number}_1763700000000000000"))
