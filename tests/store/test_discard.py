"""Objects that were never committed: a tombstone and a fence, unless an entry names them after all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.archive.commit import commit_fragment
from coldstream.errors import StaleGenerationError
from coldstream.manifest.change import Change
from coldstream.store.discard import MAX_DISCARDED, discard
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.store.memory.table import MemoryTable
from coldstream.units import MAX_TIMESTAMP_MS, TimestampMs
from tests.store.samples import NOW, ORDERS, entry
from tests.support.removing import delete, head_of, remove_prefix

INCARNATION = ORDERS.incarnation
FOR_EVER = TimestampMs(MAX_TIMESTAMP_MS)


@pytest.fixture(autouse=True)
def _without_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.store.races.FIRST_DELAY_S", 0)


@pytest.fixture
def table() -> MemoryTable:
    table = MemoryTable()
    for first in (0, 20):
        assert commit_fragment(table, ORDERS, entry(first, first + 10), lambda: NOW)
    return table


@pytest.mark.parametrize("first", [0, 5, 10, 12, 20, 30, 45])
def test_an_object_that_no_entry_names_gets_a_tombstone_and_can_never_be_committed(
    table: MemoryTable, first: int
) -> None:
    orphan = replace(entry(first, first + 5), key="orphan", generation=3)
    assert discard(table, INCARNATION, [orphan], lambda: NOW) == 1
    (tombstone,) = table.tombstones(INCARNATION, FOR_EVER, 10)
    assert (tombstone.key, tombstone.due_at) == ("orphan", NOW + LONGEST_GRACE_MS)
    assert head_of(table, INCARNATION).generation == 4
    if first in {10, 12, 30, 45}:
        with pytest.raises(StaleGenerationError):
            commit_fragment(table, ORDERS, orphan, lambda: NOW)


def test_an_object_that_an_entry_names_is_left_alone(table: MemoryTable) -> None:
    before = head_of(table, INCARNATION)
    assert discard(table, INCARNATION, [entry(0, 10), entry(20, 30)], lambda: NOW) == 0
    assert head_of(table, INCARNATION) == before


def test_an_entry_that_comes_between_the_look_and_the_tombstone_is_seen(table: MemoryTable) -> None:
    orphan = entry(10, 20)

    class Between(MemoryTable):
        is_first = True

        def apply(self, change: Change) -> None:
            if self.is_first:
                self.is_first = False
                assert commit_fragment(self, ORDERS, orphan, lambda: NOW)
            super().apply(change)

    raced = Between()
    raced.is_first = False
    for first in (0, 20):
        assert commit_fragment(raced, ORDERS, entry(first, first + 10), lambda: NOW)
    raced.is_first = True
    assert discard(raced, INCARNATION, [orphan], lambda: NOW) == 0
    assert not raced.tombstones(INCARNATION, FOR_EVER, 10)


def test_objects_of_a_deleted_stream_and_of_one_that_lost_all_entries_are_discarded(table: MemoryTable) -> None:
    remove_prefix(table, INCARNATION, 2)
    assert discard(table, INCARNATION, [replace(entry(4, 9), key="below")], lambda: NOW) == 1
    delete(table, INCARNATION)
    assert discard(table, INCARNATION, [replace(entry(40, 49), key="late")], lambda: NOW) == 1
    assert {"below", "late"} <= {one.key for one in table.tombstones(INCARNATION, FOR_EVER, 10)}


def test_more_objects_than_a_change_takes_are_discarded_in_several(table: MemoryTable) -> None:
    orphans = [replace(entry(first, first + 1), key=f"orphan-{first}") for first in range(100, 100 + MAX_DISCARDED + 1)]
    assert discard(table, INCARNATION, orphans, lambda: NOW) == len(orphans)
    assert len(table.tombstones(INCARNATION, FOR_EVER, 1000)) == len(orphans)


def test_a_stream_without_a_head_has_nothing_to_discard() -> None:
    assert discard(MemoryTable(), INCARNATION, [entry(0, 10)], lambda: NOW) == 0
