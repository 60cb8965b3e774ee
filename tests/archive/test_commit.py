"""Commits to one stream by several writers at once."""

from __future__ import annotations

import pytest

from coldstream.archive.commit import commit_fragment
from coldstream.errors import OverlapError
from coldstream.manifest.change import Change, Relink
from coldstream.manifest.entry import FragmentEntry
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset
from tests.store.samples import NOW, ORDERS, entry


def commit(table: MemoryTable, *entries: FragmentEntry) -> None:
    for new in entries:
        assert commit_fragment(table, ORDERS, new, lambda: NOW)


@pytest.mark.usefixtures("small_transactions")
def test_an_append_while_a_late_entry_raises_its_successors_ends_in_the_same_log() -> None:
    class Busy(MemoryTable):
        """Commits another writer's entry right after the first change that only gives new links."""

        def apply(self, change: Change) -> None:
            super().apply(change)
            if change.of(Relink) and change.new_entry is None and self.meanwhile:
                commit(self, self.meanwhile.pop())

        def __init__(self, *meanwhile: FragmentEntry) -> None:
            super().__init__()
            self.meanwhile = list(meanwhile)

    first, late, last = entry(0, 10, time=1), entry(10, 20, time=1000), entry(400, 410, time=40)
    after = [entry(number * 10, number * 10 + 10, time=number) for number in range(2, 40)]
    busy, in_order = Busy(last), MemoryTable()
    commit(busy, first, *after, late)
    commit(in_order, first, late, *after, last)
    assert busy.meanwhile == []
    found = busy.log_from_offset(ORDERS.incarnation, Offset(0), 100).entries
    assert found == in_order.log_from_offset(ORDERS.incarnation, Offset(0), 100).entries
    running = [each.running_timestamp for each in found]
    assert running == sorted(running)


def test_a_late_entry_reads_the_log_after_it_once() -> None:
    table = MemoryTable()
    commit(table, entry(0, 10, time=1))
    commit(table, *(entry(number * 10, number * 10 + 10, time=number) for number in range(2, 402)))
    table.requests.clear()
    commit(table, entry(10, 20, time=1000))
    assert table.requests["Query"] <= 400 / 16 + 3
    assert table.requests["TransactWriteItems"] <= 400 / 99 + 2


def test_a_fragment_that_the_log_holds_in_part_is_refused_at_once() -> None:
    table = MemoryTable()
    commit(table, entry(10, 20))
    table.requests.clear()
    for new in (entry(0, 15), entry(15, 30), entry(5, 25)):
        with pytest.raises(OverlapError, match=r"overlaps that of an entry, 10 to 19"):
            commit(table, new)
    assert table.requests["TransactWriteItems"] == 0
    assert table.requests.total() <= 5 * 3
