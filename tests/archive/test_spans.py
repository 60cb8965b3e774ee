"""Which chunks and spans the entries that were read hold, and what reading them costs."""

from __future__ import annotations

from itertools import pairwise

import pytest

from coldstream.archive.commit import commit_fragment
from coldstream.archive.coverage import PAGE_ENTRIES, Coverage, covered_to, read_coverage
from coldstream.errors import ContradictionError
from coldstream.format.chunk import ChunkHeader
from coldstream.format.writer import make_chunk
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import Incarnation
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import LogPage
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.store.samples import NOW, ORDERS, entry

INCARNATION = ORDERS.incarnation


def table_of(*spans: tuple[int, int], table: MemoryTable | None = None) -> MemoryTable:
    table = table or MemoryTable()
    for first, following in spans:
        assert commit_fragment(table, ORDERS, entry(first, following), lambda: NOW)
    table.requests.clear()
    return table


def coverage_of(table: MemoryTable, first: int, following: int) -> Coverage:
    return read_coverage(table, INCARNATION, Offset(first), Offset(following))


def reached(table: MemoryTable, first: int, following: int) -> int:
    return covered_to(table, INCARNATION, Offset(first), Offset(following))


def header(first: int, following: int) -> ChunkHeader:
    messages = [b"x"] * (following - first)
    return make_chunk(messages, chunk_id=ChunkId(first), timestamp=TimestampMs(0), epoch=Epoch(1))[0]


TWO = (entry(10, 20), entry(30, 40))


@pytest.mark.parametrize(
    ("first", "following", "holder"),
    [
        (0, 10, None),
        (10, 20, TWO[0]),
        (10, 11, TWO[0]),
        (12, 15, TWO[0]),
        (19, 20, TWO[0]),
        (20, 30, None),
        (22, 28, None),
        (30, 40, TWO[1]),
        (40, 50, None),
    ],
)
def test_a_chunk_is_held_by_the_entry_that_has_all_of_it(first: int, following: int, holder: object) -> None:
    assert Coverage(TWO).holder_of(header(first, following), source="staged") == holder


@pytest.mark.parametrize(
    ("first", "following", "border"),
    [(5, 11, TWO[0]), (5, 20, TWO[0]), (5, 25, TWO[0]), (19, 21, TWO[0]), (10, 21, TWO[0]), (25, 31, TWO[1])],
)
def test_a_chunk_that_an_entry_has_a_part_of_contradicts_the_archive(
    first: int, following: int, border: object
) -> None:
    with pytest.raises(ContradictionError, match=f"offsets {first} to {following - 1} straddles the border") as caught:
        Coverage(TWO).holder_of(header(first, following), source="staged")
    assert caught.value.chunk_id == first
    assert getattr(border, "key", "") in str(caught.value)


def test_a_span_that_ends_at_the_floor_is_held_without_any_entry() -> None:
    removed = Coverage((), head=Head(ORDERS, floor=Offset(20)))
    assert removed.holds(Offset(0), Offset(20))
    assert removed.holds(Offset(20), Offset(20))
    assert not removed.holds(Offset(0), Offset(21))


def test_a_stream_that_nobody_archived_costs_one_query() -> None:
    table = MemoryTable()
    assert coverage_of(table, 0, 100) == Coverage(())
    assert reached(table, 0, 100) == 0
    assert table.requests == {"Query": 2}


def test_a_span_is_read_up_to_the_first_entry_after_it_and_then_the_head() -> None:
    table = table_of(*pairwise(range(0, 10 * PAGE_ENTRIES + 210, 10)))
    few = coverage_of(table, 5, 25)
    assert [one.first_offset for one in few.entries] == [0, 10, 20]
    assert few.after is not None
    assert few.after.first_offset == 30
    assert few.head == table.head(INCARNATION)
    assert table.requests == {"Query": 1, "GetItem": 1 + 1}
    table.requests.clear()
    assert len(coverage_of(table, 0, 10 * PAGE_ENTRIES + 200).entries) == PAGE_ENTRIES + 20
    assert table.requests == {"Query": 2}, "the second page shows the head"


def test_a_span_before_all_entries_is_read_with_the_head() -> None:
    table = table_of(*pairwise(range(10, 10 * PAGE_ENTRIES + 210, 10)))
    before = coverage_of(table, 0, 5)
    assert (before.entries, before.head) == ((), table.head(INCARNATION))


def test_how_far_a_stream_is_covered_costs_one_query_where_it_shows_the_end() -> None:
    table = table_of((0, 10), (10, 20))
    assert reached(table, 0, 100) == 20
    assert table.requests == {"Query": 1}


def test_how_far_a_stream_is_covered_costs_a_query_and_the_head_where_a_hole_shows() -> None:
    table = table_of((0, 10), *pairwise(range(20, 80, 10)))
    assert reached(table, 0, 100) == 10
    assert table.requests == {"Query": 1, "GetItem": 1}


def test_a_log_that_ends_before_its_tail_shows_half_of_a_change_and_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coldstream.archive.coverage.FIRST_DELAY_S", 0)

    class Late(MemoryTable):
        """Shows the last entry from the third query on, but the head at once."""

        reads = 0

        def log_from_offset(self, incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:
            page = super().log_from_offset(incarnation, offset, limit)
            self.reads += 1
            return page if self.reads > 2 else LogPage(page.entries[:-1], page.head)

    assert reached(table_of((0, 10), (10, 20), table=Late()), 0, 100) == 20
