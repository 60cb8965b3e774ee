"""Garbage runs while others write, and reads show halves of what they write: nothing that is named is ever deleted.

Objects here are all old: age protects none of them, only the proof does.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest

from coldstream.errors import LostRaceError, StaleGenerationError
from coldstream.garbage.kinds import DAY_MS
from coldstream.garbage.run import GarbageCollector
from coldstream.manifest.change import Change
from coldstream.manifest.commit import Neighbourhood, plan_commit
from coldstream.manifest.compaction import Unfinished, plan_removal, plan_replacement
from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.manifest.groups import Group
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset, TimestampMs
from tests.garbage.littered import DELETE, START
from tests.store.samples import ORDERS, entry

LIFE = ORDERS.incarnation
KEYS = Keys()
LATER = TimestampMs(START + 1000 * DAY_MS)
DUE = TimestampMs(LATER + 1000 * DAY_MS)


class Restless:
    """A table whose every read may find another change written meanwhile, and any of them shown by half.

    `truth` has the same changes, all of them shown. Writers plan on it; garbage reads the weak one.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._busy = False
        self.truth = MemoryTable()
        self.table = _Mirrored(self, self.truth)
        self.objects = MemoryObjects(clock=lambda: START)
        self._stalled: list[FragmentEntry] = []
        self._merged: tuple[Group, FragmentEntry] | None = None
        self._next = 0
        for _ in range(12):
            self.write(self._archive)
            self.table.settle()

    def pick(self, _: str, states: int) -> int:
        """Have somebody write, now and then, and show an item old or new."""
        if not self._busy and self._rng.random() < 0.1:
            self.write()
        return states - 1 if states == 1 or self._rng.random() < 0.5 else self._rng.randrange(states - 1)

    def write(self, step: Callable[[], None] | None = None) -> None:
        """Have one of the writers do a step, any by default; one that loses a race changes nothing."""
        steps = (self._archive, self._put, self._wake, self._merge, self._replace, self._remove)
        self._busy = True
        try:
            with suppress(LostRaceError):
                (step or self._rng.choice(steps))()
        finally:
            self._busy = False

    def _archive(self) -> None:
        """Put the next fragment and commit it at once."""
        self._put()
        self._commit(self._stalled.pop())

    def _put(self) -> None:
        """Put the next fragment, and fall asleep before its commit."""
        generation = self._head().generation
        first = Offset(self._next)
        self._next += 10
        new = replace(entry(first, first + 10), key=KEYS.fragment(LIFE, first, generation), generation=generation)
        self.objects.put(new.key, bytes(100))
        self._stalled.append(new)

    def _wake(self) -> None:
        """Wake a creator that sleeps; refused, it puts its bytes again."""
        if self._stalled:
            self._commit(self._stalled.pop(self._rng.randrange(len(self._stalled))))

    def _commit(self, new: FragmentEntry) -> None:
        after = self.truth.log_from_offset(LIFE, new.first_offset, 1000).entries
        before = next(iter(self.truth.log_before(LIFE, new.first_offset, 1)), None)
        around = Neighbourhood(self._head(), before, after)
        try:
            change = plan_commit(around, new, LATER)
        except StaleGenerationError as err:
            key = KEYS.fragment(LIFE, new.first_offset, err.generation)
            self.objects.put(key, bytes(100))
            change = plan_commit(around, replace(new, key=key, generation=err.generation), LATER)
        try:
            self.table.apply(change)
        except LostRaceError:
            self._stalled.append(new)
            raise

    def _merge(self) -> None:
        """Write a merged object, and fall asleep before its commit."""
        log = self.truth.log_from_offset(LIFE, Offset(0), 1000).entries
        if self._merged is not None or self._head().compacting is not None or len(log) < 3:
            return
        start = self._rng.randrange(len(log) - 2)
        some = log[start : start + 3]
        if any(one.next_offset != other.first_offset for one, other in pairwise(some)):
            return
        generation = max(self._head().generation, 1 + max(one.generation for one in some))
        key = KEYS.fragment(LIFE, some[0].first_offset, generation)
        if key in self.objects.objects:
            return
        self.objects.put(key, bytes(100))
        group = Group(some)
        self._merged = group, group.merged(key=key, generation=generation, object_bytes=100, crc32=0)

    def _replace(self) -> None:
        """Commit the merged object, if its group is still there and nobody has fenced it."""
        if self._merged is None:
            return
        (group, merged), self._merged = self._merged, None
        log = self.truth.log_from_offset(LIFE, group.first_offset, 1000).entries
        log = tuple(one for one in log if one.next_offset <= group.next_offset)
        with suppress(StaleGenerationError):
            self.table.apply(plan_replacement(self._head(), log, group, merged, at=LATER, due_at=DUE))

    def _remove(self) -> None:
        """Go on with a compaction that is unfinished."""
        head = self._head()
        if head.compacting is None:
            return
        merged = self.truth.log_from_offset(LIFE, Offset(head.compacting - 1), 1).entries[0]
        unfinished = Unfinished.of(head, self.truth.log_from_offset(LIFE, merged.first_offset, 1000).entries)
        assert unfinished is not None
        self.table.apply(plan_removal(head, unfinished, at=LATER, due_at=DUE))

    def _head(self) -> Head:
        return self.truth.head(LIFE) or Head(ORDERS)


class _Mirrored(MemoryTable):
    """The weak table, which tells the strong one what was written."""

    def __init__(self, restless: Restless, truth: MemoryTable) -> None:
        super().__init__(restless)
        self._truth = truth

    def apply(self, change: Change) -> None:
        super().apply(change)
        self._truth.apply(change)


@pytest.fixture
def in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits between two attempts."""
    monkeypatch.setattr("time.sleep", lambda _: None)


@pytest.mark.usefixtures("in_no_time")
@pytest.mark.parametrize("seed", range(60))
def test_nothing_that_an_entry_or_a_tombstone_names_is_deleted(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.manifest.compaction.FIRST_REMOVALS", 1)
    monkeypatch.setattr("coldstream.manifest.compaction.MAX_REMOVALS", 1)
    monkeypatch.setattr("coldstream.garbage.log_names.FIRST_ENTRIES", 2)
    world = Restless(seed)
    collector = GarbageCollector(world.table, world.objects, KEYS, lambda: LATER)
    deleted = 0
    for _ in range(6):
        for _ in range(8):
            world.write()
        deleted += collector.run(DELETE).deletions.objects
        named = {one.key for one in world.truth.log_from_offset(LIFE, Offset(0), 1000).entries}
        named |= {one.key for one in world.truth.tombstones(LIFE, DUE, 1000)}
        assert named <= set(world.objects.objects)
    _SEEN.append(deleted)


_SEEN: list[int] = []


def test_these_worlds_have_garbage() -> None:
    """Otherwise the test above would pass without deleting anything."""
    assert not _SEEN or sum(_SEEN) > len(_SEEN)
