"""Lives of a stream by chance: commits in any order, compactions, removals, deletions, holds, fences and more.

After each change the state is held against what has to be (`World.check`): links, totals, gaps, running timestamps,
the floor, and that no key is named after its tombstone. At the end the journal alone gives the state.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from coldstream.errors import (
    ExpiredEpochError,
    HeldError,
    LostRaceError,
    NotDeletedError,
    OverlapError,
    RemovedError,
    StreamClosedError,
    StreamNotFoundError,
)
from coldstream.manifest import commit, compaction, removal
from coldstream.manifest.appender import Appender, WalKind, WalPlace
from coldstream.manifest.appending import plan_close, plan_create, plan_open, plan_recovered, plan_trim
from coldstream.manifest.change import EntryVersion, Relink
from coldstream.manifest.claiming import plan_claim, plan_claim_end
from coldstream.manifest.commit import MAX_GAPS, plan_missing
from coldstream.manifest.compaction import plan_sweep
from coldstream.manifest.deletion import plan_delete, plan_purged, plan_undelete
from coldstream.manifest.entry import (
    Erasure,
    ErasureState,
    FragmentEntry,
    JournalKind,
    Loss,
    Missing,
    Quarantine,
    StorageClass,
    Tombstone,
)
from coldstream.manifest.erasing import plan_erased_fragment, plan_erasure_begin
from coldstream.manifest.fence import plan_discard, plan_fence
from coldstream.manifest.holding import held, plan_hold, plan_release
from coldstream.manifest.repair import plan_items_repair, plan_range_removal
from coldstream.manifest.storage_class import in_class, plan_storage_class
from coldstream.units import Epoch, Offset
from tests.manifest.world import AT, DUE, STREAM, World, entry, hold

REFUSALS = (
    RemovedError,
    LostRaceError,
    HeldError,
    NotDeletedError,
    OverlapError,
    StreamNotFoundError,
    StreamClosedError,
    ExpiredEpochError,
)
"""What most of what is tried by chance meets."""

LIVES = int(os.environ.get("COLDSTREAM_LIVES", "100"))
STEPS = 80


class Life:
    """One seed's."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World()
        self.tried: Counter[str] = Counter()
        self._names = iter(range(1_000_000))
        borders = sorted(self.rng.sample(range(400), 60))
        self.slices = [
            entry(first, following, time=self.rng.randrange(100))
            for first, following in pairwise(borders)
            if self.rng.random() < 0.8
        ]
        self.stalled: list[FragmentEntry] = []
        self.removed_to = 0
        self.appender: Appender | None = None

    def run(self) -> None:
        """Do things by chance, most of which may be refused."""
        if self.rng.random() < 0.5:
            self.world.apply(plan_create(STREAM, AT, first=Offset(0), properties={"owner": "Zoë"}))
            self.appender = self.world.head.appender
        works: list[tuple[int, Callable[[], None]]] = [
            (12, self.append),
            (8, self.commit),
            (3, self.compact),
            (2, self.finish),
            (3, self.remove),
            (2, self.put_hold),
            (2, self.release),
            (3, self.delete),
            (2, self.undelete),
            (2, self.sweep),
            (1, self.purge),
            (1, self.fence),
            (1, self.discard),
            (2, self.erase),
            (1, self.move),
            (2, self.miss),
            (1, self.give_up),
            (1, self.repair),
            (2, self.open),
            (1, self.recover),
            (1, self.close),
            (1, self.trim),
        ]
        for _ in range(STEPS):
            (work,) = self.rng.choices([one for _, one in works], [weight for weight, _ in works])
            try:
                work()
            except REFUSALS as err:
                self.tried[f"{work.__name__} {type(err).__name__}"] += 1
            else:
                self.tried[work.__name__] += 1
            assert self.world.head.floor >= self.removed_to, "the floor falls"
            self.removed_to = self.world.head.floor
            self.check_appender()
        self.tried.update(one.event.kind.name for one in self.world.changes)
        self.world.check_replay()

    def check_appender(self) -> None:
        """Hold the appender against the one before."""
        before, now = self.appender, self.world.head.appender
        assert (before is None) == (now is None), "a stream changed hands between a broker and its clients"
        if before is not None and now is not None:
            assert now.epoch - before.epoch in {0, 1}
            assert now.start >= before.start
            assert now.is_sealed >= before.is_sealed
            assert (now.first, now.properties) == (before.first, before.properties)
            assert [one.epoch for one in now.openings] == sorted({one.epoch for one in now.openings})
            assert not now.is_open or now.openings[-1].epoch == now.epoch
            assert not (now.is_open and now.is_sealed)
        self.appender = now

    def open(self) -> None:
        """Open it to append."""
        wal = WalPlace(
            self.rng.choice((WalKind.S3, WalKind.EXPRESS, WalKind.DISK)), "writer", 1 + self.rng.randrange(3)
        )
        self.world.apply(plan_open(self.world.head, wal, AT, "alice"))

    def recover(self) -> None:
        """Forget the openings before this one's, which may be over."""
        self.world.apply(plan_recovered(self.world.head, self._epoch(), AT))

    def close(self) -> None:
        """Close it, maybe for good."""
        self.world.apply(plan_close(self.world.head, self._epoch(), AT, is_sealed=self.rng.random() < 0.2))

    def trim(self) -> None:
        """Trim it, which may be done already."""
        change = plan_trim(self.world.head, self._epoch(), Offset(self.rng.randrange(500)), AT, "alice")
        if change is not None:
            self.world.apply(change)

    def _epoch(self) -> Epoch:
        appender = self.world.head.appender
        return Epoch(1 if appender is None else appender.epoch - (self.rng.random() < 0.2))

    def append(self) -> None:
        """Commit the next slice, mostly."""
        tail = self.world.head.next_offset or 0
        self._commit(next((one for one in self.slices if one.first_offset >= tail), self.slices[-1]))

    def commit(self) -> None:
        """Commit any slice, maybe one of a creator that was stalled."""
        self._commit(self.rng.choice(self.stalled or self.slices) if self.rng.random() < 0.3 else self._any())

    def _any(self) -> FragmentEntry:
        return self.rng.choice(self.slices)

    def _commit(self, new: FragmentEntry) -> None:
        generation = self.rng.choice([self.world.head.generation, self.world.head.generation, new.generation])
        key = f"{new.first_offset:020}-{new.next_offset}.{generation}.fragment"
        new = replace(new, generation=generation, key=key)
        if self.rng.random() < 0.2:
            self.stalled.append(new)
        self.world.commit(new)

    def compact(self) -> None:
        """Merge some neighbours, maybe not to the end."""
        log = self.world.log
        runs: list[list[FragmentEntry]] = [[]]
        for one in log:
            if runs[-1] and (runs[-1][-1].next_offset != one.first_offset or self.rng.random() < 0.1):
                runs.append([])
            runs[-1].append(one)
        group = max(runs, key=len)
        holds = self.world.state.holds.values()
        if group and held(holds, group[0].first_offset, group[-1].next_offset) is None:
            generation = max(self.world.head.generation, 1 + max(one.generation for one in group))
            self.world.compact(group, generation=generation, changes=self.rng.choice([None, 1, 2]))

    def finish(self) -> None:
        """Finish a compaction."""
        self.world.finish()

    def remove(self) -> None:
        """Remove some of the first entries."""
        keys = {one.key for one in self.world.log if held(self.world.state.holds.values(), *_span(one)) is not None}
        if self.world.log:
            self.world.remove(self.rng.randrange(1, min(len(self.world.log), removal.MAX_PREFIX) + 1))
        assert keys <= {one.key for one in self.world.log}, "a held entry was removed"

    def put_hold(self) -> None:
        """Put a hold."""
        first = self.rng.randrange(400)
        following = self.rng.choice([None, first + self.rng.randrange(1, 30)])
        self.world.apply(plan_hold(self.world.head, hold(first, following, f"hold-{next(self._names)}")))

    def release(self) -> None:
        """Release a hold."""
        if self.world.state.holds:
            one = self.rng.choice(list(self.world.state.holds.values()))
            self.world.apply(plan_release(self.world.head, one, AT, "alice"))

    def delete(self) -> None:
        """Delete the stream; not too early, or most lives are short."""
        if len(self.world.changes) > STEPS // 2:
            while self.world.state.holds and self.rng.random() < 0.8:
                self.release()
            self.world.apply(plan_delete(self.world.head, AT, DUE, "alice"))
            if self.rng.random() < 0.3:
                self.put_hold()

    def undelete(self) -> None:
        """Undo the deletion."""
        log = self.world.log
        self.world.apply(plan_undelete(self.world.head, AT, "alice"))
        assert self.world.log == log

    def purge(self) -> None:
        """Remove everything of a deleted stream."""
        while self.world.head.is_deleted and self.world.log:
            self.world.finish()
            self.world.remove(min(len(self.world.log), self.rng.randrange(1, removal.MAX_PREFIX + 1)))
        self.world.apply(plan_purged(self.world.head, AT))

    def sweep(self) -> None:
        """Delete some tombstones."""
        graves = list(self.world.state.tombstones.values())[: self.rng.randrange(1, 5)]
        if graves:
            spans = [(one.first_offset, one.next_offset) for one in graves]
            self.world.apply(plan_claim(self.world.head, spans, list(self.world.state.holds.values()), AT))
            claim = self.rng.choice(self.world.head.claims)
            self.world.apply(plan_sweep(self.world.head, graves, at=AT))
            self.world.apply(plan_claim_end(self.world.head, claim, AT))

    def fence(self) -> None:
        """Raise the fence."""
        if self.world.head.revision:
            self.world.apply(plan_fence(self.world.head, self.world.head.generation + self.rng.randrange(2), AT))

    def discard(self) -> None:
        """Bury an object that was never committed, and that nobody can commit from then on."""
        new = self._any()
        generation = self.world.head.generation
        key = f"{new.first_offset:020}-{new.next_offset}.{generation}.fragment"
        if self.world.head.revision and all(one.key != key for one in self.world.log):
            orphan = Tombstone(key, DUE, new.first_offset, new.next_offset, 182)
            self.world.apply(plan_discard(self.world.head, [orphan], generation + 1, AT))

    def erase(self) -> None:
        """Erase some messages of a fragment."""
        if not self.world.log:
            return
        before, holds = self.rng.choice(self.world.log), list(self.world.state.holds.values())
        erasure = Erasure(
            id=f"erasure-{next(self._names)}",
            first_offset=before.first_offset,
            next_offset=before.next_offset,
            where="true",
            reason="",
            by="alice",
            at=AT,
            messages=0,
            digest="",
            state=ErasureState.RUNNING,
            reached=before.first_offset,
        )
        self.world.apply(plan_erasure_begin(self.world.head, erasure, holds))
        generation = max(self.world.head.generation, before.generation + 1)
        key = f"erased-{next(self._names)}.{generation}"
        after = replace(before, key=key, generation=generation, erased=True, data_bytes=before.data_bytes - 1)
        done = replace(erasure, messages=1, reached=before.next_offset)
        self.world.apply(plan_erased_fragment(self.world.head, before, after, erasure, done, holds, at=AT, due_at=DUE))

    def move(self) -> None:
        """Move an object to another storage class."""
        if self.world.log:
            before = self.rng.choice(self.world.log)
            generation = max(self.world.head.generation, before.generation + 1)
            key = f"moved-{next(self._names)}.{generation}"
            after = in_class(before, key, generation, self.rng.choice([None, *StorageClass]))
            holds = tuple(self.world.state.holds.values())
            self.world.apply(plan_storage_class(self.world.head, before, after, holds, at=AT, due_at=DUE))

    def miss(self) -> None:
        """Record that something is missing."""
        first = Offset(self.rng.randrange(400))
        following, number = Offset(first + self.rng.randrange(1, 40)), next(self._names)
        new: Missing = Loss(first, following, f"lost {number}", AT)
        if self.rng.random() < 0.4:
            new = Quarantine(first, following, f"bad {number}", AT, f"quarantine/{number}", "etag")
        gaps = [
            gap
            for _, gap in sorted(self.world.state.gaps.items())
            if gap.first_offset < following and first < gap.next_offset
        ]
        assert len(gaps) <= MAX_GAPS
        change = plan_missing(self.world.head, new, list(self.world.state.missing.values()), gaps)
        if change is not None:
            self.world.apply(change)

    def give_up(self) -> None:
        """Give up a fragment."""
        log = self.world.log
        if len(log) < 2:
            return
        number = self.rng.randrange(len(log) - 1)
        change = plan_range_removal(
            self.world.head,
            log[number - 1] if number else None,
            log[number],
            log[number + 1],
            missing=list(self.world.state.missing.values()),
            holds=list(self.world.state.holds.values()),
            at=AT,
            due_at=DUE,
            reason="the object is gone",
            by=None,
        )
        self.world.apply(change)

    def repair(self) -> None:
        """Write a link anew, as it follows from the entries."""
        if self.world.log:
            one = self.rng.choice(self.world.log)
            link = Relink(EntryVersion.of(one), one.prior_offset, one.prior_timestamp, one.running_timestamp)
            self.world.apply(plan_items_repair(self.world.head, self.world.head, [link], AT, "a link"))


