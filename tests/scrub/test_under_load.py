"""No false alarm: between every two requests of a scrub others write, and what they write shows by halves."""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from typing import Any

import pytest

from coldstream.archive.commit import commit_fragment
from coldstream.archive.missing import record_missing
from coldstream.errors import ColdstreamError
from coldstream.manifest.compaction import MAX_SWEPT, plan_sweep
from coldstream.manifest.entry import Encoding, FragmentEntry, Hold, Loss, Quarantine, StorageClass
from coldstream.manifest.groups import Group
from coldstream.manifest.holding import held, plan_hold, plan_release
from coldstream.manifest.removal import plan_prefix_removal
from coldstream.manifest.storage_class import in_class, plan_storage_class
from coldstream.scrub.budget import Budget
from coldstream.scrub.run import Scrubber, ScrubOptions
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.memory.visibility import SeededVisibility
from coldstream.units import MAX_TIMESTAMP_MS, Offset, TimestampMs
from tests.support.archive import NOW, ChunkArchive, Spec
from tests.support.compacting import Calls
from tests.support.compaction import Compaction

SEEDS = int(os.environ.get("COLDSTREAM_SCRUB_SEEDS", "24"))
FIRST_SEED = int(os.environ.get("COLDSTREAM_FIRST_SEED", "0"))

FOR_EVER = TimestampMs(MAX_TIMESTAMP_MS - 1)


