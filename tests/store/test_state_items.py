"""State items: their part of the contract of `ports.ManifestTable`, on every implementation."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from uuid import uuid4

import boto3
import pytest
from botocore.exceptions import ConnectionClosedError

from coldstream.errors import InvalidInputError, LostRaceError, OutcomeUnknownError
from coldstream.local.deployment import table_parameters
from coldstream.local.template import load_document
from coldstream.manifest.state_item import MAX_STATE_BYTES, MAX_STATE_ITEMS, StateItem
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import ManifestTable
from coldstream.store.table import DynamoTable
from tests.store.conftest import SettledTable
from tests.store.wire import Wire
from tests.support.cloudformation import TEMPLATE
from tests.support.dynamodb_local import DynamoDBLocal


@pytest.fixture(params=["memory", "settled", "dynamo", "fast", "dynamodb_local"])
def table(request: pytest.FixtureRequest) -> ManifestTable:
    """Every implementation of the port, and AWS's own emulator, which is strict where others are not."""
    match request.param:
        case "memory":
            return MemoryTable()
        case "settled":
            return SettledTable()
        case "dynamodb_local":
            return request.getfixturevalue("local_table")
        case _:
            return request.getfixturevalue(f"{request.param}_table")


@pytest.fixture
def local_table(dynamodb_local: DynamoDBLocal, moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> DynamoTable:
    """The manifest in an empty table of AWS's own emulator."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb_local.url)
    name = f"state-{uuid4()}"
    parameters = table_parameters(load_document(TEMPLATE)["Resources"]["Table"])
    boto3.session.Session().client("dynamodb").create_table(TableName=name, **parameters)
    return DynamoTable(name)


OTHER = "#groups#" + "0a" * 32


def item(key: str = "a", revision: int = 1, data: bytes = b"x", partition: str = "#shards") -> StateItem:
    return StateItem(partition, key, revision, data)


def keys(table: ManifestTable, partition: str = "#shards", **options: int | str) -> list[str]:
    return [one.key for one in table.state_items(partition, **options)]  # type: ignore[arg-type]


def test_what_was_never_written_is_not_there(table: ManifestTable) -> None:
    assert table.state_item("#shards", "a") is None
    assert list(table.state_items("#shards")) == []


@pytest.mark.parametrize("data", [b"", b"\0\xff", bytes(range(256)) * 1171])
def test_an_item_comes_back_as_it_was_written(table: ManifestTable, data: bytes) -> None:
    assert len(data) <= MAX_STATE_BYTES
    for key in ("a", "größe 🐇#", "~" * 1024):
        table.put_state(item(key, data=data))
        assert table.state_item("#shards", key) == item(key, data=data)


def test_an_item_is_written_over_the_one_of_the_revision_before(table: ManifestTable) -> None:
    for revision in (1, 2, 3):
        table.put_state(item(revision=revision, data=bytes((revision,))))
    assert table.state_item("#shards", "a") == item(revision=3, data=b"\3")


@pytest.mark.parametrize("revision", [1, 2, 4])
def test_any_other_revision_loses_the_race(table: ManifestTable, revision: int) -> None:
    table.put_state(item())
    table.put_state(item(revision=2))
    with pytest.raises(LostRaceError):
        table.put_state(item(revision=revision, data=b"other"))
    assert table.state_item("#shards", "a") == item(revision=2)


def test_a_later_revision_of_what_is_not_there_loses_the_race(table: ManifestTable) -> None:
    with pytest.raises(LostRaceError):
        table.put_state(item(revision=2))
    with pytest.raises(LostRaceError):
        table.put_state(item(revision=2), item("b"))
    assert keys(table) == []


def test_several_items_are_written_all_or_none(table: ManifestTable) -> None:
    table.put_state(item(), item("b"), item(partition=OTHER))
    table.put_state(item(revision=2), item("c"))
    for lost in ((item("d"), item(revision=2)), (item(revision=4), item("d")), (item("d"), item("c"))):
        with pytest.raises(LostRaceError):
            table.put_state(*lost)
    assert [(one.key, one.revision) for one in table.state_items("#shards")] == [("a", 2), ("b", 1), ("c", 1)]
    assert keys(table, OTHER) == ["a"]


def test_a_hundred_items_are_one_transaction(table: ManifestTable) -> None:
    table.put_state(*(item(f"{number:03}") for number in range(MAX_STATE_ITEMS)))
    assert keys(table) == [f"{number:03}" for number in range(MAX_STATE_ITEMS)]


def test_what_no_transaction_holds_is_refused(table: ManifestTable) -> None:
    many = [item(f"{number}") for number in range(MAX_STATE_ITEMS + 1)]
    large = [item(f"{number}", data=bytes(MAX_STATE_BYTES)) for number in range(11)]
    for refused in ([], many, large, [item(), item()]):
        with pytest.raises(InvalidInputError, match="state items"):
            table.put_state(*refused)
    assert keys(table) == []


def test_items_are_in_the_order_of_their_keys(table: ManifestTable) -> None:
    for key in ("b", "é", "a", "🐇", "B", "aa", "\uffee"):
        table.put_state(item(key))
    assert keys(table) == sorted(("b", "é", "a", "🐇", "B", "aa", "\uffee"), key=str.encode)


@pytest.mark.parametrize("page_items", [1, 2, 3, None])
def test_pages_have_each_item_once(table: ManifestTable, page_items: int | None) -> None:
    table.put_state(*(item(f"{number}") for number in range(5)))
    assert list(table.state_items("#shards", page_items=page_items)) == [item(f"{number}") for number in range(5)]
    assert [one.key for one in table.state_items("#shards", after="2", page_items=page_items)] == ["3", "4"]
    assert keys(table, after="4") == []
    assert keys(table, after="11") == ["2", "3", "4"]


def test_items_of_many_megabytes_are_read_page_by_page(table: ManifestTable) -> None:
    for number in range(5):
        table.put_state(item(f"{number}", data=bytes((number,)) * MAX_STATE_BYTES))
    found = list(table.state_items("#shards"))
    assert [one.data[:1] for one in found] == [bytes((number,)) for number in range(5)]


def test_partitions_do_not_see_each_other(table: ManifestTable) -> None:
    table.put_state(item(), item(partition=OTHER, data=b"y"))
    assert table.state_item(OTHER, "a") == item(partition=OTHER, data=b"y")
    table.delete_state(item())
    assert keys(table, OTHER) == ["a"]


def test_an_item_of_exactly_this_revision_is_deleted(table: ManifestTable) -> None:
    table.put_state(item())
    table.put_state(item(revision=2))
    for revision in (1, 3):
        with pytest.raises(LostRaceError):
            table.delete_state(item(revision=revision))
    table.delete_state(item(revision=2))
    assert table.state_item("#shards", "a") is None
    with pytest.raises(LostRaceError):
        table.delete_state(item(revision=2))
    table.put_state(item())  # begins again


def test_an_item_of_any_revision_is_added_where_none_is(table: ManifestTable) -> None:
    table.add_state(item(revision=7))
    assert table.state_item("#shards", "a") == item(revision=7)
    with pytest.raises(LostRaceError):
        table.add_state(item(revision=8))
    table.put_state(item(revision=8))


@pytest.mark.parametrize("together", [False, True])
def test_of_writers_at_once_one_wins_each_revision(table: ManifestTable, *, together: bool) -> None:
    """Each writer counts to 20 by reading and writing; what was counted is the number of writes that passed."""
    table.put_state(item())

    def count(_: int) -> int:
        passed = 0
        for _ in range(20):
            found = table.state_item("#shards", "a")
            assert found is not None
            new = item(revision=found.revision + 1)
            with suppress(LostRaceError):
                table.put_state(*((new, item(f"r{new.revision}")) if together else (new,)))
                passed += 1
        return passed

    with ThreadPoolExecutor(3) as pool:
        passed = sum(pool.map(count, range(3)))
    found = table.state_item("#shards", "a")
    assert found is not None
    assert found.revision == passed + 1
    assert len(keys(table)) == (found.revision if together else 1)


@pytest.mark.parametrize("more", [(), (item("b"),)])
def test_a_write_without_an_answer_is_of_unknown_outcome(
    dynamo_table: DynamoTable, more: tuple[StateItem, ...], delays: list[float]
) -> None:
    broken = ConnectionClosedError(endpoint_url="http://aws.test")
    with (
        Wire(dynamo_table._connection().client, *[broken] * 10),
        pytest.raises(OutcomeUnknownError),
    ):
        dynamo_table.put_state(item(), *more)


def test_a_lost_answer_may_come_back_as_a_lost_race_against_oneself(dynamo_table: DynamoTable) -> None:
    dynamo_table.put_state(item(data=b"mine"))  # its answer was lost, so the caller repeats it
    with pytest.raises(LostRaceError):
        dynamo_table.put_state(item(data=b"mine"))
    assert dynamo_table.state_item("#shards", "a") == item(data=b"mine")