def _span(one: FragmentEntry) -> tuple[Offset, Offset]:
    return one.first_offset, one.next_offset


@pytest.fixture(autouse=True)
def _small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few entries are to take several changes."""
    monkeypatch.setattr(commit, "MAX_RELINKS", 4)
    monkeypatch.setattr(compaction, "FIRST_REMOVALS", 2)
    monkeypatch.setattr(compaction, "MAX_REMOVALS", 2)


def test_every_change_of_a_life_leaves_the_manifest_right() -> None:
    tried: Counter[str] = Counter()
    for seed in range(LIVES):
        life = Life(seed)
        try:
            life.run()
        except BaseException as err:
            err.add_note(f"life {seed}")
            raise
        tried += life.tried
    done = {
        "append", "commit", "compact", "finish", "remove", "put_hold", "release", "delete", "undelete", "purge",
        "fence", "discard", "erase", "move", "miss", "give_up", "repair", "sweep", "open", "recover", "close", "trim",
    }  # fmt: skip
    refused = {
        "commit BelowFloorError",
        "commit StaleGenerationError",
        "commit StreamDeletedError",
        "compact StreamDeletedError",
        "close ExpiredEpochError",
        "close StreamDeletedError",
        "delete HeldError",
        "erase HeldError",
        "open StreamClosedError",
        "open StreamDeletedError",
        "open StreamNotFoundError",
        "purge HeldError",
        "recover ExpiredEpochError",
        "remove HeldError",
        "remove LostRaceError",
        "trim ExpiredEpochError",
        "undelete NotDeletedError",
        "undelete PurgedError",
    }
    written = {kind.name for kind in JournalKind} - {
        "QUARANTINE_RELEASED",
        "QUARANTINE_DISCARDED",
        "FRAGMENTS_REBUILT",
        "GAPS_EXPLAINED",
    }
    done |= written
    assert done | refused <= tried.keys(), f"never tried: {sorted((done | refused) - tried.keys())}"
