"""How far the manifest covers a stream, held against a walk of its entries."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from coldstream.archive.commit import commit_fragment
from coldstream.archive.coverage import covered_to, read_coverage
from coldstream.store.memory import MemoryTable
from coldstream.units import MAX_OFFSET, Offset
from tests.store.samples import NOW, ORDERS, entry

LIFE = ORDERS.incarnation


def table_of(*spans: tuple[int, int]) -> MemoryTable:
    table = MemoryTable()
    for first, following in spans:
        assert commit_fragment(table, ORDERS, entry(first, following), lambda: NOW)
    return table


def reached(table: MemoryTable, first: int, following: int = MAX_OFFSET) -> int:
    return covered_to(table, LIFE, Offset(first), Offset(following))


@pytest.mark.parametrize(
    ("first", "following", "expected"),
    [
        (0, 100, 0),
        (5, 100, 20),
        (7, 100, 20),
        (5, 20, 20),
        (5, 12, 12),
        (10, 100, 20),
        (20, 100, 20),
        (25, 100, 25),
        (30, 100, 50),
        (49, 50, 50),
        (50, 100, 50),
        (70, 100, 70),
    ],
)
def test_a_stream_is_covered_up_to_its_first_hole(first: int, following: int, expected: int) -> None:
    table = table_of((5, 10), (10, 20), (30, 40), (40, 50))
    assert reached(table, first, following) == expected


def test_a_stream_that_nobody_archived_is_covered_nowhere() -> None:
    assert reached(MemoryTable(), 7) == 7


def test_every_place_of_every_stream_is_covered_as_a_walk_of_its_entries_says() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        borders = sorted(rng.sample(range(80), 14))
        spans = [span for span in pairwise(borders) if rng.random() < rng.choice([0.7, 1])]
        rng.shuffle(spans)
        table = table_of(*spans)
        held = {offset for first, following in spans for offset in range(first, following)}
        for first in range(85):
            following = first + rng.randrange(1, 60)
            expected = next(
                offset for offset in range(first, following + 1) if offset not in held or offset == following
            )
            assert reached(table, first, following) == expected
            whole = read_coverage(table, LIFE, Offset(first), Offset(following)).holds(Offset(first), Offset(following))
            assert whole == (expected == following)


def test_the_cost_does_not_grow_with_the_stream() -> None:
    table = table_of(*((first, first + 10) for first in range(0, 3000, 10)))
    table.requests.clear()
    assert reached(table, 0) == 3000
    assert table.requests == {"GetItem": 1}
    table = table_of(*((first, first + 10) for first in range(0, 3000, 10) if first != 2500))
    table.requests.clear()
    assert reached(table, 0) == 2500
    assert table.requests == {"GetItem": 1, "Query": 2}
