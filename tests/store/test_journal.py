"""The journal holds every change, and holds, erasures and rows come back, on every implementation of the table."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import islice
from typing import Any

import pytest
from botocore.client import BaseClient

from coldstream.errors import BadVersionError, CorruptionError, NotRecordedError
from coldstream.manifest.appender import Appender, Opening, WalKind, WalPlace
from coldstream.manifest.change import DeleteHold, PutErasure, PutHold, PutLoss, PutQuarantine, PutTombstone
from coldstream.manifest.deletion import plan_delete, plan_undelete
from coldstream.manifest.entry import (
    DeletionClaim,
    Erasure,
    ErasureState,
    Head,
    Hold,
    JournalEvent,
    JournalKind,
    Loss,
    Quarantine,
    Row,
    StorageClass,
    Tombstone,
)
from coldstream.manifest.fence import plan_fence
from coldstream.manifest.holding import plan_hold, plan_release
from coldstream.manifest.removal import plan_prefix_removal
from coldstream.manifest.state import replay
from coldstream.manifest.storage_class import in_class, plan_storage_class
from coldstream.store.ports import ManifestTable
from coldstream.store.sortkeys import LOG_HEAD, event_key, row_key
from coldstream.store.table import DynamoTable
from coldstream.units import MAX_OFFSET, Epoch, Offset, TimestampMs
from tests.store.samples import NOW, ORDERS, commit, entry
from tests.support.changes import change_to

LIFE = ORDERS.incarnation

APPENDER = Appender(Epoch(1), (Opening(Epoch(1), WalPlace(WalKind.S3, "host", 1)),), Offset(2), Offset(3))

HOLDS = (
    Hold("case-7", Offset(0), None, "ein Rechtsstreit: größer", "alice", NOW),
    Hold("ü/#", Offset(5), Offset(MAX_OFFSET + 1), "r", "b", TimestampMs(0)),
)
ERASURE = Erasure(
    id="erasure-1",
    first_offset=Offset(0),
    next_offset=Offset(10),
    where="key = 'größer'",
    reason="article 17",
    by="alice",
    at=NOW,
    messages=0,
    digest="",
    state=ErasureState.RUNNING,
    reached=Offset(0),
)


def head_of(table: ManifestTable) -> Head:
    head = table.head(LIFE)
    assert head is not None
    return head


def next_head(table: ManifestTable) -> Head:
    head = head_of(table)
    return replace(head, revision=head.revision + 1)


def lived(table: ManifestTable) -> None:
    """Let a stream have one of each kind of item, and lose some."""
    for first in (0, 10, 20, 40):
        commit(table, entry(first, first + 10))
    (last,) = table.log_end(LIFE, 1).entries
    moved = in_class(last, "moved", 1, StorageClass.GLACIER)
    table.apply(plan_storage_class(head_of(table), last, moved, (), at=NOW, due_at=NOW))
    for hold in HOLDS:
        table.apply(plan_hold(head_of(table), hold))
    for hold in HOLDS:
        table.apply(plan_release(head_of(table), hold, NOW, "bob"))
    log = table.log_from_offset(LIFE, Offset(0), 10).entries
    table.apply(
        plan_prefix_removal(
            head_of(table), log[:2], log[2], table.gaps(LIFE, 5), [], at=NOW, due_at=NOW, why="policy", by=None
        )
    )
    table.apply(plan_delete(head_of(table), NOW, TimestampMs(NOW + 5), "alice"))
    table.apply(plan_undelete(head_of(table), NOW, "alice"))
    table.apply(plan_hold(head_of(table), HOLDS[1]))
    loss = Loss(Offset(30), Offset(40), "full", NOW)
    bad = Quarantine(Offset(5), Offset(10), "bad", NOW, "quarantine/x", '"etag"', copies=1)
    head = replace(next_head(table), losses=1, quarantined=1, erasures=1)
    table.apply(change_to(head, [PutLoss(loss), PutQuarantine(bad), PutErasure(None, ERASURE)]))


def test_the_journal_replayed_gives_every_row_of_the_table(table: ManifestTable) -> None:
    lived(table)
    state = replay(table.recorded_changes(LIFE))
    items = (state.entries, state.gaps, state.missing, state.events, state.tombstones, state.holds, state.erasures)
    rows: list[Row] = [one for kind in items for one in kind.values()]  # type: ignore[attr-defined]
    assert state.head == table.head(LIFE)
    assert list(table.rows(LIFE)) == sorted([*rows, head_of(table)], key=row_key)
    assert {type(row) for row in rows} | {Head} == set(Row.__args__)


def test_recorded_changes_are_those_of_the_events_after_a_revision(table: ManifestTable) -> None:
    assert list(table.recorded_changes(LIFE)) == []
    lived(table)
    recorded = list(table.recorded_changes(LIFE))
    assert [event for event, _ in recorded] == list(table.journal(LIFE))
    assert [change.head.revision for _, change in recorded] == list(range(1, head_of(table).revision + 1))
    assert [event.kind for event, _ in recorded][4:6] == [JournalKind.STORAGE_CLASS_CHANGED, JournalKind.HOLD_PUT]
    assert list(table.recorded_changes(LIFE, 5)) == recorded[5:]
    assert {one.by for one, _ in recorded} == {None, "alice", "b", "bob"}


def test_rows_are_read_by_kind_and_from_after_a_key_on(table: ManifestTable) -> None:
    lived(table)
    rows = list(table.rows(LIFE))
    assert rows == sorted(rows, key=row_key)
    for kind in ("log#", "gap#", "event#", "hold#", "erasure#", "tombstone#", "loss#", "quarantine#", "log#head"):
        found = list(table.rows(LIFE, kind))
        assert found == [row for row in rows if row_key(row).startswith(kind)] != []
        assert list(table.rows(LIFE, kind, after=row_key(found[0]))) == found[1:]
    for number, row in enumerate(rows):
        assert next(table.rows(LIFE, after=row_key(row)), None) == (rows[number + 1] if rows[number + 1 :] else None)
    assert list(table.rows(LIFE, "comet#")) == []


@pytest.mark.parametrize("page_items", [1, 2, 3, 100])
def test_whatever_a_page_holds_all_rows_and_events_come(table: ManifestTable, page_items: int) -> None:
    lived(table)
    assert list(table.rows(LIFE, page_items=page_items)) == list(table.rows(LIFE))
    assert list(table.journal(LIFE, 1, page_items=page_items)) == list(table.journal(LIFE, 1))
    assert list(table.recorded_changes(LIFE, page_items=page_items)) == list(table.recorded_changes(LIFE))


def test_whoever_takes_the_first_page_pays_for_that_alone(
    dynamo_table: DynamoTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived(dynamo_table)
    counts = []
    original = BaseClient._make_api_call

    def call(client: BaseClient, operation: str, parameters: dict[str, Any]) -> Any:
        answer = original(client, operation, parameters)
        counts.extend([answer["Count"]] if operation == "Query" else [])
        return answer

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
    for found in (dynamo_table.rows, dynamo_table.journal, dynamo_table.recorded_changes):
        assert len(list(islice(found(LIFE, page_items=2), 2))) == 2
    assert counts == [2, 2, 2]


def test_holds_and_erasures_come_back_as_they_were_written(table: ManifestTable) -> None:
    assert (table.holds(LIFE), table.erasures(LIFE)) == ((), ())
    commit(table, entry(0, 10))
    for hold in HOLDS:
        table.apply(plan_hold(head_of(table), hold))
    table.apply(change_to(next_head(table), [PutErasure(None, ERASURE)]))
    assert table.holds(LIFE) == HOLDS
    assert table.erasures(LIFE) == (ERASURE,)
    done = replace(ERASURE, state=ErasureState.DONE, messages=5, digest="ab", reached=Offset(10))
    table.apply(change_to(next_head(table), [PutErasure(ERASURE, done), DeleteHold(HOLDS[0])]))
    assert table.holds(LIFE) == HOLDS[1:]
    assert table.erasures(LIFE) == (done,)


def test_a_head_comes_back_with_every_field(table: ManifestTable) -> None:
    numbers = iter(range(3, 100))
    given: dict[str, Any] = {
        field.name: next(numbers)
        for field in fields(Head)
        if field.name not in {"stream", "revision", "journal_from", "claims", "appender"}
    }
    claims = (DeletionClaim(1, Offset(2), Offset(5), NOW),)
    head = Head(ORDERS, revision=1, claims=claims, appender=APPENDER, **given)
    table.apply(change_to(head))
    assert table.head(LIFE) == head
    assert head.journal_from == 1


def test_an_entry_comes_back_with_its_storage_class_and_erased(table: ManifestTable) -> None:
    new = replace(entry(0, 10), storage_class=StorageClass.DEEP_ARCHIVE, erased=True)
    written = commit(table, new)
    assert table.log_from_offset(LIFE, Offset(0), 1).entries == (written,)
    assert written.erased


def test_an_event_of_the_whole_stream_has_no_offsets(table: ManifestTable) -> None:
    commit(table, entry(0, 10))
    table.apply(plan_fence(head_of(table), 3, NOW))
    assert list(table.journal(LIFE, 1)) == [JournalEvent(2, JournalKind.FENCE_RAISED, NOW, None, None, detail="3")]


def strip(dynamodb: Any, table: DynamoTable, key: str, attribute: str) -> None:
    dynamodb.update_item(
        TableName=table._item.Meta.table_name,
        Key={"stream": {"S": LIFE}, "item": {"S": key}},
        UpdateExpression="REMOVE #attribute",
        ExpressionAttributeNames={"#attribute": attribute},
    )


def test_a_head_of_an_earlier_release_does_not_know_since_when_changes_are_recorded(
    dynamo_table: DynamoTable, dynamodb: Any
) -> None:
    for first in (0, 10, 20):
        commit(dynamo_table, entry(first, first + 10))
    strip(dynamodb, dynamo_table, LOG_HEAD, "journal_from")
    for revision in (1, 2):
        strip(dynamodb, dynamo_table, event_key(revision), "change")
    assert head_of(dynamo_table).journal_from == 0
    with pytest.raises(NotRecordedError) as caught:
        replay(dynamo_table.recorded_changes(LIFE))
    assert (caught.value.revision, caught.value.since) == (1, 3)
    assert [event.revision for event, _ in dynamo_table.recorded_changes(LIFE, 2)] == [3]
    assert len(list(dynamo_table.journal(LIFE))) == 3
    commit(dynamo_table, entry(30, 40))
    assert head_of(dynamo_table).journal_from == 0
    strip(dynamodb, dynamo_table, event_key(3), "change")
    strip(dynamodb, dynamo_table, event_key(4), "change")
    with pytest.raises(NotRecordedError) as caught:
        list(dynamo_table.recorded_changes(LIFE))
    assert caught.value.since is None


def test_an_item_of_a_later_release_or_a_damaged_one_is_told(dynamo_table: DynamoTable, dynamodb: Any) -> None:
    commit(dynamo_table, entry(0, 10))
    dynamo_table.apply(
        change_to(next_head(dynamo_table), [PutHold(HOLDS[0]), PutErasure(None, ERASURE), PutTombstone(_grave())])
    )
    name = dynamo_table._item.Meta.table_name
    dynamodb.put_item(TableName=name, Item={"stream": {"S": LIFE}, "item": {"S": "comet#1"}})
    with pytest.raises(BadVersionError, match="comet"):
        list(dynamo_table.rows(LIFE))
    dynamodb.delete_item(TableName=name, Key={"stream": {"S": LIFE}, "item": {"S": "comet#1"}})
    for key, attribute in (("hold#case-7", "by"), ("erasure#erasure-1", "state"), (event_key(1), "kind")):
        strip(dynamodb, dynamo_table, key, attribute)
        with pytest.raises(CorruptionError, match=key):
            list(dynamo_table.rows(LIFE, key))


def _grave() -> Tombstone:
    return Tombstone("data/x", NOW, Offset(0), Offset(10), 5)
