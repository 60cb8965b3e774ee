"""Which streams a run is about."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidInputError, InvalidSettingError, StreamNotFoundError
from coldstream.manifest.commit import Change
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.memory.table import MemoryTable
from coldstream.store.streams import select_streams

OLD = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))
NEW = StreamId("/", "orders", Incarnation("__orders_1763700000000000001"))
OTHER = StreamId("ünï", "orders", Incarnation("_n__orders_1763700000000000002"))


@pytest.fixture
def table() -> MemoryTable:
    table = MemoryTable()
    for stream in (OLD, NEW, OTHER):
        table.apply(Change(Head(stream, revision=1)))
    return table


def test_a_name_is_its_newest_life_and_counts_once(table: MemoryTable) -> None:
    assert select_streams(table, "/", ["orders", "orders"]) == (NEW,)
    assert select_streams(table, "ünï", ["orders"]) == (OTHER,)


def test_one_life_can_be_asked_for(table: MemoryTable) -> None:
    assert select_streams(table, "/", ["orders"], incarnation=OLD.incarnation) == (OLD,)


def test_all_are_all_lives_of_all_vhosts(table: MemoryTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.store.streams.PAGE_STREAMS", 2)
    assert set(select_streams(table, "/", [], every=True)) == {OLD, NEW, OTHER}


@pytest.mark.parametrize(
    ("names", "incarnation", "every"),
    [
        ([], None, False),
        (["orders"], None, True),
        ([], OLD.incarnation, True),
        (["orders", "others"], OLD.incarnation, False),
    ],
)
def test_it_has_to_be_said_which(table: MemoryTable, names: list[str], incarnation: str | None, every: bool) -> None:  # noqa: FBT001  a parameter of the test
    with pytest.raises(InvalidSettingError):
        select_streams(table, "/", names, incarnation=incarnation, every=every)


@pytest.mark.parametrize(
    ("vhost", "name", "incarnation"),
    [("/", "unknown", None), ("other", "orders", None), ("/", "orders", OTHER.incarnation), ("/", "orders", "../x")],
)
def test_what_is_not_archived_is_not_found(table: MemoryTable, vhost: str, name: str, incarnation: str | None) -> None:
    with pytest.raises(StreamNotFoundError):
        select_streams(table, vhost, [name], incarnation=incarnation)


def test_names_that_cannot_be_are_refused(table: MemoryTable) -> None:
    with pytest.raises(InvalidInputError):
        select_streams(table, "/", ["x" * 300])
