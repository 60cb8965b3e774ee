"""What is DynamoDB's own about `DynamoTable`: items, requests, failures."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from coldstream.errors import (
    AccessDeniedError,
    BadSequenceError,
    BadVersionError,
    ColdstreamError,
    CorruptionError,
    InvalidSettingError,
    LostRaceError,
    OutcomeUnknownError,
    UnavailableError,
)
from coldstream.manifest.change import PutTombstone
from coldstream.manifest.commit import Neighbourhood, plan_commit, plan_missing
from coldstream.manifest.entry import Encoding, Head, LastUserChunk, Loss, Missing, Quarantine, Tombstone
from coldstream.manifest.frames import Frames
from coldstream.manifest.state_item import StateItem
from coldstream.store.ports import LogPage
from coldstream.store.table import DynamoTable
from coldstream.units import ChunkId, Offset, TimestampMs
from tests.store.samples import NOW, ORDERS, commit, entry
from tests.store.wire import Wire, dynamodb_answer, dynamodb_error
from tests.support.changes import change_to

LIFE = ORDERS.incarnation
FIRST = plan_commit(Neighbourhood(Head(ORDERS)), entry(0, 10), NOW)
URL = "http://aws.test"
NAMES_HASH = "97d589a04c928c4a2dad1a64bf0beb04aa5a160823979d5089333aa1f457dd18"
"""SHA-256 of "1:/orders"."""

ENTRY_ATTRIBUTES = {
    "stream": "S",
    "item": "S",
    "time": "S",
    "first_offset": "N",
    "next_offset": "N",
    "first_timestamp": "N",
    "last_timestamp": "N",
    "greatest_timestamp": "N",
    "epoch": "N",
    "chunks": "N",
    "records": "N",
    "messages": "N",
    "data_bytes": "N",
    "object_bytes": "N",
    "key": "S",
    "crc32": "N",
    "encoding": "S",
    "generation": "N",
    "segment_offset": "N",
    "sparse_index": "B",
}


def wire(table: DynamoTable, *script: Any) -> Wire:
    return Wire(table._connection().client, *script)


@pytest.fixture(scope="module")
def shared_table(create_table: Callable[[], str]) -> DynamoTable:
    """A table for tests that never reach it: a client takes a tenth of a second to make."""
    return DynamoTable(create_table())


def name_of(table: DynamoTable) -> str:
    return table._item.Meta.table_name


def item_of(dynamodb: Any, table: DynamoTable, key: str, stream: str = LIFE) -> dict[str, Any]:
    return dynamodb.get_item(TableName=name_of(table), Key={"stream": {"S": stream}, "item": {"S": key}})["Item"]


def types(item: dict[str, Any]) -> dict[str, str]:
    return {name: next(iter(value)) for name, value in item.items()}


def test_the_item_of_a_first_entry(dynamo_table: DynamoTable, dynamodb: Any) -> None:
    commit(dynamo_table, entry(5, 10, time=-1))
    item = item_of(dynamodb, dynamo_table, "log#00000000000000000010")
    assert types(item) == ENTRY_ATTRIBUTES
    assert item["time"] == {"S": "09223372036854775807#00000000000000000010"}
    assert item["crc32"] == {"N": "4294967295"}
    assert item["encoding"] == {"S": "identity"}


def test_the_item_of_a_later_entry_has_links_and_the_last_user_chunk(dynamo_table: DynamoTable, dynamodb: Any) -> None:
    commit(dynamo_table, entry(0, 10))
    commit(dynamo_table, entry(10, 20, last_user_chunk=LastUserChunk(ChunkId(15), 800, TimestampMs(999))))
    item = item_of(dynamodb, dynamo_table, "log#00000000000000000020")
    more = {
        "prior_offset": {"N": "10"},
        "prior_timestamp": {"N": "1000"},
        "last_user_chunk_id": {"N": "15"},
        "last_user_chunk_position": {"N": "800"},
        "last_user_chunk_timestamp": {"N": "999"},
    }
    assert {name: item[name] for name in item.keys() - ENTRY_ATTRIBUTES.keys()} == more


def test_the_items_of_an_entry_of_frames_and_of_a_tombstone(dynamo_table: DynamoTable, dynamodb: Any) -> None:
    frames = Frames((17, 300))
    commit(dynamo_table, replace(entry(0, 10), encoding=Encoding.ZSTD_SEEKABLE, frames=frames))
    item = item_of(dynamodb, dynamo_table, "log#00000000000000000010")
    assert types(item) == {**ENTRY_ATTRIBUTES, "frames": "B"}
    assert (item["encoding"], item["frames"]) == ({"S": "zstd-seekable"}, {"B": frames.to_bytes()})
    head = dynamo_table.head(LIFE)
    assert head is not None
    grave = Tombstone("data/x.fragment", NOW, Offset(0), Offset(10), 1082)
    dynamo_table.apply(change_to(replace(head, revision=2), (PutTombstone(grave),)))
    assert item_of(dynamodb, dynamo_table, "tombstone#00000001763700000123#data/x.fragment") == {
        "stream": {"S": LIFE},
        "item": {"S": "tombstone#00000001763700000123#data/x.fragment"},
        "key": {"S": "data/x.fragment"},
        "due_at": {"N": "1763700000123"},
        "first_offset": {"N": "0"},
        "next_offset": {"N": "10"},
        "object_bytes": {"N": "1082"},
    }


def test_the_items_of_head_gap_event_and_registry(dynamo_table: DynamoTable, dynamodb: Any) -> None:
    commit(dynamo_table, entry(0, 10))
    commit(dynamo_table, entry(20, 30))
    head = item_of(dynamodb, dynamo_table, "log#head")
    assert head["time"] == {"S": "~"}
    assert head["revision"] == {"N": "2"}
    assert (head["vhost"], head["name"]) == ({"S": "/"}, {"S": "orders"})
    assert item_of(dynamodb, dynamo_table, "gap#00000000000000000010") == {
        "stream": {"S": LIFE},
        "item": {"S": "gap#00000000000000000010"},
        "first_offset": {"N": "10"},
        "next_offset": {"N": "20"},
    }
    event = item_of(dynamodb, dynamo_table, "event#00000000000000000002")
    assert event.pop("change")["B"][:1] == b"\x01"
    assert event == {
        "stream": {"S": LIFE},
        "item": {"S": "event#00000000000000000002"},
        "revision": {"N": "2"},
        "kind": {"S": "Fragment Committed"},
        "at": {"N": "1763700000123"},
        "first_offset": {"N": "20"},
        "next_offset": {"N": "30"},
        "key": {"S": "data/00000000000000000020.fragment"},
    }
    assert item_of(dynamodb, dynamo_table, f"{NAMES_HASH}#{LIFE}", "#streams") == {
        "stream": {"S": "#streams"},
        "item": {"S": f"{NAMES_HASH}#{LIFE}"},
        "vhost": {"S": "/"},
        "name": {"S": "orders"},
        "incarnation": {"S": LIFE},
    }


def test_the_items_of_a_loss_and_of_a_quarantine(dynamo_table: DynamoTable, dynamodb: Any) -> None:
    record(dynamo_table, Loss(Offset(5), Offset(10), "full", NOW))
    record(dynamo_table, Quarantine(Offset(5), Offset(10), "bad", NOW, "quarantine/x", '"etag"'))
    loss_key = "loss#00000000000000000005-00000000000000000010"
    offsets = {"stream": {"S": LIFE}, "first_offset": {"N": "5"}, "next_offset": {"N": "10"}}
    assert item_of(dynamodb, dynamo_table, loss_key) == {
        **offsets,
        "item": {"S": loss_key},
        "reason": {"S": "full"},
        "at": {"N": "1763700000123"},
    }
    quarantine_key = "quarantine#00000000000000000005-00000000000000000010"
    assert item_of(dynamodb, dynamo_table, quarantine_key) == {
        **offsets,
        "item": {"S": quarantine_key},
        "reason": {"S": "bad"},
        "at": {"N": "1763700000123"},
        "key": {"S": "quarantine/x"},
        "etag": {"S": '"etag"'},
        "copies": {"N": "1"},
    }
    head = item_of(dynamodb, dynamo_table, "log#head")
    assert (head["losses"], head["quarantined"]) == ({"N": "1"}, {"N": "1"})


def test_a_head_of_before_there_were_losses_has_none(dynamo_table: DynamoTable, dynamodb: Any) -> None:
    commit(dynamo_table, entry(0, 10))
    key = {"stream": {"S": LIFE}, "item": {"S": "log#head"}}
    dynamodb.update_item(TableName=name_of(dynamo_table), Key=key, UpdateExpression="REMOVE losses")
    head = dynamo_table.head(LIFE)
    assert head is not None
    assert head.losses == 0


def record(table: DynamoTable, one: Missing) -> None:
    change = plan_missing(table.head(LIFE) or Head(ORDERS), one, [], [])
    assert change is not None
    table.apply(change)


def test_what_is_unknown_is_absent(dynamo_table: DynamoTable, dynamodb: Any) -> None:
    record(dynamo_table, Loss(Offset(0), Offset(1), "bad", NOW))
    assert "key" not in item_of(dynamodb, dynamo_table, "event#00000000000000000001")
    head = types(item_of(dynamodb, dynamo_table, "log#head"))
    assert "NULL" not in head.values()
    assert not head.keys() & {"first_offset", "next_offset", "first_timestamp", "greatest_timestamp"}


READS: list[tuple[str, bool, Callable[[DynamoTable], object]]] = [
    ("GetItem", True, lambda table: table.head(LIFE)),
    ("GetItem", True, lambda table: table.gap(LIFE, Offset(10))),
    ("Query", True, lambda table: table.log_from_offset(LIFE, Offset(0), 2)),
    ("Query", False, lambda table: table.log_from_timestamp(LIFE, TimestampMs(0), 2)),
    ("Query", True, lambda table: table.log_before(LIFE, Offset(50), 2)),
    ("Query", True, lambda table: table.gaps(LIFE, 1)),
    ("Query", True, lambda table: table.gaps_before(LIFE, Offset(50), 1)),
    ("Query", True, lambda table: table.log_end(LIFE, 2)),
    ("TransactGetItems", False, lambda table: table.log_at_once(LIFE, [Offset(10), Offset(30)])),
    ("TransactGetItems", False, lambda table: table.items_at_once(LIFE, ["log#head"])),
    ("Query", True, lambda table: list(table.missing(LIFE))),
    ("Query", True, lambda table: table.missing_before(LIFE, Quarantine, Offset(15), 2)),
    ("Query", True, lambda table: table.missing_after(LIFE, Quarantine, Offset(5), 2)),
    ("GetItem", True, lambda table: table.quarantine(LIFE, Offset(10), Offset(20))),
    ("Query", True, lambda table: list(table.journal(LIFE))),
    ("Query", True, lambda table: table.incarnation_of("/", "orders")),
    ("Query", True, lambda table: table.streams(None, 1)),
    ("Query", True, lambda table: [*table.grants(), "at least"]),
]


@pytest.mark.parametrize(("call", "consistent", "read"), READS)
def test_a_read_is_one_request(
    dynamo_table: DynamoTable,
    call: str,
    read: Callable[[DynamoTable], object],
    *,
    consistent: bool,
) -> None:
    for first in (0, 20, 30, 40):
        commit(dynamo_table, entry(first, first + 10))
    record(dynamo_table, Quarantine(Offset(10), Offset(20), "bad", NOW, "x", "etag"))
    with wire(dynamo_table) as seen:
        assert read(dynamo_table)
    assert seen.calls == [call]
    assert seen.bodies[0].get("ConsistentRead", False) is consistent


def test_a_page_that_ends_early_has_no_head(dynamo_table: DynamoTable, dynamodb: Any) -> None:
    for first in (0, 10, 20):
        commit(dynamo_table, entry(first, first + 10))
    whole = dynamo_table.log_from_offset(LIFE, Offset(0), 10)
    raw = item_of(dynamodb, dynamo_table, "log#00000000000000000010")
    raw["sparse_index"] = {"B": "AQAACNAPAA=="}
    key = {name: raw[name] for name in ("stream", "item")}
    early = {"Items": [raw], "Count": 1, "ScannedCount": 1, "LastEvaluatedKey": key}
    with wire(dynamo_table, dynamodb_answer(early)) as seen:
        assert dynamo_table.log_from_offset(LIFE, Offset(0), 10) == LogPage(whole.entries[:1], None)
    assert len(seen.sent) == 1


def test_the_journal_goes_on_where_a_page_ends(dynamo_table: DynamoTable, dynamodb: Any) -> None:
    for first in (0, 10, 20):
        commit(dynamo_table, entry(first, first + 10))
    raw = item_of(dynamodb, dynamo_table, "event#00000000000000000001")
    raw["change"] = {"B": b64encode(raw["change"]["B"]).decode()}
    key = {name: raw[name] for name in ("stream", "item")}
    early = {"Items": [raw], "Count": 1, "ScannedCount": 1, "LastEvaluatedKey": key}
    with wire(dynamo_table, dynamodb_answer(early)) as seen:
        assert [event.revision for event in dynamo_table.journal(LIFE)] == [1, 2, 3]
    assert len(seen.sent) == 2
    assert seen.bodies[1]["ExclusiveStartKey"] == key


def test_a_page_of_streams_that_ends_early_has_a_cursor(dynamo_table: DynamoTable, dynamodb: Any) -> None:
    commit(dynamo_table, entry(0, 10))
    raw = item_of(dynamodb, dynamo_table, f"{NAMES_HASH}#{LIFE}", "#streams")
    early = {"Items": [raw], "Count": 1, "ScannedCount": 1, "LastEvaluatedKey": {"stream": raw["stream"]}}
    with wire(dynamo_table, dynamodb_answer(early)):
        page = dynamo_table.streams(None, 5)
    assert page.streams == (ORDERS,)
    assert dynamo_table.streams(page.cursor, 5).streams == ()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("REMOVE epoch", CorruptionError),
        ("REMOVE sparse_index", BadVersionError),
        ("REMOVE last_user_chunk_position", CorruptionError),
        ("SET epoch = :text", CorruptionError),
        ("SET first_offset = next_offset", CorruptionError),
        ("SET encoding = :text", BadVersionError),
        ("REMOVE encoding", BadVersionError),
        ("SET encoding = :frames", CorruptionError),
        ("SET frames = sparse_index", BadSequenceError),
    ],
)
def test_an_item_that_is_no_entry_is_corruption(
    dynamo_table: DynamoTable, dynamodb: Any, change: str, error: type[CorruptionError]
) -> None:
    commit(dynamo_table, entry(0, 10, last_user_chunk=LastUserChunk(ChunkId(0), 8, TimestampMs(0))))
    dynamodb.update_item(
        TableName=name_of(dynamo_table),
        Key={"stream": {"S": LIFE}, "item": {"S": "log#00000000000000000010"}},
        UpdateExpression=change,
        **({"ExpressionAttributeValues": {":text": {"S": "zstd-chunked"}}} if ":text" in change else {}),
        **({"ExpressionAttributeValues": {":frames": {"S": "zstd-seekable"}}} if ":frames" in change else {}),
    )
    with pytest.raises(error, match=f"manifest item {LIFE} log#00000000000000000010") as caught:
        dynamo_table.log_from_offset(LIFE, Offset(0), 1)
    assert type(caught.value) is error


def test_an_event_of_a_later_release_is_not_misread(dynamo_table: DynamoTable, dynamodb: Any) -> None:
    commit(dynamo_table, entry(0, 10))
    dynamodb.update_item(
        TableName=name_of(dynamo_table),
        Key={"stream": {"S": LIFE}, "item": {"S": "event#00000000000000000001"}},
        UpdateExpression="SET kind = :kind",
        ExpressionAttributeValues={":kind": {"S": "Fragment Trimmed"}},
    )
    with pytest.raises(BadVersionError, match="Fragment Trimmed"):
        list(dynamo_table.journal(LIFE))


def canceled(*reasons: str) -> Any:
    return dynamodb_error("TransactionCanceledException", *reasons)


BROKEN = ConnectionClosedError(endpoint_url=URL)
SILENT = ReadTimeoutError(endpoint_url=URL, error="read timed out")
UNREACHABLE = EndpointConnectionError(endpoint_url=URL)

FAILED_COMMITS = [
    (canceled("ConditionalCheckFailed", "None", "None"), LostRaceError),
    (canceled("None", "TransactionConflict", "None"), LostRaceError),
    (canceled("ThrottlingError", "ConditionalCheckFailed", "None"), LostRaceError),
    (canceled("None", "ThrottlingError", "None"), UnavailableError),
    (canceled("ProvisionedThroughputExceeded", "None", "None"), UnavailableError),
    (canceled("ValidationError", "None", "None"), ColdstreamError),
    (dynamodb_error("ProvisionedThroughputExceededException"), UnavailableError),
    (dynamodb_error("ThrottlingException"), UnavailableError),
    (dynamodb_error("RequestLimitExceeded"), UnavailableError),
    (dynamodb_error("TransactionInProgressException"), OutcomeUnknownError),
    (dynamodb_error("InternalServerError", status=500), OutcomeUnknownError),
    (dynamodb_error("ServiceUnavailable", status=503), OutcomeUnknownError),
    (dynamodb_error("AccessDeniedException"), AccessDeniedError),
    (dynamodb_error("ExpiredTokenException"), AccessDeniedError),
    (dynamodb_error("UnrecognizedClientException"), AccessDeniedError),
    (dynamodb_error("ResourceNotFoundException"), InvalidSettingError),
    (dynamodb_error("ValidationException"), ColdstreamError),
    (SILENT, OutcomeUnknownError),
    (BROKEN, OutcomeUnknownError),
    (UNREACHABLE, UnavailableError),
    (ConnectTimeoutError(endpoint_url=URL), UnavailableError),
    (NoCredentialsError(), AccessDeniedError),
]

FAILED_READS = [
    (dynamodb_error("ProvisionedThroughputExceededException"), UnavailableError),
    (dynamodb_error("InternalServerError", status=500), UnavailableError),
    (dynamodb_error("AccessDeniedException"), AccessDeniedError),
    (dynamodb_error("ResourceNotFoundException"), InvalidSettingError),
    (dynamodb_error("ValidationException"), ColdstreamError),
    (SILENT, UnavailableError),
    (BROKEN, UnavailableError),
    (UNREACHABLE, UnavailableError),
    (NoCredentialsError(), AccessDeniedError),
]


@pytest.mark.parametrize(("failure", "error"), FAILED_COMMITS)
@pytest.mark.usefixtures("delays")
def test_a_failed_commit_says_what_is_known(shared_table: DynamoTable, failure: Any, error: type[Exception]) -> None:
    with wire(shared_table, *[failure] * 9), pytest.raises(error) as caught:
        shared_table.apply(FIRST)
    assert type(caught.value) is error
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("write", [DynamoTable.put_state, DynamoTable.delete_state], ids=["put", "delete"])
def test_a_write_of_one_item_that_meets_a_transaction_lost_a_race(
    shared_table: DynamoTable, write: Callable[[DynamoTable, StateItem], None]
) -> None:
    failure = dynamodb_error("TransactionConflictException")
    with wire(shared_table, failure), pytest.raises(LostRaceError, match="another transaction"):
        write(shared_table, StateItem("#jobs", "a", 1, b""))


@pytest.mark.parametrize("lost", [SILENT, BROKEN, "InternalServerError"])
@pytest.mark.parametrize("last", [UNREACHABLE, "ThrottlingException"])
@pytest.mark.usefixtures("delays")
def test_a_commit_whose_first_answer_was_lost_may_have_passed(dynamo_table: DynamoTable, lost: Any, last: Any) -> None:
    """The SDK raises the error of its last attempt, which was not even sent."""

    def failures(*kinds: Any) -> list[Any]:
        statuses = {"InternalServerError": 500, "ThrottlingException": 400}
        return [dynamodb_error(kind, status=statuses[kind]) if kind in statuses else kind for kind in kinds]

    with wire(dynamo_table, *failures(lost, *[last] * 9)), pytest.raises(OutcomeUnknownError):
        dynamo_table.apply(FIRST)
    with wire(dynamo_table, *failures(*[last] * 9)), pytest.raises(UnavailableError):
        dynamo_table.apply(FIRST)


@pytest.mark.parametrize(("failure", "error"), FAILED_READS)
@pytest.mark.parametrize("read", [READS[0][2], READS[2][2], READS[7][2]], ids=["GetItem", "Query", "pages"])
@pytest.mark.usefixtures("delays")
def test_a_failed_read_says_whether_to_retry(
    shared_table: DynamoTable, failure: Any, error: type[Exception], read: Callable[[DynamoTable], object]
) -> None:
    with wire(shared_table, *[failure] * 9), pytest.raises(error) as caught:
        read(shared_table)
    assert type(caught.value) is error


@pytest.mark.usefixtures("delays")
def test_a_commit_is_repeated_under_its_token(dynamo_table: DynamoTable) -> None:
    with wire(dynamo_table, SILENT, dynamodb_error("InternalServerError", status=500)) as seen:
        dynamo_table.apply(FIRST)
    tokens = {body["ClientRequestToken"] for body in seen.bodies}
    assert (len(seen.sent), len(tokens)) == (3, 1)
    assert dynamo_table.head(LIFE) == FIRST.head


@pytest.mark.usefixtures("delays")
def test_retries_end(dynamo_table: DynamoTable) -> None:
    with wire(dynamo_table, *[SILENT] * 9) as seen, pytest.raises(UnavailableError):
        dynamo_table.head(LIFE)
    assert len(seen.sent) == 4


def test_a_table_that_does_not_exist_is_a_wrong_setting(moto_endpoint: str) -> None:
    with pytest.raises(InvalidSettingError, match="table"):
        DynamoTable("no-such-table").head(LIFE)


def test_a_region_that_nobody_set_is_a_wrong_setting(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    table = DynamoTable("manifest")
    with pytest.raises(InvalidSettingError, match="region"):
        table.head(LIFE)
