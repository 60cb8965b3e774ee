"""Histories of one stream's manifest: many who write and read at once, in a table that shows what it likes of it all.

A history is one seed. Who goes on next is decided at each request, and at each item that a Query reads; what shows of
transactions under way, item by item; who dies, and before or after which request; whose answer is lost. Everything is
in turns: one thread runs at a time, and the same seed gives the same history.

After every transaction the newest state of the table is held against what there has to be, and at the end, when who
died has been started again, every lookup.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from coldstream.archive.commit import commit_fragment
from coldstream.archive.coverage import covered_to
from coldstream.archive.missing import record_missing
from coldstream.compact.commit import commit as commit_merged
from coldstream.errors import ConflictError, OutcomeUnknownError, RemovedError, StaleGenerationError
from coldstream.lifecycle.sweep import sweep
from coldstream.lifecycle.unfinished import finish
from coldstream.manifest.change import (
    Change,
    DeleteEntry,
    DeleteGap,
    DeleteHold,
    DeleteLoss,
    DeleteQuarantine,
    DeleteTombstone,
    PutEntry,
    PutErasure,
    PutGap,
    PutHold,
    PutLoss,
    PutQuarantine,
    PutTombstone,
    Relink,
    ReplaceEntry,
    ReplaceGap,
    RequireEntry,
    RequireGap,
    Write,
)
from coldstream.manifest.entry import FragmentEntry, Gap, Head, JournalKind, Loss, Missing, Quarantine
from coldstream.manifest.groups import Group
from coldstream.manifest.missing import with_reason
from coldstream.manifest.sparse import SparseIndex, SparsePoint, greatest
from coldstream.manifest.spec import AtOffset, AtTimestamp
from coldstream.manifest.state import ManifestState, replay
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.resolve.attach import Attachment, Tail, attach
from coldstream.store.discard import discard
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.sortkeys import erasure_key, gap_key, hold_key, log_key, missing_key, tombstone_key
from coldstream.units import MAX_TIMESTAMP_MS, ChunkId, Epoch, Offset, TimestampMs
from tests.support.compacting import stores_at
from tests.support.removing import delete, remove_prefix, undelete

STREAM = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))
INCARNATION = STREAM.incarnation
NOW = TimestampMs(1_763_700_000_000)
FOR_EVER = TimestampMs(MAX_TIMESTAMP_MS)


class Killed(BaseException):
    """A process ended here."""


class Turns:
    """Lets one of several threads go on at a time, by chance."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._turns: dict[int, threading.Semaphore] = {}
        self._waiting: list[int] = []
        self._done = threading.Semaphore(0)
        self.error: BaseException | None = None

    def run(self, works: list[Callable[[], None]]) -> None:
        """Run all to their end, each begun at once."""
        threads = [threading.Thread(target=self._work, args=(number, work)) for number, work in enumerate(works)]
        self._turns = {number: threading.Semaphore(0) for number in range(len(works))}
        self._waiting = list(self._turns)
        for thread in threads:
            thread.start()
        if threads:
            self._next()
            self._done.acquire()
        for thread in threads:
            thread.join()
        if self.error is not None:
            raise self.error

    def switch(self, chance: float = 1.0) -> None:
        """Let another go on, maybe."""
        me = getattr(threading.current_thread(), "number", None)
        if me is None or not self._waiting or self._rng.random() >= chance:
            return
        self._waiting.append(me)
        self._next()
        self._turns[me].acquire()

    def _next(self) -> None:
        if not self._waiting:
            self._done.release()
            return
        self._turns[self._waiting.pop(self._rng.randrange(len(self._waiting)))].release()

    def _work(self, number: int, work: Callable[[], None]) -> None:
        threading.current_thread().number = number  # type: ignore[attr-defined]
        self._turns[number].acquire()
        try:
            work()
        except BaseException as err:  # noqa: BLE001  the history's to raise
            self.error = self.error or err
        self._next()