class Others:
    """Everybody else who writes to the archive, by chance."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.rate = self.rng.choice([0.03, 0.1, 0.5])
        self.archive = ChunkArchive(objects=MemoryObjects(clock=lambda: NOW))
        self.archive.table = MemoryTable(SeededVisibility(seed, newest=self.rng.choice([0.2, 0.5, 0.8])))
        self.incarnation = self.archive.stream.incarnation
        self.next_offset = 0
        self.time = 1000
        self.names = iter(range(1_000_000))
        self.held_back: list[FragmentEntry] = []
        self.steps: Any = iter(())
        self.control = ControlObjects(self.archive.objects, Keys())
        self.control.write_stream(self.archive.stream)
        for _ in range(self.rng.randrange(3, 8)):
            self.append()
        self.archive.table.settle()

    @property
    def table(self) -> MemoryTable:
        return self.archive.table

    def act(self) -> None:
        """Do something, or nothing; to lose a race is no harm."""
        if self.rng.random() >= self.rate:
            return
        if self.rng.random() < 0.5:
            self.table.settle()
        works = [self.append, self.append_late, self.compact, self.go_on, self.retain, self.sweep, self.lose]
        with suppress(ColdstreamError, ValueError, IndexError):  # the last two: plans on what half shows
            self.rng.choice([*works, self.hold, self.move, self.quarantine])()

    def log(self) -> tuple[FragmentEntry, ...]:
        return self.table.log_from_offset(self.incarnation, Offset(0), 1000).entries

    def head(self) -> Any:
        return self.table.head(self.incarnation)

    def append(self) -> None:
        specs = [Spec(self.rng.randrange(1, 4), self._tick()) for _ in range(self.rng.randrange(1, 4))]
        head = self.head()
        generation = 0 if head is None else head.generation
        entry = self.archive.put(self.next_offset, specs, generation=generation)
        self.next_offset = entry.next_offset + (3 if self.rng.random() < 0.2 else 0)
        if self.rng.random() < 0.2:
            self.held_back.append(entry)
        else:
            commit_fragment(self.table, self.archive.stream, entry, lambda: NOW)

    def append_late(self) -> None:
        if self.held_back:
            late = self.held_back.pop(self.rng.randrange(len(self.held_back)))
            commit_fragment(self.table, self.archive.stream, late, lambda: NOW)

    def compact(self) -> None:
        log = self.log()
        at = self.rng.randrange(max(1, len(log)))
        group = Group(log[at : at + self.rng.randrange(1, 4)])
        compaction = Compaction(self.archive)
        merged = compaction.store(group, self.rng.choice(list(Encoding)))
        self.steps = compaction.replace(group, merged)
        self.go_on()

    def go_on(self) -> None:
        if self.rng.random() < 0.3:
            self.steps = Compaction(self.archive).finish()
        next(self.steps, None)

    def retain(self) -> None:
        log = self.log()
        count = self.rng.randrange(1, 3)
        removed, following = log[:count], next(iter(log[count:]), None)
        gaps = self.table.gaps(self.incarnation, 100)
        holds = self.table.holds(self.incarnation)
        head = self.head()
        change = plan_prefix_removal(
            head, removed, following, gaps, holds, at=NOW, due_at=TimestampMs(NOW + 5), why="retention", by="policy"
        )
        self.table.apply(change)
        if self.rng.random() < 0.8:
            self.control.write_floor(change.head)

    def sweep(self) -> None:
        due = self.table.tombstones(self.incarnation, FOR_EVER, MAX_SWEPT)
        for one in due:
            (*_, entry) = self.table.log_from_offset(self.incarnation, Offset(one.next_offset - 1), 1).entries or (
                None,
            )
            if entry is None or entry.key != one.key:
                self.archive.objects.delete(one.key)
        if due:
            self.table.apply(plan_sweep(self.head(), due, at=NOW))

    def lose(self) -> None:
        first = self.rng.randrange(self.next_offset + 5)
        loss = Loss(Offset(first), Offset(first + self.rng.randrange(1, 9)), f"lost {next(self.names)}", NOW)
        self.control.write_loss(self.incarnation, loss)  # before its change: what protects comes first
        record_missing(self.table, self.archive.stream, loss)

    def quarantine(self) -> None:
        key = f"quarantine/{next(self.names)}"
        self.archive.objects.put(key, b"bad")
        first = self.rng.randrange(self.next_offset + 5)
        note = f'{{"first_offset": {first}, "next_offset": {first + 5}, "etag": "e"}}'
        self.archive.objects.put(f"{key}.json", note.encode())  # before the record, as the upload function does
        record_missing(
            self.table, self.archive.stream, Quarantine(Offset(first), Offset(first + 5), "bad", NOW, key, "e")
        )

    def hold(self) -> None:
        holds = self.table.holds(self.incarnation)
        if holds and self.rng.random() < 0.7:
            self.table.apply(plan_release(self.head(), holds[0], NOW, "counsel"))
        else:
            one = Hold(f"hold-{next(self.names)}", Offset(self.next_offset), None, "case", "counsel", NOW)
            self.control.write_hold(self.incarnation, one)
            self.table.apply(plan_hold(self.head(), one))

    def move(self) -> None:
        entry = self.rng.choice(self.log())
        info = self.archive.objects.info(entry.key)
        generation = max(self.head().generation, entry.generation + 1)
        key = Keys().fragment(self.incarnation, entry.first_offset, generation)
        if info is not None and self.archive.objects.info(key) is None:
            self.archive.objects.copy_in_class(entry.key, key, "GLACIER_IR", if_match=info.etag)
            holds = self.table.holds(self.incarnation)
            if self.rng.random() < 0.8 and held(holds, entry.first_offset, entry.next_offset) is None:
                after = in_class(entry, key, generation, StorageClass.GLACIER_IR)
                self.table.apply(plan_storage_class(self.head(), entry, after, holds, at=NOW, due_at=NOW))

    def _tick(self) -> int:
        self.time += self.rng.choice([0, 1, 5, -9])
        return self.time


@pytest.fixture(autouse=True)
def _without_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_a_healthy_archive_under_load_raises_no_alarm(seed: int) -> None:
    others = Others(seed)
    calls = Calls(others.table, others.archive.objects, lambda _, __, is_done: None if is_done else others.act())
    scrubber = Scrubber(calls.table, calls.objects, Keys(), lambda: NOW, pause=lambda _: None)
    for _ in range(3):
        report = scrubber.run(None, ScrubOptions(deep=seed % 2 == 0), Budget(requests=150))
        assert report.findings == ()
        if report.is_complete:
            break


def test_what_a_quiet_moment_shows_is_settled() -> None:
    """So the others' silence is what makes the difference, and not that nothing is looked at."""
    settled = 0
    for seed in range(8):
        others = Others(seed)
        others.rate = 0.5
        for _ in range(10):
            others.act()
        others.table.settle()
        list(Compaction(others.archive).finish())
        others.table.settle()
        scrubber = Scrubber(others.table, others.archive.objects, Keys(), lambda: NOW, pause=lambda _: None)
        report = scrubber.run(None, ScrubOptions(), Budget())
        assert report.findings == ()
        assert report.is_complete
        settled += report.position.unsettled == 0
    assert settled == 8
