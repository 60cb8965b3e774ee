"""Archives with a life behind them, by chance: what a rebuild has to give back."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

from coldstream.archive.missing import record_loss
from coldstream.archive.quarantine import quarantine
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.compact.commit import commit
from coldstream.compact.write import write_group
from coldstream.erase.chunk import Doubts
from coldstream.erase.fragment import erase_fragment
from coldstream.erase.new_object import put_erased
from coldstream.errors import HeldError, RemovedError
from coldstream.manifest.compaction import plan_sweep
from coldstream.manifest.deletion import plan_delete, plan_purged, plan_undelete
from coldstream.manifest.entry import (
    Encoding,
    Erasure,
    ErasureState,
    FragmentEntry,
    Head,
    Hold,
    StorageClass,
    Tombstone,
)
from coldstream.manifest.erasing import plan_erased_fragment, plan_erasure_begin, plan_erasure_done
from coldstream.manifest.fence import plan_fence
from coldstream.manifest.groups import Group
from coldstream.manifest.holding import held, plan_hold, plan_release
from coldstream.manifest.note import EntryNote
from coldstream.manifest.purging import MAX_FORGOTTEN, plan_missing_forgotten
from coldstream.manifest.removal import plan_prefix_removal
from coldstream.manifest.storage_class import in_class, plan_storage_class
from coldstream.rebuild.compare import Difference, differences
from coldstream.rebuild.facts import StreamReport
from coldstream.rebuild.run import Rebuilder
from coldstream.store.control import ControlObjects
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import ManifestTable
from coldstream.units import Offset, TimestampMs
from tests.erase.samples import between
from tests.support.segments import START, MemoryArchive, write_stream

DAY_MS = 24 * 3600 * 1000
DONE = TimestampMs(START + 20 * DAY_MS)
DUE = TimestampMs(START + 2 * DAY_MS)


class RandomArchive(MemoryArchive):
    """An archive of one stream, to which anything happens."""

    def __init__(self, seed: int, directory: Path, *, versioned: bool = False) -> None:
        self.rng = random.Random(seed)
        super().__init__(
            fragment_bytes=self.rng.choice([3_000, 10_000, 30_000]),
            zstd_level=random.Random(f"encoding {seed}").choice([None, 1]),
        )
        self.now = TimestampMs(START + DAY_MS)
        self.past: list[tuple[TimestampMs, Head]] = []
        self.use(objects=MemoryObjects(versioned=versioned, clock=lambda: self.now))
        self.control = ControlObjects(self.objects, self.keys)
        self.done: Counter[str] = Counter()
        self._names = count()
        write_stream(directory, chunks=self.rng.choice([60, 150]), max_segment_bytes=30_000, seed=seed)
        self.segments = self.stage(directory)
        self._staged = {one.staged_key: self.objects.objects[one.staged_key] for one in self.segments}

    @property
    def head(self) -> Head:
        """The head of now."""
        return self.table.head(self.stream.incarnation) or Head(self.stream)

    @property
    def holds(self) -> tuple[Hold, ...]:
        """The holds of now."""
        return self.table.holds(self.stream.incarnation)

    def live(self, *, ends: bool = False) -> None:
        """Archive all segments, while anything happens in between; with `ends` the stream may be deleted."""
        segments = list(self.segments)
        if self.rng.random() < 0.5:
            self.rng.shuffle(segments)
        works = self.works()
        for segment in segments:
            self.now = TimestampMs(self.now + 1000)
            self._archive(segment)
            self.past.append((self.now, self.head))
            while self.rng.random() < 0.7:
                (work,) = self.rng.choices([one for _, one in works], [weight for weight, _ in works])
                self.try_(work)
        if ends and self.rng.random() < 0.6:
            self.try_(self.delete)

    def works(self) -> list[tuple[int, Callable[[], None]]]:
        """List what may happen, each with how often."""
        return [
            (5, self.compact),
            (2, self.remove),
            (1, self.put_hold),
            (2, self.release),
            (3, self.erase),
            (2, self.move),
            (2, self.sweep),
            (1, self.fence),
        ]

    def try_(self, work: Callable[[], None]) -> None:
        """Do something that may be refused, or have nothing to do."""
        self.now = TimestampMs(self.now + 1000)
        try:
            work()
        except (HeldError, RemovedError, IndexError):
            self.done[f"no {work.__name__}"] += 1
        else:
            self.done[work.__name__] += 1
        self.past.append((self.now, self.head))

    def _archive(self, segment: SegmentRolled) -> None:
        roll = self.rng.random()
        if segment.first_offset < self.head.floor or self.head.is_deleted:
            return
        if roll < 0.8:
            self.uploader.upload(segment)
        elif roll < 0.87:
            self._lose(segment)
        elif roll < 0.95:
            self._quarantine(segment)

    def compact(self) -> None:
        """Merge some neighbours."""
        runs: list[list[FragmentEntry]] = [[]]
        for entry in self.log():
            before = runs[-1][-1] if runs[-1] else entry
            is_alike = (before.erased, before.storage_class) == (entry.erased, entry.storage_class)
            is_next = not runs[-1] or before.next_offset == entry.first_offset
            if self.rng.random() < 0.1 or not is_next or not is_alike:
                runs.append([])
            is_free = held(self.holds, entry.first_offset, entry.next_offset) is None
            if is_free and entry.storage_class is None:
                runs[-1].append(entry)
        group = Group(tuple(self.rng.choice([run for run in runs if run])))
        is_identity = all(entry.encoding is Encoding.IDENTITY for entry in group.entries)
        encoding = self.rng.choice(list(Encoding)) if is_identity and len(group.entries) > 1 else Encoding.ZSTD_SEEKABLE
        incarnation = self.stream.incarnation
        merged = write_group(
            self.objects, self.keys, incarnation, group, encoding, least_generation=self.head.generation
        ).entry
        commit(self.table, incarnation, group, merged, now=lambda: self.now, grace_ms=8 * DAY_MS)

    def remove(self, count: int | None = None) -> None:
        """Remove the first fragments."""
        log = self.log()
        count = self.rng.randrange(1, min(4, len(log)) + 1) if count is None and log else count or 0
        removed, following = log[:count], log[count] if count < len(log) else None
        assert removed or not log
        if not removed:
            raise IndexError
        gaps = self.table.gaps(self.stream.incarnation, 1000)
        self.table.apply(
            plan_prefix_removal(
                self.head, removed, following, gaps, self.holds, at=self.now, due_at=DUE, why="policy", by=None
            )
        )
        self.control.write_floor(self.head)

    def put_hold(self) -> None:
        """Put a hold on some offsets."""
        entry = self.rng.choice(self.log())
        end = None if self.rng.random() < 0.2 else entry.next_offset
        hold = Hold(f"hold-{next(self._names)}", entry.first_offset, end, "a lawsuit", "alice", self.now)
        self.control.write_hold(self.stream.incarnation, hold)
        self.table.apply(plan_hold(self.head, hold))

    def release(self) -> None:
        """Release a hold."""
        hold = self.rng.choice(self.holds)
        self.table.apply(plan_release(self.head, hold, self.now, "alice"))
        self.control.write_release(self.stream.incarnation, hold, "alice")

    def fence(self) -> None:
        """Raise the fence, as a collection of garbage does."""
        if self.head.revision:
            self.table.apply(plan_fence(self.head, self.head.generation + 1, self.now))
            self.control.write_floor(self.head)

    def erase(self) -> None:
        """Erase some bytes of a fragment."""
        before = self.rng.choice([entry for entry in self.log() if not entry.erased])
        running = Erasure(
            id=f"erasure-{next(self._names)}",
            first_offset=before.first_offset,
            next_offset=before.next_offset,
            where="true",
            reason="a request",
            by="alice",
            at=self.now,
            messages=0,
            digest="",
            state=ErasureState.RUNNING,
            reached=before.first_offset,
        )
        incarnation = self.stream.incarnation
        after = self._erased(before)
        if held(self.holds, before.first_offset, before.next_offset) is not None:
            self.objects.delete(after.key)
        self.table.apply(plan_erasure_begin(self.head, running, self.holds))
        self.control.write_erasure(incarnation, running)
        done = replace(running, messages=1, digest="ab", state=ErasureState.DONE, reached=before.next_offset)
        self.table.apply(
            plan_erased_fragment(self.head, before, after, running, done, self.holds, at=self.now, due_at=DUE)
        )
        self.table.apply(plan_erasure_done(self.head, done, done, self.now))
        self.control.write_erasure(incarnation, done)

    def _erased(self, before: FragmentEntry) -> FragmentEntry:
        """Put an object without some of the messages."""
        middle = Offset((before.first_offset + before.next_offset) // 2)
        fragment = erase_fragment(self.objects, before, between(before.first_offset, middle), Doubts())
        if fragment is None:
            raise IndexError
        with fragment:
            return put_erased(
                self.objects,
                self.keys,
                self.stream.incarnation,
                before,
                fragment,
                least_generation=self.head.generation,
            )

    def move(self) -> None:
        """Move a fragment to a colder class."""
        entry = self.rng.choice(self.log())
        to = self.rng.choice([StorageClass.STANDARD_IA, StorageClass.GLACIER_IR])
        info = self.objects.info(entry.key)
        assert info is not None
        generation = max(self.head.generation, entry.generation + 1)
        key = self.keys.fragment(self.stream.incarnation, entry.first_offset, generation)
        if held(self.holds, entry.first_offset, entry.next_offset) is None and self.objects.info(key) is None:
            self.objects.copy_in_class(entry.key, key, to, if_match=info.etag)
            after = in_class(entry, key, generation, to)
            self.table.apply(
                plan_storage_class(self.head, entry, after, tuple(self.holds), at=self.now, due_at=TimestampMs(DUE))
            )

    def sweep(self) -> None:
        """Delete what was removed or erased, or all that was replaced."""
        due_by = TimestampMs(self.rng.choice([DUE, DUE + 100 * DAY_MS]))
        for tombstone in self.table.tombstones(self.stream.incarnation, due_by, 1000):
            if held(self.holds, tombstone.first_offset, tombstone.next_offset) is None:
                self.objects.delete(tombstone.key)
                self._forget(tombstone)

    def _forget(self, tombstone: Tombstone) -> None:
        self.table.apply(plan_sweep(self.head, [tombstone], at=self.now))

    def delete(self) -> None:
        """Delete the stream; purge it, or undo that, or neither."""
        self.table.apply(plan_delete(self.head, self.now, DONE, "alice", holds=self.holds))
        self.control.write_floor(self.head)
        roll = self.rng.random()
        if roll < 0.3:
            self.table.apply(plan_undelete(self.head, self.now, "alice"))
            self.control.write_floor(self.head)
        elif roll < 0.7:
            while self.log():
                self.remove(3)
            while missing := tuple(islice(self.table.missing(self.stream.incarnation), MAX_FORGOTTEN)):
                self.table.apply(plan_missing_forgotten(self.head, missing, self.now))
            self.table.apply(plan_purged(self.head, self.now))
            self.control.write_floor(self.head)

    def _lose(self, segment: SegmentRolled) -> None:
        lost = SegmentLost(
            self.stream, segment.first_offset, segment.next_offset, f"disk {self.rng.random()}", segment.cluster
        )
        record_loss(self.table, self.control, lost, lambda: self.now)
        self.done["lose"] += 1

    def _quarantine(self, segment: SegmentRolled) -> None:
        for number in range(self.rng.choice([1, 1, 3])):
            self.now = TimestampMs(self.now + 1000)
            self.objects.objects[segment.staged_key] = b"%d copies failed" % number
            self._put_aside(segment)
        self.done["quarantine"] += 1

    def _put_aside(self, segment: SegmentRolled) -> None:
        info = self.objects.info(segment.staged_key)
        assert info is not None
        try:
            quarantine(
                self.table,
                self.objects,
                self.keys,
                segment,
                etag=info.etag,
                reason="a bad CRC",
                now=lambda: self.now,
            )
        except RemovedError:
            self.done["no quarantine"] += 1

    def restage(self, segment: SegmentRolled) -> None:
        """Stage a segment again, as another replica would."""
        self.objects.objects[segment.staged_key] = self._staged[segment.staged_key]

    def leave_strays(self) -> set[str]:
        """Leave objects that were never committed: of uploads cut in another way, and of a merge. Return their keys."""
        before = set(self.objects.objects)
        other = MemoryArchive(fragment_bytes=self.uploader.fragment_bytes * 2)
        for segment in self.segments:
            if segment.first_offset >= self.head.floor and self.rng.random() < 0.4:
                other.objects.objects[segment.staged_key] = self._staged[segment.staged_key]
                other.uploader.upload(segment)
        for entry in other.log():
            key = self.keys.fragment(self.stream.incarnation, entry.first_offset, self.rng.choice([0, 7]))
            if not self._holds(entry) or key in self.objects.objects:
                continue
            body = other.objects.objects[entry.key]
            note = EntryNote.of(entry).to_text()
            self.objects.put_new(key, io.BytesIO(body), size_bytes=len(body), crc32=entry.crc32, note=note)
        return set(self.objects.objects) - before

    def _holds(self, entry: FragmentEntry) -> bool:
        """Tell whether the log holds all offsets of an entry, none of them erased."""
        within = [
            one for one in self.log() if one.first_offset < entry.next_offset and entry.first_offset < one.next_offset
        ]
        held_offsets = sum(
            min(one.next_offset, entry.next_offset) - max(one.first_offset, entry.first_offset) for one in within
        )
        return held_offsets == entry.records and not any(one.erased for one in within)

    def rebuilder(
        self,
        table: ManifestTable,
        *,
        stop_after: int | None = None,
        is_dry: bool = False,
        at: TimestampMs | None = None,
        reads_at_once: int = 1,
    ) -> Rebuilder:
        """Return what rebuilds the archive into a table."""
        asked = count()
        return Rebuilder(
            table,
            self.objects,
            self.keys,
            lambda: DONE,
            8 * DAY_MS,
            at=at,
            is_dry=is_dry,
            reads_at_once=reads_at_once,
            should_stop=lambda: stop_after is not None and next(asked) >= stop_after,
        )

    def rebuild(
        self,
        table: ManifestTable,
        *,
        stop_after: int | None = None,
        is_dry: bool = False,
        at: TimestampMs | None = None,
    ) -> StreamReport:
        """Rebuild the stream into a table."""
        return self.rebuilder(table, stop_after=stop_after, is_dry=is_dry, at=at).stream(self.stream.incarnation)

    def differences(self, table: MemoryTable) -> list[Difference]:
        """List the rows that differ."""
        return list(differences(self.table, table, self.stream.incarnation))
