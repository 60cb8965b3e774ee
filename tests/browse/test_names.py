"""Which incarnation names mean, and for how long that is kept."""

from __future__ import annotations

import pytest

from coldstream.browse.names import KEPT_S, StreamNames
from coldstream.errors import InvalidNameError, StreamNotFoundError
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.memory.table import MemoryTable
from tests.store.samples import commit, entry
from tests.support.hostile_text import hostile_streams
from tests.support.removing import delete, undelete


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def stream(declared: int, name: str = "orders") -> StreamId:
    return StreamId("/", name, Incarnation(f"__{name}_176370000000000000{declared}"))


@pytest.fixture
def table() -> MemoryTable:
    table = MemoryTable()
    for one in (stream(1), stream(2), stream(1, "others")):
        commit(table, entry(0, 10), one)
    return table


def test_names_mean_the_newest_incarnation_and_one_can_be_named(table: MemoryTable) -> None:
    names = StreamNames(table)
    assert names.find("/", "orders") == stream(2)
    assert names.find("/", "orders", stream(1).incarnation) == stream(1)


def test_what_was_found_costs_nothing_for_a_while(table: MemoryTable) -> None:
    clock = Clock()
    names = StreamNames(table, clock)
    names.find("/", "orders")
    table.requests.clear()
    clock.now += KEPT_S - 1
    assert names.find("/", "orders") == stream(2)
    assert table.requests == {}
    delete(table, stream(2).incarnation)
    assert names.find("/", "orders") == stream(2)
    clock.now += 2
    assert names.find("/", "orders") == stream(1)


def test_an_incarnation_of_another_stream_is_not_found_under_these_names(table: MemoryTable) -> None:
    names = StreamNames(table)
    with pytest.raises(StreamNotFoundError):
        names.find("/", "orders", stream(1, "others").incarnation)


def test_a_deleted_stream_is_found_only_by_who_asks_for_it(table: MemoryTable) -> None:
    clock = Clock()
    names = StreamNames(table, clock)
    delete(table, stream(1, "others").incarnation)
    for incarnation in (None, stream(1, "others").incarnation):
        assert names.find("/", "others", incarnation, deleted=True) == stream(1, "others")
        with pytest.raises(StreamNotFoundError):
            names.find("/", "others", incarnation)
    undelete(table, stream(1, "others").incarnation)
    clock.now += KEPT_S
    assert names.find("/", "others") == stream(1, "others")


@pytest.mark.parametrize(
    ("names", "error"),
    [
        (("/", "none", None), StreamNotFoundError),
        (("a", "orders", None), StreamNotFoundError),
        (("/", "", None), InvalidNameError),
        (("", "orders", None), InvalidNameError),
        (("/", "x" * 256, None), InvalidNameError),
        (("/", "\ud800", None), InvalidNameError),
        (("/", "orders", "../x"), InvalidNameError),
        (("/", "orders", "unknown"), StreamNotFoundError),
    ],
)
def test_names_of_nothing(table: MemoryTable, names: tuple[str, str, str | None], error: type[Exception]) -> None:
    with pytest.raises(error):
        StreamNames(table).find(*names)


def test_hostile_names_are_found(table: MemoryTable) -> None:
    found = StreamNames(table)
    for one in hostile_streams("vhost / %2F <b>"):
        commit(table, entry(0, 10), one)
        assert found.find(one.vhost, one.name) == one
        assert found.find(one.vhost, one.name, one.incarnation) == one


def test_no_more_names_are_kept_than_fit(table: MemoryTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.browse.names.MAX_KEPT", 2)
    names = StreamNames(table)
    for name in ("orders", "others", "orders", "others"):
        names.find("/", name)
        names.find("/", name, stream(1, name).incarnation)
    assert len(names._kept) <= 2
