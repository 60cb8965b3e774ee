"""Which streams a run is about."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from coldstream.errors import (
    InvalidInputError,
    InvalidSettingError,
    PurgedError,
    StreamDeletedError,
    StreamNotFoundError,
)
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.memory.table import MemoryTable
from coldstream.store.streams import iter_streams, select_streams, streams_in_turn
from coldstream.units import TimestampMs
from tests.support.changes import change_to

OLD = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))
NEW = StreamId("/", "orders", Incarnation("__orders_1763700000000000001"))
OTHER = StreamId("ünï", "orders", Incarnation("_n__orders_1763700000000000002"))


@pytest.fixture
def table() -> MemoryTable:
    table = MemoryTable()
    for stream in (OLD, NEW, OTHER):
        table.apply(change_to(Head(stream, revision=1)))
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


def test_a_deleted_stream_is_told_from_one_that_never_was(table: MemoryTable) -> None:
    deleted = Head(NEW, revision=2, deleted_at=TimestampMs(5), purge_at=TimestampMs(6))
    table.apply(change_to(deleted))
    assert select_streams(table, "/", ["orders"]) == (OLD,)
    with pytest.raises(StreamDeletedError):
        select_streams(table, "/", ["orders"], incarnation=NEW.incarnation)
    table.apply(change_to(Head(OLD, revision=2, deleted_at=TimestampMs(5), purge_at=TimestampMs(6))))
    with pytest.raises(StreamDeletedError):
        select_streams(table, "/", ["orders"])
    table.apply(change_to(replace(deleted, revision=3, purge_began_at=TimestampMs(7))))
    with pytest.raises(PurgedError):  # the newest cannot be brought back
        select_streams(table, "/", ["orders"], incarnation=NEW.incarnation)


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


def begun(table: MemoryTable, streams: int) -> list[StreamId]:
    """Return what a run begins that has time for so many streams."""
    found = []
    with closing(streams_in_turn(table, "run")) as turns:
        for stream in turns:
            if len(found) == streams:
                break
            found.append(stream)
    return found


def test_streams_that_a_run_had_no_time_for_come_first_in_the_next(table: MemoryTable) -> None:
    first, second, third = iter_streams(table)
    assert begun(table, 0) == []
    assert begun(table, 1) == [first]
    assert begun(table, 0) == []
    assert begun(table, 1) == [second]
    assert begun(table, 2) == [third, first]
    assert begun(table, 3) == [second, third, first]
    assert table.cursor("run") is None
    assert begun(table, 4) == [first, second, third]


def test_a_run_that_has_time_for_all_keeps_nothing(table: MemoryTable) -> None:
    table.requests.clear()
    assert len(begun(table, 4)) == 3
    assert table.requests == {"GetItem": 1, "Query": 1}
