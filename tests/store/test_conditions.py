"""Whatever a change was planned on has to be so still, item by item, on every implementation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from coldstream.errors import LostRaceError
from coldstream.manifest.change import (
    DeleteEntry,
    DeleteGap,
    DeleteHold,
    DeleteLoss,
    DeleteQuarantine,
    DeleteTombstone,
    EntryVersion,
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
from coldstream.manifest.commit import Neighbourhood, plan_commit
from coldstream.manifest.entry import Erasure, ErasureState, Gap, Head, Hold, Loss, Quarantine, Tombstone
from coldstream.store.ports import ManifestTable
from coldstream.store.sortkeys import missing_key
from coldstream.store.table import DynamoTable
from coldstream.units import Offset, TimestampMs
from tests.store.samples import NOW, ORDERS, entry
from tests.support.changes import change_to

LIFE = ORDERS.incarnation

GAP = Gap(Offset(20), Offset(30), "the disk was full")
UNTOLD = Gap(Offset(40), Offset(50))
LOSS = Loss(Offset(20), Offset(30), "the disk was full", NOW)
HOLD = Hold("case-7", Offset(0), None, "a lawsuit", "alice", NOW)
ERASURE = Erasure(
    id="erasure-1",
    first_offset=Offset(0),
    next_offset=Offset(60),
    where="true",
    reason="article 17",
    by="alice",
    at=NOW,
    messages=0,
    digest="",
    state=ErasureState.RUNNING,
    reached=Offset(10),
)
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
    explained = ReplaceGap(replace(GAP, reason=None), GAP)
    table.apply(
        change_to(head, (explained, PutLoss(LOSS), PutTombstone(GRAVE), PutHold(HOLD), PutErasure(None, ERASURE)))
    )
    head = replace(head, revision=head.revision + 1)
    table.apply(change_to(head, (PutQuarantine(BAD),)))
    log = table.log_from_offset(LIFE, Offset(0), 10).entries
    return replace(head, revision=head.revision + 1), [EntryVersion.of(one) for one in log]


def everything(table: ManifestTable) -> list[object]:
    graves = table.tombstones(LIFE, NOW, 10)
    log = table.log_from_offset(LIFE, Offset(0), 10)
    return [log, table.gaps(LIFE, 10), graves, list(table.rows(LIFE))]


Plan = Callable[[list[EntryVersion]], list[Write]]


def relink(version: EntryVersion) -> Relink:
    return Relink(version, Offset(5), TimestampMs(7), TimestampMs(1010))


HOLDS: dict[str, Plan] = {
    "a new entry": lambda _: [PutEntry(entry(60, 70))],
    "links": lambda log: [relink(log[1])],
    "links of the first": lambda log: [relink(log[0])],
    "a replaced entry": lambda log: [ReplaceEntry(log[1], entry(0, 20))],
    "a deleted entry": lambda log: [DeleteEntry(log[2])],
    "a deleted first entry": lambda log: [DeleteEntry(log[0])],
    "the same entries": lambda log: [RequireEntry(one) for one in log],
    "a new gap": lambda _: [PutGap(Gap(Offset(60), Offset(70)))],
    "a gap replaced": lambda _: [ReplaceGap(GAP, replace(GAP, next_offset=Offset(25)))],
    "a gap replaced, of any reason": lambda _: [ReplaceGap(replace(GAP, reason="x"), GAP)],
    "a gap deleted": lambda _: [DeleteGap(GAP)],
    "a gap deleted, of any reason": lambda _: [DeleteGap(replace(GAP, reason=None))],
    "the same gap": lambda _: [RequireGap(GAP)],
    "the same gap, without a reason": lambda _: [RequireGap(UNTOLD)],
    "another loss": lambda _: [PutLoss(replace(LOSS, next_offset=Offset(31)))],
    "another segment in quarantine": lambda _: [PutQuarantine(replace(BAD, next_offset=Offset(51)))],
    "a second copy in quarantine": lambda _: [PutQuarantine(replace(BAD, key="y", copies=2))],
    "a deleted loss": lambda _: [DeleteLoss(replace(LOSS, reason="x"))],
    "a deleted quarantine": lambda _: [DeleteQuarantine(BAD)],
    "another hold": lambda _: [PutHold(replace(HOLD, id="case-8"))],
    "a deleted hold": lambda _: [DeleteHold(HOLD)],
    "another erasure": lambda _: [PutErasure(None, replace(ERASURE, id="erasure-2"))],
    "an erasure that goes on": lambda _: [PutErasure(ERASURE, replace(ERASURE, reached=Offset(20)))],
    "a deleted tombstone": lambda _: [DeleteTombstone(GRAVE)],
}

FAILS: dict[str, Plan] = {
    "a new entry where one is": lambda _: [PutEntry(entry(52, 60))],
    "links of another prior offset": lambda log: [relink(replace(log[1], prior_offset=Offset(9)))],
    "links of another prior timestamp": lambda log: [relink(replace(log[1], prior_timestamp=TimestampMs(999)))],
    "links of another object": lambda log: [relink(replace(log[1], key="data/y"))],
    "links of one that was first": lambda log: [relink(replace(log[1], prior_offset=None, prior_timestamp=None))],
    "links of one that is first now": lambda log: [relink(replace(log[0], prior_offset=Offset(0)))],
    "links of one that is gone": lambda log: [relink(replace(log[1], next_offset=Offset(15)))],
    "another entry replaced": lambda log: [ReplaceEntry(replace(log[1], key="data/y"), entry(0, 20))],
    "another entry deleted": lambda log: [DeleteEntry(replace(log[2], prior_timestamp=TimestampMs(1)))],
    "one of the entries another": lambda log: [RequireEntry(log[0]), RequireEntry(replace(log[3], key="data/y"))],
    "one of the entries gone": lambda log: [
        RequireEntry(log[0]),
        RequireEntry(replace(log[3], next_offset=Offset(70))),
    ],
    "a new gap where one is": lambda _: [PutGap(Gap(Offset(20), Offset(25)))],
    "a longer gap replaced": lambda _: [ReplaceGap(replace(GAP, next_offset=Offset(35)), GAP)],
    "a gap replaced that is gone": lambda _: [
        ReplaceGap(Gap(Offset(10), Offset(20)), Gap(Offset(10), Offset(15))),
    ],
    "a longer gap deleted": lambda _: [DeleteGap(replace(GAP, next_offset=Offset(35)))],
    "a gap deleted that is gone": lambda _: [DeleteGap(Gap(Offset(10), Offset(20)))],
    "the same gap, longer": lambda _: [RequireGap(replace(GAP, next_offset=Offset(35)))],
    "the same gap, of another reason": lambda _: [RequireGap(replace(GAP, reason="x"))],
    "the same gap, not told yet": lambda _: [RequireGap(replace(GAP, reason=None))],
    "the same gap, told already": lambda _: [RequireGap(replace(UNTOLD, reason="x"))],
    "the same gap, gone": lambda _: [RequireGap(Gap(Offset(10), Offset(20)))],
    "a loss that is there": lambda _: [PutLoss(replace(LOSS, reason="x"))],
    "a first copy in quarantine that is there": lambda _: [PutQuarantine(replace(BAD, key="y"))],
    "a third copy in quarantine before the second": lambda _: [PutQuarantine(replace(BAD, copies=3))],
    "a second copy in quarantine before the first": lambda _: [
        PutQuarantine(replace(BAD, next_offset=Offset(51), copies=2)),
    ],
    "a deleted loss that is gone": lambda _: [DeleteLoss(replace(LOSS, next_offset=Offset(31)))],
    "a deleted quarantine of another key": lambda _: [DeleteQuarantine(replace(BAD, key="y"))],
    "a deleted quarantine that is gone": lambda _: [DeleteQuarantine(replace(BAD, next_offset=Offset(51)))],
    "a hold that is there": lambda _: [PutHold(replace(HOLD, first_offset=Offset(5)))],
    "a deleted hold that is gone": lambda _: [DeleteHold(replace(HOLD, id="case-8"))],
    "an erasure that is there": lambda _: [PutErasure(None, ERASURE)],
    "an erasure that is not there": lambda _: [
        PutErasure(replace(ERASURE, id="erasure-2"), replace(ERASURE, id="erasure-2")),
    ],
    "an erasure that went on": lambda _: [PutErasure(replace(ERASURE, reached=Offset(5)), ERASURE)],
    "an erasure that is done": lambda _: [PutErasure(replace(ERASURE, state=ErasureState.DONE), ERASURE)],
    "a deleted tombstone that is gone": lambda _: [DeleteTombstone(replace(GRAVE, key="data/y"))],
    "a deleted tombstone that takes all versions by now": lambda _: [
        DeleteTombstone(replace(GRAVE, all_versions=not GRAVE.all_versions))
    ],
}


@pytest.mark.parametrize("what", HOLDS)
def test_what_is_as_it_was_planned_on_is_changed(table: ManifestTable, what: str) -> None:
    head, log = filled(table)
    table.apply(change_to(head, tuple(HOLDS[what](log))))
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
    dynamo_table.apply(change_to(head, (PutQuarantine(again),)))
    assert list(dynamo_table.missing(LIFE)) == [LOSS, again]


def test_what_is_not_as_it_was_planned_on_is_refused_as_a_whole(table: ManifestTable) -> None:
    head, log = filled(table)
    before = everything(table)
    marker = Tombstone("data/marker", NOW, Offset(0), Offset(1), 1)
    later = replace(head, revision=head.revision + 1)
    changes = {what: change_to(head, (*plan(log), PutTombstone(marker))) for what, plan in FAILS.items()}
    changes["another revision"] = change_to(later, (relink(log[1]), PutTombstone(marker)))
    for what, change in changes.items():
        try:
            table.apply(change)
        except LostRaceError:
            assert everything(table) == before, what
        else:
            pytest.fail(f"{what}: was not refused")
