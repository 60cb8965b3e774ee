from __future__ import annotations

from dataclasses import replace

from coldstream.manifest.entry import Head, Loss, Tombstone
from coldstream.manifest.rebuilt import RebuiltEntry, plan_entries, plan_records
from coldstream.rebuild.compare import differences
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset, TimestampMs
from tests.rebuild.samples import entry_of
from tests.support.segments import START, STREAM


def table_of(*firsts: int, crc32: int = 0, generation: int = 0, due: int = 0, loss: str | None = None) -> MemoryTable:
    table = MemoryTable()
    records = [Tombstone("key", TimestampMs(due), Offset(0), Offset(1), 1)]
    change = plan_records(Head(STREAM, generation=generation), records, at=START)
    table.apply(change)
    head = change.head
    if loss is not None:
        change = plan_records(head, [Loss(Offset(1000), Offset(1001), loss, START)], at=START)
        table.apply(change)
        head = change.head
    entries = [RebuiltEntry(replace(entry_of(first), crc32=crc32)) for first in firsts]
    change, count = plan_entries(head, entries, (), at=START)
    assert count == len(entries)
    table.apply(change)
    return table


def compared(one: MemoryTable, other: MemoryTable) -> list[tuple[str, tuple[str, ...]]]:
    return [(found.item[:8], found.fields) for found in differences(one, other, STREAM.incarnation)]


def test_equal_tables_do_not_differ() -> None:
    assert compared(table_of(0, 10, 30), table_of(0, 10, 30)) == []


def test_a_field_that_differs_is_named() -> None:
    assert compared(table_of(0), table_of(0, crc32=7)) == [("log#0000", ("crc32",))]


def test_rows_that_only_one_table_has_are_told() -> None:
    found = list(differences(table_of(0, 10), table_of(0, 20), STREAM.incarnation))
    items = [(one.item, one.one is None, one.other is None) for one in found]
    assert items[0] == (f"log#{20:020}", False, True)
    assert items[1] == (f"log#{30:020}", True, False)
    assert [item[0] for item in items[2:]] == ["log#head", f"gap#{10:020}"]


def test_a_loss_with_another_reason_differs() -> None:
    ((item, fields),) = compared(table_of(0, loss="disk"), table_of(0, loss="retention"))
    assert (item, fields) == ("loss#000", ("reason",))


def test_due_times_and_a_higher_fence_are_no_differences() -> None:
    assert compared(table_of(0), table_of(0, generation=4, due=99)) == []
    assert compared(table_of(0, generation=4), table_of(0)) == [("log#head", ("generation",))]
