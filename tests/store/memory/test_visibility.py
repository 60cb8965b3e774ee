"""The in-memory table is as weak as DynamoDB where a test wants it to be: item by item, in any order."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pytest

from coldstream.errors import LostRaceError
from coldstream.manifest.commit import Neighbourhood, plan_commit
from coldstream.manifest.entry import Gap, Head
from coldstream.store.memory.table import MemoryTable
from coldstream.store.memory.visibility import BY_TIME, SeededVisibility
from coldstream.units import Offset, TimestampMs
from tests.store.samples import NOW, ORDERS, commit, entry

LIFE = ORDERS.incarnation


class Scripted:
    """Shows the oldest state of the items that are named, of all by "*", and the newest of the others."""

    def __init__(self) -> None:
        self.old: set[str] = set()
        self.asked: list[str] = []

    def pick(self, key: str, states: int) -> int:
        self.asked.append(key)
        return 0 if key in self.old or "*" in self.old else states - 1


def filled(*spans: tuple[int, int]) -> tuple[MemoryTable, Scripted]:
    policy = Scripted()
    table = MemoryTable(policy)
    for span in spans:
        commit(table, entry(*span))
    table.settle()
    return table, policy


def seen(table: MemoryTable) -> tuple[list[int], int | None]:
    page = table.log_from_offset(LIFE, Offset(0), 10)
    return [one.next_offset for one in page.entries], None if page.head is None else page.head.revision


ENTRY, HEAD = "log#00000000000000000020", "log#head"


@pytest.mark.parametrize(
    ("old", "shown"),
    [
        ({ENTRY, HEAD}, ([10], 1)),
        ({ENTRY}, ([10], 2)),
        ({HEAD}, ([10, 20], 1)),
        (set[str](), ([10, 20], 2)),
    ],
)
def test_a_query_shows_any_part_of_a_transaction(old: set[str], shown: tuple[list[int], int]) -> None:
    table, policy = filled((0, 10))
    policy.old = {"*"}
    commit(table, entry(10, 20))
    policy.old = old
    assert seen(table) == shown


def test_what_was_found_once_is_found_from_then_on() -> None:
    table, policy = filled((0, 10))
    policy.old = {"*"}
    commit(table, entry(10, 20))
    policy.old = {HEAD}
    assert seen(table) == ([10, 20], 1)
    policy.old = {"*"}
    assert seen(table) == ([10, 20], 1)
    table.settle()
    assert seen(table) == ([10, 20], 2)


def test_items_that_go_show_for_a_while_too() -> None:
    table, policy = filled((0, 10), (20, 30))
    policy.old = {"*"}
    commit(table, entry(10, 20))
    assert table.gaps(LIFE, 9) == (Gap(Offset(10), Offset(20)),)
    assert table.gap(LIFE, Offset(10)) == Gap(Offset(10), Offset(20))
    policy.old = set()
    assert table.gap(LIFE, Offset(10)) is None


def test_a_transaction_on_an_item_that_another_still_writes_is_refused() -> None:
    table, policy = filled((0, 10))
    policy.old = {"*"}
    first = plan_commit(Neighbourhood(Head(ORDERS, 1, next_offset=Offset(10))), entry(10, 20), NOW)
    table.apply(first)
    second = plan_commit(Neighbourhood(first.head), entry(20, 30), NOW)
    with pytest.raises(LostRaceError, match="conflict"):
        table.apply(second)
    policy.old = {ENTRY}
    table.apply(second)
    assert seen(table) == ([10, 30], 3)


def test_the_index_shows_each_item_as_late_as_it_likes_and_may_go_back() -> None:
    table, policy = filled((0, 10))
    policy.old = {BY_TIME + ENTRY}
    commit(table, entry(10, 20))
    seen(table)
    page = table.log_from_timestamp(LIFE, TimestampMs(0), 10)
    assert [one.next_offset for one in page.entries] == [10]
    assert page.head is not None
    assert page.head.revision == 2
    policy.old = set()
    assert len(table.log_from_timestamp(LIFE, TimestampMs(0), 10).entries) == 2
    policy.old = {"*"}
    page = table.log_from_timestamp(LIFE, TimestampMs(0), 10)
    assert [one.next_offset for one in page.entries] == [10]
    assert page.head is not None
    assert page.head.revision == 1


def test_an_item_that_moves_in_the_index_is_nowhere_for_a_while() -> None:
    class Nth:
        at = -1

        def pick(self, key: str, states: int) -> int:
            return min(self.at, states - 1) if key == BY_TIME + "log#00000000000000000030" else states - 1

    policy = Nth()
    table = MemoryTable(policy)
    commit(table, entry(0, 10))
    commit(table, entry(20, 30))
    table.log_from_offset(LIFE, Offset(0), 10)
    table.settle()
    commit(table, entry(10, 20, time=9000))
    table.log_from_offset(LIFE, Offset(0), 10)
    found = []
    for policy.at in range(3):
        page = table.log_from_timestamp(LIFE, TimestampMs(0), 10)
        found.append([one.running_timestamp for one in page.entries if one.next_offset == 30])
    assert found == [[1000], [], [9000]]


def test_all_that_a_policy_can_show_may_be_enumerated() -> None:
    class Enumerated:
        def __init__(self, choices: Iterable[bool]) -> None:
            self._choices = iter(choices)

        def pick(self, _: str, states: int) -> int:
            return int(next(self._choices)) if states > 1 else 0

    shown = []
    for choices in product((False, True), repeat=2):
        table = MemoryTable(Enumerated(choices))
        commit(table, entry(0, 10))
        shown.append(seen(table))
    assert shown == [([], None), ([], 1), ([10], None), ([10], 1)]


def test_another_may_write_between_two_items_of_one_query() -> None:
    class Writing(Scripted):
        table: MemoryTable | None = None

        def pick(self, key: str, states: int) -> int:
            if key == "log#00000000000000000010" and self.table is not None:
                table, self.table = self.table, None
                commit(table, entry(10, 20))
            return super().pick(key, states)

    policy = Writing()
    table = MemoryTable(policy)
    commit(table, entry(0, 10))
    policy.table = table
    assert seen(table) == ([10, 20], 2)


def test_a_seed_shows_the_same_again() -> None:
    def story(seed: int) -> list[object]:
        table = MemoryTable(SeededVisibility(seed))
        shown: list[object] = []
        for first in range(0, 100, 10):
            try:
                commit(table, entry(first, first + 10))
            except LostRaceError:
                shown.append("lost")
            shown.append(seen(table))
        return shown

    assert story(7) == story(7)
    assert len({str(story(seed)) for seed in range(5)}) > 1
