"""Whatever a change was planned on has to be so still, item by item, on every implementation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from coldstream.errors import LostRaceError
from coldstream.manifest.change import Change, EntryVersion, GapChange, Relink
from coldstream.manifest.commit import Neighbourhood, plan_commit
from coldstream.manifest.entry import Gap, Head, JournalEvent, JournalKind, Loss, Quarantine, Tombstone
from coldstream.store.ports import ManifestTable
from coldstream.store.sortkeys import missing_key
from coldstream.store.table import DynamoTable
from coldstream.units import Offset, TimestampMs
from tests.store.samples import NOW, ORDERS, entry

LIFE = ORDERS.incarnation

GAP = Gap(Offset(20), Offset(30), "the disk was full")
UNTOLD = Gap(Offset(40), Offset(50))
LOSS = Loss(Offset(20), Offset(30), "the disk was full", NOW)
BAD = Quarantine(Offset(40), Offset(50), "bad CRC", NOW, "quarantine/x", '"etag"')
GRAVE = Tombstone("data/x", NOW, Offset(0), Offset(10), 1082)


def filled(table: ManifestTable) -> tuple[Head, list[EntryVersion]]:
    """Write entries from 0 to 20, 30 to 40 and 50 to 60, and one of each other item."""
    head = Head(ORDERS)
    for first in (0, 10, 30, 50):
        change = plan_commit(Neighbourhood(head), entry(first, first + 10, time=1000 + first), NOW)
        table.apply(change)
        head = change.head
    head = replace(head, revision=head.revision + 1)
    told = GapChange(replace(GAP, reason=None), GAP)
    table.apply(Change(head, gaps=(told,), put_missing=LOSS, put_tombstones=(GRAVE,)))
    head = replace(head, revision=head.revision + 1)
    table.apply(Change(head, put_missing=BAD))
    log = table.log_from_offset(LIFE, Offset(0), 10).entries
    return replace(head, revision=head.revision + 1), [EntryVersion.of(one) for one in log]


def everything(table: ManifestTable) -> list[object]:
    graves = table.tombstones(LIFE, NOW, 10)
    log = table.log_from_offset(LIFE, Offset(0), 10)
    return [log, table.gaps(LIFE, 10), list(table.missing(LIFE)), graves, list(table.journal(LIFE))]


Planned = Callable[[Head, list[EntryVersion]], Change]


def relink(version: EntryVersion) -> tuple[Relink, ...]:
    return (Relink(version, Offset(5), TimestampMs(7), TimestampMs(1010)),)


def as_told(gap: Gap) -> tuple[GapChange, ...]:
    return (GapChange(gap, gap),)


HOLDS: dict[str, Planned] = {
    "a new entry": lambda head, _: Change(head, put_entry=entry(60, 70)),
    "links": lambda head, log: Change(head, relinks=relink(log[1])),
    "links of the first": lambda head, log: Change(head, relinks=relink(log[0])),
    "a replaced entry": lambda head, log: Change(head, replace_entry=entry(0, 20), replaces=log[1]),
    "a deleted entry": lambda head, log: Change(head, delete_entries=(log[2],)),
    "a deleted first entry": lambda head, log: Change(head, delete_entries=(log[0],)),
    "the same entries": lambda head, log: Change(head, same_entries=tuple(log)),
    "a new gap": lambda head, _: Change(head, gaps=(GapChange(None, Gap(Offset(60), Offset(70))),)),
    "a gap replaced": lambda head, _: Change(head, gaps=(GapChange(GAP, replace(GAP, next_offset=Offset(25))),)),
    "a gap replaced, of any reason": lambda head, _: Change(head, gaps=(GapChange(replace(GAP, reason="x"), GAP),)),
    "a gap deleted": lambda head, _: Change(head, gaps=(GapChange(GAP, None),)),
    "a gap deleted, of any reason": lambda head, _: Change(head, gaps=(GapChange(replace(GAP, reason=None), None),)),
    "the same gap": lambda head, _: Change(head, gaps=as_told(GAP)),
    "the same gap, without a reason": lambda head, _: Change(head, gaps=as_told(UNTOLD)),
    "another loss": lambda head, _: Change(head, put_missing=replace(LOSS, next_offset=Offset(31))),
    "another segment in quarantine": lambda head, _: Change(head, put_missing=replace(BAD, next_offset=Offset(51))),
    "a second copy in quarantine": lambda head, _: Change(head, put_missing=replace(BAD, key="y", copies=2)),
    "a tombstone gone": lambda head, _: Change(head, delete_tombstones=(GRAVE,)),
}

FAILS: dict[str, Planned] = {
    "another revision": lambda head, log: Change(replace(head, revision=head.revision + 1), relinks=relink(log[1])),
    "a new entry where one is": lambda head, _: Change(head, put_entry=entry(52, 60)),
    "links of another prior offset": lambda head, log: Change(
        head, relinks=relink(replace(log[1], prior_offset=Offset(9)))
    ),
    "links of another prior timestamp": lambda head, log: Change(
        head, relinks=relink(replace(log[1], prior_timestamp=TimestampMs(999)))
    ),
    "links of another object": lambda head, log: Change(head, relinks=relink(replace(log[1], key="data/y"))),
    "links of one that was first": lambda head, log: Change(
        head, relinks=relink(replace(log[1], prior_offset=None, prior_timestamp=None))
    ),
    "links of one that is first now": lambda head, log: Change(
        head, relinks=relink(replace(log[0], prior_offset=Offset(0)))
    ),
    "links of one that is gone": lambda head, log: Change(
        head, relinks=relink(replace(log[1], next_offset=Offset(15)))
    ),
    "another entry replaced": lambda head, log: Change(
        head, replace_entry=entry(0, 20), replaces=replace(log[1], key="data/y")
    ),
    "another entry deleted": lambda head, log: Change(
        head, delete_entries=(replace(log[2], prior_timestamp=TimestampMs(1)),)
    ),
    "one of the entries another": lambda head, log: Change(head, same_entries=(log[0], replace(log[3], key="data/y"))),
    "one of the entries gone": lambda head, log: Change(
        head, same_entries=(log[0], replace(log[3], next_offset=Offset(70)))
    ),
    "a new gap where one is": lambda head, _: Change(head, gaps=(GapChange(None, Gap(Offset(20), Offset(25))),)),
    "a longer gap replaced": lambda head, _: Change(head, gaps=(GapChange(replace(GAP, next_offset=Offset(35)), GAP),)),
    "a gap replaced that is gone": lambda head, _: Change(
        head, gaps=(GapChange(Gap(Offset(10), Offset(20)), Gap(Offset(10), Offset(15))),)
    ),
    "a longer gap deleted": lambda head, _: Change(head, gaps=(GapChange(replace(GAP, next_offset=Offset(35)), None),)),
    "a gap deleted that is gone": lambda head, _: Change(head, gaps=(GapChange(Gap(Offset(10), Offset(20)), None),)),
    "the same gap, longer": lambda head, _: Change(head, gaps=as_told(replace(GAP, next_offset=Offset(35)))),
    "the same gap, of another reason": lambda head, _: Change(head, gaps=as_told(replace(GAP, reason="x"))),
    "the same gap, not told yet": lambda head, _: Change(head, gaps=as_told(replace(GAP, reason=None))),
    "the same gap, told already": lambda head, _: Change(head, gaps=as_told(replace(UNTOLD, reason="x"))),
    "the same gap, gone": lambda head, _: Change(head, gaps=as_told(Gap(Offset(10), Offset(20)))),
    "a loss that is there": lambda head, _: Change(head, put_missing=replace(LOSS, reason="x")),
    "a first copy in quarantine that is there": lambda head, _: Change(head, put_missing=replace(BAD, key="y")),
    "a third copy in quarantine before the second": lambda head, _: Change(head, put_missing=replace(BAD, copies=3)),
    "a second copy in quarantine before the first": lambda head, _: Change(
        head, put_missing=replace(BAD, next_offset=Offset(51), copies=2)
    ),
    "a tombstone gone that is gone": lambda head, _: Change(head, delete_tombstones=(replace(GRAVE, key="data/y"),)),
    "an event that is there": lambda head, _: Change(
        head, JournalEvent(2, JournalKind.FRAGMENT_COMMITTED, NOW, Offset(0), Offset(1))
    ),
}


@pytest.mark.parametrize("what", HOLDS)
def test_what_is_as_it_was_planned_on_is_changed(table: ManifestTable, what: str) -> None:
    head, log = filled(table)
    table.apply(HOLDS[what](head, log))
    assert table.head(LIFE) == head


def test_a_second_copy_takes_the_place_of_one_from_before_copies_were_counted(
    dynamo_table: DynamoTable, dynamodb: Any
) -> None:
    head, _ = filled(dynamo_table)
    key = {"stream": {"S": LIFE}, "item": {"S": missing_key(BAD)}}
    name = dynamo_table._item.Meta.table_name
    dynamodb.update_item(TableName=name, Key=key, UpdateExpression="REMOVE copies")
    assert list(dynamo_table.missing(LIFE)) == [LOSS, BAD]
    again = replace(BAD, key="y", copies=2)
    dynamo_table.apply(Change(head, put_missing=again))
    assert list(dynamo_table.missing(LIFE)) == [LOSS, again]


def test_what_is_not_as_it_was_planned_on_is_refused_as_a_whole(table: ManifestTable) -> None:
    head, log = filled(table)
    before = everything(table)
    marker = Tombstone("data/marker", NOW, Offset(0), Offset(1), 1)
    for what, plan in FAILS.items():
        change = plan(head, log)
        try:
            table.apply(replace(change, put_tombstones=(marker,)))
        except LostRaceError:
            assert everything(table) == before, what
        else:
            pytest.fail(f"{what}: was not refused")
