"""How far the manifest covers a stream, compared with a walk of its entries."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise

import pytest

from coldstream.archive.commit import commit_fragment
from coldstream.archive.coverage import Coverage, covered_to, read_coverage
from coldstream.errors import ContradictionError
from coldstream.format.chunk import ChunkHeader
from coldstream.format.writer import make_chunk
from coldstream.manifest.compaction import plan_replacement
from coldstream.manifest.groups import Group
from coldstream.store.memory.table import MemoryTable
from coldstream.store.sortkeys import gap_key, log_key
from coldstream.units import MAX_OFFSET, ChunkId, Epoch, Offset, TimestampMs
from tests.store.samples import NOW, ORDERS, entry
from tests.support.removing import delete, remove_prefix, undelete

INCARNATION = ORDERS.incarnation


def table_of(*spans: tuple[int, int], table: MemoryTable | None = None) -> MemoryTable:
    table = table or MemoryTable()
    for first, following in spans:
        assert commit_fragment(table, ORDERS, entry(first, following), lambda: NOW)
    return table


def reached(table: MemoryTable, first: int, following: int = MAX_OFFSET) -> int:
    return covered_to(table, INCARNATION, Offset(first), Offset(following))


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


def test_every_offset_of_every_stream_is_covered_as_a_walk_of_its_entries_says() -> None:
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
            whole = read_coverage(table, INCARNATION, Offset(first), Offset(following)).holds(
                Offset(first), Offset(following)
            )
            assert whole == (expected == following)


def test_a_slice_is_looked_for_by_one_query_and_a_long_span_by_one_for_a_thousand_entries() -> None:
    table = table_of(*((first, first + 10) for first in range(0, 3000, 10) if first != 2500))
    for first, following, queries in [(0, 10, 1), (1000, 1040, 1), (3000, 3010, 1), (0, 50, 2), (0, MAX_OFFSET, 2)]:
        table.requests.clear()
        assert reached(table, first, following) == min(following, 2500 if first < 2500 else 3000)
        assert table.requests == {"Query": queries}


class Hidden:
    """Hides what a transaction in progress has written to some items."""

    keys: tuple[str, ...] = ()

    def pick(self, key: str, states: int) -> int:
        return 0 if key in self.keys else states - 1


def answers_whatever_shows(
    before: Iterable[tuple[int, int]], change: Callable[[MemoryTable], None], keys: Iterable[str]
) -> Iterator[dict[int, int]]:
    """Show a change in every possible part; yield how far the stream is then covered from each offset on."""
    written = list(keys)
    for size in range(len(written) + 1):
        for hidden in combinations(written, size):
            policy = Hidden()
            table = MemoryTable(policy)
            for span in before:
                assert commit_fragment(table, ORDERS, entry(*span), lambda: NOW)
            change(table)
            policy.keys = hidden
            yield {first: reached(table, first, 100) for first in range(70)}


def log_keys(*next_offsets: int) -> list[str]:
    return ["log#head", *(log_key(Offset(end)) for end in next_offsets)]


def test_a_gap_that_is_filled_from_its_left_releases_nothing_that_is_still_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coldstream.archive.coverage.FIRST_DELAY_S", 0)
    keys = [*log_keys(20, 40), gap_key(Offset(10)), gap_key(Offset(20))]
    seen = set()
    for answers in answers_whatever_shows([(0, 10), (30, 40)], lambda table: table_of((10, 20), table=table), keys):
        right = {first: 20 if first < 20 else 40 if 30 <= first < 40 else first for first in answers}
        assert all(first <= answer <= right[first] for first, answer in answers.items())
        seen.add(answers[0])
    assert seen == {10, 20}


def test_a_compaction_hides_nothing_for_longer_than_it_takes_to_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("coldstream.archive.coverage.READS", 3)
    monkeypatch.setattr(time, "sleep", asked.append)

    def compact(table: MemoryTable) -> None:
        head, log = table.head(INCARNATION), table.log_from_offset(INCARNATION, Offset(0), 10).entries
        assert head is not None
        group = Group(log[1:5])
        merged = group.merged(key="merged", generation=1, object_bytes=5, crc32=5)
        table.apply(plan_replacement(head, group.entries, group, merged, at=NOW, due_at=NOW))

    spans = list(pairwise(range(0, 70, 10)))
    whole = 0
    for answers in answers_whatever_shows(spans, compact, log_keys(20, 30, 40, 50)):
        assert all(first <= answer <= max(first, 60) for first, answer in answers.items())
        if set(answers.values()) == {60, *range(60, 70)}:
            whole += 1
        else:
            assert asked, "it was read again"
        asked.clear()
    assert whole == 2 * (8 + 1), "with the merged entry, or with all of the others"


@pytest.mark.parametrize(
    ("first", "following", "expected"),
    [(0, 100, 20), (5, 100, 20), (5, 12, 12), (0, 20, 20), (15, 100, 20), (20, 100, 20), (30, 100, 50), (25, 100, 25)],
)
def test_what_lies_below_the_floor_is_covered(first: int, following: int, expected: int) -> None:
    table = table_of((5, 10), (10, 20), (30, 40), (40, 50))
    remove_prefix(table, INCARNATION, 2)
    assert reached(table, first, following) == expected


def test_the_chain_goes_on_from_the_floor() -> None:
    table = table_of((5, 10), (10, 20), (20, 40), (40, 50))
    remove_prefix(table, INCARNATION, 2)
    assert reached(table, 0) == 50


def test_all_of_a_log_that_lost_its_entries_is_covered_up_to_its_floor() -> None:
    table = table_of((5, 10), (10, 20))
    remove_prefix(table, INCARNATION, 2)
    assert reached(table, 0) == 20
    assert reached(table, 20, 30) == 20


def test_a_deletion_that_can_be_undone_covers_nothing_and_one_that_cannot_covers_all() -> None:
    table = table_of((5, 10), (10, 20), (30, 40))
    delete(table, INCARNATION)
    assert reached(table, 0, 1000) == 0
    assert reached(table, 5, 1000) == 20
    assert reached(table, 50, 1000) == 50
    undelete(table, INCARNATION)
    assert reached(table, 50, 1000) == 50
    delete(table, INCARNATION)
    remove_prefix(table, INCARNATION, 1)
    assert reached(table, 0, 1000) == 1000
    assert reached(table, 50, 1000) == 1000


def test_an_agent_at_the_tail_pays_one_query_however_much_was_removed() -> None:
    table = table_of((5, 10), (10, 20), (20, 30))
    remove_prefix(table, INCARNATION, 2)
    table.requests.clear()
    assert reached(table, 20, 30) == 30
    assert reached(table, 30, 40) == 30
    assert table.requests == {"Query": 2}


def test_a_span_below_the_floor_is_held_and_removed_and_one_across_it_is_held() -> None:
    table = table_of((5, 10), (10, 20), (20, 30))
    remove_prefix(table, INCARNATION, 2)
    coverage = read_coverage(table, INCARNATION, Offset(0), Offset(30))
    assert coverage.holds(Offset(0), Offset(20))
    assert coverage.holds(Offset(0), Offset(30))
    assert not coverage.holds(Offset(0), Offset(31))
    assert coverage.is_removed(Offset(20))
    assert not coverage.is_removed(Offset(21))
    assert (coverage.floor, coverage.generation) == (20, 1)


def header(first: int, records: int) -> ChunkHeader:
    return make_chunk([b"x"] * records, chunk_id=ChunkId(first), timestamp=TimestampMs(0), epoch=Epoch(1))[0]


def test_a_chunk_below_the_floor_counts_as_archived_and_one_across_it_contradicts_the_archive() -> None:
    table = table_of((5, 10), (10, 20), (40, 50))
    remove_prefix(table, INCARNATION, 2)
    coverage = read_coverage(table, INCARNATION, Offset(0), Offset(60))
    assert coverage.covers(header(18, 2), source="staged")
    assert not coverage.covers(header(20, 2), source="staged")
    assert coverage.covers(header(40, 10), source="staged")
    with pytest.raises(ContradictionError, match="straddles 20"):
        coverage.covers(header(18, 3), source="staged")


def test_the_checksum_of_a_segment_is_unknown_if_messages_of_it_were_erased() -> None:
    known = replace(entry(5, 10), data_crc32=7)
    assert Coverage((known,)).segment_crc32() is not None
    assert Coverage((replace(known, erased=True),)).segment_crc32() is None