class Chance:
    """A visibility by chance; a Query may be interrupted before each of its items."""

    def __init__(self, rng: random.Random, turns: Turns) -> None:
        self._rng = rng
        self._turns = turns
        self._newest = rng.choice([0.2, 0.5, 0.8])
        self.is_writing = False

    def pick(self, _: str, states: int) -> int:
        if not self.is_writing:
            self._turns.switch(0.1)
        return states - 1 if self._rng.random() < self._newest else self._rng.randrange(states)


class Table(MemoryTable):
    """The weak table, with processes that die at it, and answers that are lost."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._policy = Chance(history.rng, history.turns)
        super().__init__(self._policy)

    def apply(self, change: Change) -> None:
        history, rng = self._history, self._history.rng
        check_items(change)
        try:
            super().apply(change)
            history.check_newest()
        finally:
            self._policy.is_writing = False
        history.was_deleted |= change.event.kind is JournalKind.STREAM_DELETED
        history.floors.append(change.head.floor)
        if history.is_troubled and rng.random() < 0.15:
            raise rng.choice([Killed, OutcomeUnknownError])("no answer came")
        history.turns.switch(0.5)
        if history.answers_settle:
            self.settle()

    def _count(self, call: str) -> None:
        super()._count(call)
        self._policy.is_writing = False
        if self._history.is_troubled and self._history.rng.random() < 0.01:
            raise Killed
        self._history.turns.switch(0.4)
        self._policy.is_writing = call == "TransactWriteItems"  # nobody else gets in between


def check_items(change: Change) -> None:
    """Hold a change to what DynamoDB takes: one action an item; and to what it says of their number."""
    keys = [written_key(write) for write in change.writes]
    assert len(keys) == len(set(keys)), f"two actions on one item: {sorted(keys)}"
    assert len(keys) + (3 if change.head.revision == 1 else 2) == change.items


def written_key(write: Write) -> str:  # noqa: PLR0911  one case a kind of item
    """Return the sort key of the item that a write is of."""
    match write:
        case PutEntry(one):
            return log_key(one.next_offset)
        case ReplaceEntry(version) | Relink(version) | DeleteEntry(version) | RequireEntry(version):
            return log_key(version.next_offset)
        case PutGap(gap) | ReplaceGap(gap) | DeleteGap(gap) | RequireGap(gap):
            return gap_key(gap.first_offset)
        case PutLoss(missing) | DeleteLoss(missing) | PutQuarantine(missing):
            return missing_key(missing)
        case DeleteQuarantine(missing):
            return missing_key(missing)
        case PutHold(hold) | DeleteHold(hold):
            return hold_key(hold.id)
        case PutErasure(_, erasure):
            return erasure_key(erasure.id)
        case PutTombstone(tombstone) | DeleteTombstone(tombstone):
            return tombstone_key(tombstone)


class History:
    """One seed's."""

    def __init__(self, seed: int, *, is_removed_from: bool = False) -> None:
        self.rng = random.Random(seed)
        self.turns = Turns(self.rng)
        self.is_troubled = self.rng.random() < 0.7
        self.answers_settle = self.rng.random() < 0.6
        self.is_removed_from = is_removed_from
        self.was_deleted = False
        self.floors: list[Offset] = []
        self.table = Table(self)
        self.objects = MemoryObjects()
        self.archived: dict[int, FragmentEntry] = {}
        self._names = iter(range(1_000_000))
        self.slices = list(self._slices())
        self._left: list[Callable[[], None]] = []

    def run(self) -> None:
        """Let it happen, start again who died, and check all of it."""
        for _ in range(self.rng.randrange(1, 4)):
            self.turns.run([self._tried(work) for work in self._works()])
        self.is_troubled = False
        self.table.settle()
        while self._left:
            self._left.pop()()
            self.table.settle()
        self._undelete()
        self.table.settle()
        finish(self.table, INCARNATION, lambda: NOW)
        self.table.settle()
        self.check_newest(is_end=True)
        self._check_lookups()
        self._check_journal()

    def _check_journal(self) -> None:
        """The journal alone gives the table, item for item."""
        state = self.table._partitions.get(INCARNATION, ManifestState())
        assert replay(self.table.recorded_changes(INCARNATION)) == state

    def _tried(self, work: Callable[[], None]) -> Callable[[], None]:
        """Do something as a queue has it done: again while others get in between; later, if it died."""

        def attempt() -> None:
            try:
                work()
            except (Killed, ConflictError, OutcomeUnknownError):
                self._left.append(work)

        return attempt

    def _slices(self) -> Iterator[FragmentEntry]:
        offset, now = self.rng.choice([0, 7]), 100
        for _ in range(self.rng.randrange(3, 11)):
            chunks = []
            for _ in range(self.rng.randrange(1, 3)):
                size = self.rng.randrange(1, 4)
                chunks.append((offset, now))
                offset += size
                now += self.rng.choice([0, 1, 3, -20 if self.rng.random() < 0.3 else 2])
            yield _entry(chunks, offset)

    def _works(self) -> list[Callable[[], None]]:
        works: list[Callable[[], None]] = []
        for new in self.slices:
            if self.rng.random() < 0.6:
                works += [partial(self._commit, new)] * self.rng.choice([1, 1, 2])
        for _ in range(self.rng.randrange(3)):
            works.append(partial(self._miss, self._some_missing()))
        works += [self._compact] * self.rng.randrange(3)
        if self.is_removed_from:
            works += [self._retain] * self.rng.randrange(3)
            works += [self._delete, self._undelete] * (self.rng.random() < 0.4)
        works += [lambda: _ignored(sweep(stores_at(self.table, self.objects, FOR_EVER), INCARNATION))] * (
            self.rng.random() < 0.2
        )
        works += [self._ask] * self.rng.randrange(3)
        self.rng.shuffle(works)
        return works

    def _commit(self, new: FragmentEntry) -> None:
        """Commit a slice; if its key was fenced off, under another one."""
        while True:
            try:
                commit_fragment(self.table, STREAM, new, lambda: NOW)
            except StaleGenerationError as err:
                new = replace(new, key=f"data/{new.first_offset}.{err.generation}", generation=err.generation)
            except RemovedError:  # below the floor, or of a deleted stream
                discard(self.table, INCARNATION, (new,), lambda: NOW)
                return
            else:
                return

    def _miss(self, missing: Missing) -> None:
        with suppress(RemovedError):
            record_missing(self.table, STREAM, missing)

    def _retain(self) -> None:
        """Remove the first entries, as retention does: it reads, and may lose a race."""
        limit = self.rng.randrange(1, 4)
        head = self.table.head(INCARNATION)
        if head is not None and not head.is_deleted and head.compacting is None:
            remove_prefix(self.table, INCARNATION, limit)

    def _delete(self) -> None:
        head = self.table.head(INCARNATION)
        if head is not None and not head.is_deleted:
            delete(self.table, INCARNATION)

    def _undelete(self) -> None:
        head = self.table.head(INCARNATION)
        if head is not None and head.is_deleted and head.purge_began_at is None:
            undelete(self.table, INCARNATION)

    def _some_missing(self) -> Missing:
        first = self.rng.choice(self.slices).first_offset
        following = Offset(first + self.rng.randrange(1, 9))
        if self.rng.random() < 0.5:
            return Loss(first, following, f"lost {next(self._names)}", NOW)
        return Quarantine(first, following, f"bad {next(self._names)}", NOW, f"quarantine/{next(self._names)}", "etag")

    def _compact(self) -> None:
        log = [
            entry
            for entry in self.table.log_from_offset(INCARNATION, Offset(0), 100).entries
            if self.rng.random() < 0.9
        ]
        runs: list[list[FragmentEntry]] = [[]]
        for entry in log:
            if runs[-1] and runs[-1][-1].next_offset != entry.first_offset:
                runs.append([])
            runs[-1].append(entry)
        group = max(runs, key=len)
        if not group:
            return
        number = next(self._names)
        merged = Group(tuple(group)).merged(key=f"merged/{number}", generation=1, object_bytes=number, crc32=number)
        commit_merged(self.table, INCARNATION, Group(tuple(group)), merged, now=lambda: NOW)

    def _ask(self) -> None:
        first = Offset(self.rng.choice(self.slices).first_offset + self.rng.randrange(2))
        following = Offset(first + self.rng.randrange(1, 40))
        reached = covered_to(self.table, INCARNATION, first, following)
        held = {offset for entry in self._newest() for offset in range(entry.first_offset, entry.next_offset)}
        floor = Offset(0) if self._head is None else self._head.floor
        released = set(range(max(first, floor), reached))
        assert released <= held or self.was_deleted, f"{first} to {reached} is released, and not archived"

    @property
    def _head(self) -> Head | None:
        return self.table._partitions[INCARNATION].head if INCARNATION in self.table._partitions else None

    def _newest(self) -> list[FragmentEntry]:
        entries = self.table._partitions[INCARNATION].entries if INCARNATION in self.table._partitions else {}
        return [entries[end] for end in sorted(entries)]

    def check_newest(self, *, is_end: bool = False) -> None:
        """Hold the newest state of the table against what there has to be."""
        if INCARNATION not in self.table._partitions:
            return
        partition = self.table._partitions[INCARNATION]
        log, head = self._newest(), partition.head
        assert head is not None
        assert not is_end or head.compacting is None
        merged = next((entry for entry in log if entry.next_offset == head.compacting), None)
        assert (merged is None) == (head.compacting is None)
        within = [] if merged is None else [e for e in log if merged.first_offset <= e.first_offset and e is not merged]
        within = [entry for entry in within if merged is not None and entry.next_offset < merged.next_offset]
        chain = [entry for entry in log if all(entry is not one for one in within)]
        assert not within or within[0].first_offset == chain[chain.index(merged)].first_offset  # type: ignore[arg-type]
        holes: list[Gap] = []
        before: FragmentEntry | None = None
        latest: TimestampMs | None = head.floor_timestamp
        assert self.floors == sorted(self.floors), "the floor falls"
        assert all(entry.first_offset >= head.floor for entry in log), "something below the floor is back"
        for entry in chain:
            linked = within[0] if entry is merged else entry
            assert linked.prior_offset == (None if before is None else before.next_offset), "wrong link"
            if is_end and not (before is None and head.floor):
                assert linked.prior_timestamp == latest, "wrong time"
            else:
                assert greatest((linked.prior_timestamp, latest)) == linked.prior_timestamp, "time too small"
            if before is not None:
                assert before.next_offset <= entry.first_offset, "overlap"
                if before.next_offset < entry.first_offset:
                    holes.append(Gap(before.next_offset, entry.first_offset))
            before, latest = entry, greatest((latest, entry.greatest_timestamp))
        running = [entry.running_timestamp for entry in log]
        assert running == sorted(running), "running timestamps fall"
        known = list(partition.missing.values())
        told = {hole.first_offset: with_reason(hole, known) for hole in holes}
        found = {gap.first_offset: (gap.next_offset, gap.reason) for gap in partition.gaps.values()}
        if is_end:
            assert found == {first: (gap.next_offset, gap.reason) for first, gap in told.items()}, "wrong gaps"
        else:
            ends = {first: end for first, (end, _) in found.items()}
            assert ends == {hole.first_offset: hole.next_offset for hole in holes}, "wrong gaps"
        self._check_totals(chain, log, known)
        self._check_tombstones(log)

    def _check_totals(self, chain: list[FragmentEntry], log: list[FragmentEntry], known: list[Missing]) -> None:
        partition = self.table._partitions[INCARNATION]
        head = partition.head
        assert head is not None
        assert (head.fragments, head.object_bytes) == (len(log), sum(entry.object_bytes for entry in log))
        for total in ("chunks", "records", "messages", "data_bytes"):
            assert getattr(head, total) == sum(getattr(entry, total) for entry in chain), total
        assert head.gaps == len(partition.gaps)
        assert head.losses == sum(isinstance(one, Loss) for one in known)
        assert head.quarantined == len(known) - head.losses
        first, last = (chain[0], chain[-1]) if chain else (None, None)
        assert head.first_offset == (first and first.first_offset)
        assert head.next_offset == (last.next_offset if last else head.floor or None)
        assert [event.revision for event in partition.events.values()] == sorted(partition.events)

    def _check_tombstones(self, log: list[FragmentEntry]) -> None:
        named = {entry.key for entry in log}
        assert len(named) == len(log)
        assert named.isdisjoint(one.key for one in self.table._partitions[INCARNATION].tombstones.values())

    def _check_past_the_tail(self, found: Attachment | Gap | Tail, offset: int) -> None:
        if any(one.first_offset <= offset < one.next_offset for one in self.table.missing(INCARNATION)):
            assert isinstance(found, Gap)
            assert found.first_offset <= offset < found.next_offset
            assert found.reason is not None
        else:
            assert isinstance(found, Tail)

    def _check_emptied(self) -> None:
        if self._head is None or not self._head.floor:
            return
        for offset in range(self._head.floor + 2):
            found = attach(self.table, STREAM, AtOffset(Offset(offset)), 3)
            self._check_past_the_tail(found, max(offset, self._head.floor))

    def _check_lookups(self) -> None:
        log = self._newest()
        if self._head is not None and self._head.is_deleted:  # and being purged
            return
        if not log:
            self._check_emptied()
            return
        for offset in range(log[-1].next_offset + 2):
            found = attach(self.table, STREAM, AtOffset(Offset(offset)), 3)
            right = next((entry for entry in log if entry.next_offset > offset), None)
            if right is None:
                self._check_past_the_tail(found, offset)
            elif right.first_offset <= offset or right is log[0]:
                assert isinstance(found, Attachment)
                assert found.entries[0] == right
            else:
                assert found == self.table.gap(INCARNATION, log[log.index(right) - 1].next_offset)
        for timestamp in range(60, 150):
            found = attach(self.table, STREAM, AtTimestamp(TimestampMs(timestamp)), 3)
            right = next((entry for entry in log if entry.greatest_timestamp >= timestamp), None)
            if right is None:
                self._check_past_the_tail(found, log[-1].next_offset)
            elif isinstance(found, Attachment):
                assert found.entries[0] == right
            else:
                assert isinstance(found, Gap)
                assert found.next_offset == right.first_offset


def _entry(chunks: list[tuple[int, int]], next_offset: int) -> FragmentEntry:
    points = []
    for ordinal, (chunk_id, timestamp) in enumerate(chunks):
        before = max((at for _, at in chunks[:ordinal]), default=timestamp)
        points.append(
            SparsePoint(ChunkId(chunk_id), ordinal, 8 + 100 * ordinal, TimestampMs(timestamp), TimestampMs(before))
        )
    first = chunks[0][0]
    return FragmentEntry(
        first_offset=Offset(first),
        next_offset=Offset(next_offset),
        first_timestamp=TimestampMs(chunks[0][1]),
        last_timestamp=TimestampMs(chunks[-1][1]),
        greatest_timestamp=TimestampMs(max(at for _, at in chunks)),
        epoch=Epoch(1),
        chunks=len(chunks),
        records=next_offset - first,
        messages=next_offset - first,
        data_bytes=100 * len(chunks),
        object_bytes=100 * len(chunks) + 90,
        key=f"data/{first}",
        crc32=first,
        sparse=SparseIndex(tuple(points)),
        last_user_chunk=None,
        segment_offset=Offset(first),
    )


def _ignored(_: object) -> None:
    """Have no answer."""
