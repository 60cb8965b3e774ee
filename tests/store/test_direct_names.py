"""The names of direct streams: one incarnation has a name, and only its end takes it away."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from coldstream.errors import (
    CorruptionError,
    LostRaceError,
    OutcomeUnknownError,
    StreamExistsError,
    StreamNotFoundError,
)
from coldstream.manifest.appender import Appender
from coldstream.manifest.entry import Head
from coldstream.manifest.state_item import StateItem
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.direct_names import DIRECT_STREAMS, DirectName, add_name, find_name, iter_names, remove_name
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import ManifestTable
from coldstream.units import Offset

STREAM = StreamId("/", "名前 %2F", Incarnation("_____1763700000000000000"))
NAME = DirectName(STREAM, Offset(5), (("größe", ""), ("owner", "x")))
LATER = replace(NAME, stream=replace(STREAM, incarnation=Incarnation("_____1763700000000000001")))


def test_a_name_is_added_found_and_removed(table: ManifestTable) -> None:
    assert find_name(table, "/", STREAM.name) is None
    add_name(table, NAME)
    add_name(table, NAME)
    assert find_name(table, "/", STREAM.name) == NAME
    assert list(iter_names(table)) == [NAME]
    assert remove_name(table, STREAM)
    assert not remove_name(table, STREAM)
    assert list(iter_names(table)) == []


def test_one_incarnation_has_a_name(table: ManifestTable) -> None:
    add_name(table, NAME)
    with pytest.raises(StreamExistsError):
        add_name(table, LATER)
    assert not remove_name(table, LATER.stream)
    assert find_name(table, "/", STREAM.name) == NAME
    add_name(table, DirectName(replace(STREAM, vhost="other")))
    assert len(list(iter_names(table))) == 2


def test_whoever_removes_a_name_removes_none_that_was_added_since(table: ManifestTable) -> None:
    add_name(table, NAME)
    stale = table.state_item(DIRECT_STREAMS, NAME.to_item().key)
    assert stale is not None
    assert remove_name(table, STREAM)
    add_name(table, LATER)
    with pytest.raises(LostRaceError):
        table.delete_state(stale)
    assert find_name(table, "/", STREAM.name) == LATER


class Unsure(MemoryTable):
    """A table whose answers to the first writes of a state are lost."""

    def __init__(self, lost: int, *, writes: bool) -> None:
        super().__init__()
        self.lost = lost
        self.writes = writes

    def add_state(self, item: StateItem) -> None:
        if self.lost:
            self.lost -= 1
            if self.writes:
                super().add_state(item)
            raise OutcomeUnknownError("no answer")
        super().add_state(item)


@pytest.mark.parametrize("writes", [True, False])
def test_a_lost_answer_is_no_other_stream(writes: bool) -> None:  # noqa: FBT001
    table = Unsure(1, writes=writes)
    add_name(table, NAME)
    assert find_name(table, "/", STREAM.name) == NAME


def test_without_any_answer_nothing_is_said() -> None:
    with pytest.raises(OutcomeUnknownError):
        add_name(Unsure(9, writes=False), NAME)


def test_the_name_follows_from_the_head() -> None:
    appender = Appender(first=Offset(5), start=Offset(40), properties=NAME.properties)
    assert DirectName.of(Head(STREAM, 3, appender=appender)) == NAME
    with pytest.raises(StreamNotFoundError):
        DirectName.of(Head(STREAM, 3))


@pytest.mark.parametrize(
    ("incarnation", "created"), [("__a_1763700000000000000", 1763700000000000000), ("__a_0", 1), ("a", 1)]
)
def test_the_incarnation_tells_when_it_was_made(incarnation: str, created: int) -> None:
    assert DirectName(replace(STREAM, incarnation=Incarnation(incarnation))).created_ns == created


@pytest.mark.parametrize(
    "change",
    [
        lambda read: [],
        lambda read: {**read, "version": 2},
        lambda read: {**read, "name": "other"},
        lambda read: {**read, "vhost": ""},
        lambda read: {**read, "incarnation": "../x"},
        lambda read: {**read, "first": -1},
        lambda read: {**read, "first": True},
        lambda read: {**read, "properties": 7},
        lambda read: {**read, "properties": {"a": 1}},
        lambda read: {key: value for key, value in read.items() if key != "first"},
    ],
)
def test_garbage_is_corruption(change: Callable[[dict[str, Any]], object]) -> None:
    item = NAME.to_item()
    assert DirectName.of_item(item) == NAME
    with pytest.raises(CorruptionError):
        DirectName.of_item(replace(item, data=json.dumps(change(json.loads(item.data))).encode()))
    with pytest.raises(CorruptionError):
        DirectName.of_item(replace(item, data=b"{"))
