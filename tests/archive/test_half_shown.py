"""Reads that show half of another writer's change: none is planned on, each is read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from coldstream.archive.commit import commit_fragment, read_missing
from coldstream.archive.missing import gaps_within, record_missing
from coldstream.errors import LostRaceError
from coldstream.manifest.entry import FragmentEntry, Gap, Loss, Missing, Quarantine
from coldstream.manifest.stream import Incarnation
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import LogPage
from coldstream.units import Offset
from tests.store.samples import NOW, ORDERS, entry
from tests.support.removing import head_of

INCARNATION = ORDERS.incarnation
START = Offset(0)


class Partial(MemoryTable):
    """Shows what filters leave of entries, gaps and what is missing."""

    entries: Callable[[FragmentEntry], FragmentEntry | None] = staticmethod(lambda entry: entry)
    shown_gaps: Callable[[Gap], Gap | None] = staticmethod(lambda gap: gap)
    hidden_missing = 0

    def log_from_offset(self, incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:
        page = super().log_from_offset(incarnation, offset, limit)
        return LogPage(tuple(one for entry in page.entries if (one := self.entries(entry))), page.head)

    def gaps(self, incarnation: Incarnation, limit: int, *, from_offset: Offset = START) -> tuple[Gap, ...]:
        found = super().gaps(incarnation, limit, from_offset=from_offset)
        return tuple(one for gap in found if (one := self.shown_gaps(gap)))

    def missing(self, incarnation: Incarnation) -> Iterator[Missing]:
        yield from list(super().missing(incarnation))[self.hidden_missing :]


def commit(table: MemoryTable, *spans: tuple[int, int], time: int = 1000) -> None:
    for first, following in spans:
        assert commit_fragment(table, ORDERS, entry(first, following, time=time), lambda: NOW)


def holed() -> Partial:
    table = Partial()
    commit(table, (0, 10), (20, 30), (40, 50), (60, 70))
    return table


def gaps_of(table: MemoryTable, first: int, following: int) -> list[tuple[int, int]]:
    found = gaps_within(table, head_of(table, INCARNATION), Offset(first), Offset(following))
    return [(gap.first_offset, gap.next_offset) for gap in found]


@pytest.mark.parametrize(
    ("first", "following", "expected"),
    [
        (0, 100, [(10, 20), (30, 40), (50, 60)]),
        (10, 11, [(10, 20)]),
        (12, 15, [(10, 20)]),
        (19, 31, [(10, 20), (30, 40)]),
        (20, 30, []),
        (20, 31, [(30, 40)]),
        (9, 10, []),
        (70, 100, []),
    ],
)
def test_the_gaps_of_a_span_are_those_that_overlap_it(first: int, following: int, expected: object) -> None:
    assert gaps_of(holed(), first, following) == expected


def test_a_gap_that_does_not_show_where_no_entry_is_is_half_of_a_change() -> None:
    table = holed()
    table.shown_gaps = lambda gap: None if gap.first_offset == 30 else gap
    with pytest.raises(LostRaceError, match="gaps from offset 10 on"):
        gaps_of(table, 0, 100)
    table.shown_gaps = lambda _: None
    with pytest.raises(LostRaceError, match="gaps from offset 30 on"):
        gaps_of(table, 25, 40)


def test_a_gap_of_other_offsets_than_the_hole_is_half_of_a_change() -> None:
    for changed in (Gap(Offset(30), Offset(35)), Gap(Offset(31), Offset(40))):
        table = holed()
        table.shown_gaps = lambda gap, changed=changed: changed if gap.first_offset == 30 else gap  # type: ignore[misc]
        with pytest.raises(LostRaceError, match="half of a change"):
            gaps_of(table, 0, 100)


def test_an_entry_that_links_to_one_which_does_not_show_is_half_of_a_change() -> None:
    table = holed()
    table.entries = lambda entry: None if entry.first_offset == 20 else entry
    with pytest.raises(LostRaceError, match="between offsets 12 and 40"):
        gaps_of(table, 12, 45)
    with pytest.raises(LostRaceError):
        gaps_of(table, 5, 45)


def test_an_entry_that_is_still_linked_as_the_first_is_half_of_a_change() -> None:
    table = holed()
    table.entries = lambda entry: replace(entry, prior_offset=None) if entry.first_offset == 40 else entry
    with pytest.raises(LostRaceError, match="between offsets 32 and 40"):
        gaps_of(table, 32, 45)


def test_a_tail_whose_entry_does_not_show_is_half_of_a_change() -> None:
    table = holed()
    table.entries = lambda entry: None if entry.first_offset == 60 else entry
    with pytest.raises(LostRaceError, match="the tail is 70, but the log shows no entry after 50"):
        gaps_of(table, 5, 100)
    table.entries = lambda _: None
    with pytest.raises(LostRaceError, match="the tail is 70, but the log shows no entry after 5"):
        gaps_of(table, 5, 100)


def quarantine(first: int, key: str) -> Quarantine:
    return Quarantine(Offset(first), Offset(first + 10), "bad CRC", NOW, key, f'"{key}"')


def test_fewer_losses_or_quarantines_than_the_head_counts_are_half_of_a_change() -> None:
    table = Partial()
    assert read_missing(table, replace(head_of(holed(), INCARNATION))) == ()
    for one in (Loss(Offset(70), Offset(80), "gone", NOW), quarantine(80, "one"), quarantine(80, "two")):
        record_missing(table, ORDERS, one)
    head = head_of(table, INCARNATION)
    assert (head.losses, head.quarantined, head.quarantined_again) == (1, 1, 1)
    assert len(read_missing(table, head)) == 2
    for field in ("losses", "quarantined", "quarantined_again"):
        with pytest.raises(LostRaceError, match="changed while they were read"):
            read_missing(table, replace(head, **{field: 2}))
    table.hidden_missing = 1
    with pytest.raises(LostRaceError, match="changed while they were read"):
        read_missing(table, head)


def test_a_caller_that_has_just_read_the_head_saves_reading_it_again() -> None:
    table = MemoryTable()
    commit(table, (0, 10))
    head = head_of(table, INCARNATION)
    table.requests.clear()
    assert commit_fragment(table, ORDERS, entry(10, 20), lambda: NOW, head)
    assert table.requests == {"TransactWriteItems": 1}
    # It is of one attempt only: a head that has changed since then is read again.
    assert commit_fragment(table, ORDERS, entry(20, 30), lambda: NOW, head)
    assert head_of(table, INCARNATION).next_offset == 30


def test_a_late_entry_reads_no_further_than_the_first_successor_that_stays_as_it_is() -> None:
    table = MemoryTable()
    commit(table, (0, 10), *((first, first + 10) for first in range(20, 820, 10)))
    table.requests.clear()
    commit(table, (10, 20))
    assert table.requests == {"GetItem": 1, "Query": 1 + 1, "TransactWriteItems": 1}
