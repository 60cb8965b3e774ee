"""Known losses at and past the tail are answered as a gap, not left to the broker."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from coldstream.archive.missing import record_missing
from coldstream.manifest.entry import Gap, Loss, Missing, Quarantine
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import Incarnation
from coldstream.read.scan import offset_of, plan_scan
from coldstream.resolve.answer import Answer, AnswerOutcome, Bounds
from coldstream.resolve.cursor import Cursor
from coldstream.resolve.resolve import ResolveRequest, resolve
from coldstream.resolve.tail import FOLLOWING, NEAREST
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset, TimestampMs
from tests.support.archive import NOW, STREAM, ChunkArchive, steady

INCARNATION = STREAM.incarnation
TAIL = 10


def lost(first: int, following: int, reason: str = "retention was faster") -> Loss:
    return Loss(Offset(first), Offset(following), reason, NOW)


def aside(first: int, following: int) -> Quarantine:
    return Quarantine(Offset(first), Offset(following), "bad CRC", NOW, "k", "etag")


def archived(*missing: Missing, table: MemoryTable | None = None) -> ChunkArchive:
    """Archive the offsets up to 10, two chunks at times 1 and 2, and record what is missing."""
    archive = ChunkArchive()
    archive.table = table or archive.table
    archive.add(0, steady(5, 1, 2))
    for one in missing:
        record_missing(archive.table, STREAM, one)
    return archive


def ask(archive: ChunkArchive, start: OffsetSpec | Cursor, bounds: Bounds | None = None) -> Answer:
    archive.table.requests.clear()
    request = ResolveRequest(STREAM, start, bounds or Bounds())
    return resolve(request, archive.table, archive.objects, now=NOW, url_expiry_s=60)


def at(archive: ChunkArchive, offset: int) -> Answer:
    answer = ask(archive, AtOffset(Offset(offset)))
    assert answer == ask(archive, Cursor(INCARNATION, Offset(offset)))
    return answer


def gap(first: int, following: int, reason: str = "retention was faster") -> Gap:
    return Gap(Offset(first), Offset(following), reason)


@pytest.mark.parametrize("offset", range(10, 20))
def test_every_offset_that_is_lost_at_the_tail_is_answered_with_the_gap(offset: int) -> None:
    assert at(archived(lost(10, 20)), offset) == Answer(STREAM, gap=gap(10, 20))


@pytest.mark.parametrize("offset", [20, 21, 1000])
def test_after_what_is_lost_the_broker_has_it_from_there_and_not_from_the_tail(offset: int) -> None:
    assert at(archived(lost(10, 20)), offset) == Answer(STREAM, tail=Offset(20))


def test_ranges_that_end_at_the_tail_are_followed_by_what_is_lost_there() -> None:
    for start in (FIRST, LAST, AtOffset(Offset(3)), AtTimestamp(TimestampMs(2)), Cursor(INCARNATION, Offset(7))):
        answer = ask(archived(lost(10, 20)), start)
        assert answer.outcome is AnswerOutcome.RANGES
        assert answer.gap == gap(10, 20)


def test_a_time_after_all_that_is_archived_may_be_among_what_is_lost() -> None:
    assert ask(archived(lost(10, 20)), AtTimestamp(TimestampMs(3))) == Answer(STREAM, gap=gap(10, 20))


def test_next_is_still_the_tail() -> None:
    archive = archived(lost(10, 20))
    assert ask(archive, NEXT) == Answer(STREAM, tail=Offset(10))
    assert archive.table.requests == {"GetItem": 1}


def test_adjoining_losses_are_one_gap_with_the_reasons_of_all() -> None:
    archive = archived(lost(10, 15, "disk"), lost(15, 20, "retention"), aside(18, 30), lost(31, 40))
    whole = gap(10, 30, "disk; retention; in quarantine: bad CRC")
    assert [at(archive, offset).gap for offset in range(10, 30)] == [whole] * 20
    assert at(archive, 30).tail == 30
    assert at(archive, 35).gap == gap(31, 40)
    assert at(archive, 40).tail == 40


def test_a_loss_that_was_archived_in_part_is_told_from_the_tail_on() -> None:
    assert at(archived(lost(0, 20), lost(2, 5)), 12).gap == gap(10, 20)


def test_what_is_lost_past_offsets_that_are_still_on_their_way_is_told_where_it_is() -> None:
    archive = archived(lost(20, 30))
    assert at(archive, 10).tail == 10
    assert at(archive, 19).tail == 10
    assert at(archive, 20).gap == gap(20, 30)
    assert at(archive, 30).tail == 30


def test_more_losses_than_are_read_at_a_time_are_gap_after_gap() -> None:
    archive = archived()
    head = archive.table.head(INCARNATION)
    assert head is not None
    end = 10 + 2 * (FOLLOWING + NEAREST)
    for first in range(10, end):
        record_missing(archive.table, STREAM, lost(first, first + 1, f"reason {first}"))
    offset, gaps = 10, 0
    while (found := at(archive, offset).gap) is not None:
        assert found.first_offset <= offset < found.next_offset
        offset, gaps = found.next_offset, gaps + 1
    assert (offset, gaps) == (end, 3)


@pytest.mark.parametrize("seed", range(100))
def test_random_losses_are_told_as_reading_all_of_them_says(seed: int) -> None:
    rng = random.Random(seed)
    archive = archived()
    missing: list[Missing] = []
    for _ in range(rng.randrange(1, 8)):
        first = rng.randrange(0, 30)
        one = rng.choice([lost, aside])(first, first + rng.randrange(1, 12))
        record_missing(archive.table, STREAM, one)
        missing.append(one)
    covered = {offset for one in missing for offset in range(one.first_offset, one.next_offset) if offset >= TAIL}
    for offset in range(TAIL, 45):
        answer = at(archive, offset)
        if offset in covered:
            assert answer.gap is not None
            told = range(answer.gap.first_offset, answer.gap.next_offset)
            assert covered.issuperset(told)
            assert offset in told
            assert {told.start - 1, told.stop}.isdisjoint(covered)
            assert answer.gap.reason
        else:
            ends = [int(one.next_offset) for one in missing if one.next_offset <= offset]
            assert answer.tail == max([TAIL, *ends])


def test_a_lookup_before_the_tail_costs_nothing_more_and_one_at_the_tail_a_query_more() -> None:
    archive = archived(lost(0, 3), lost(4, 6))
    archive.add(10, steady(5, 3, 4))
    ask(archive, FIRST, Bounds(max_ranges=1))
    assert archive.table.requests == {"Query": 1}
    assert at(archive, 20).tail == 20
    assert archive.table.requests == {"Query": 2}
    assert ask(archive, FIRST).tail == 20
    assert archive.table.requests == {"Query": 2}


def test_a_gap_at_the_tail_is_told_after_three_queries_more() -> None:
    archive = archived(lost(10, 20))
    at(archive, 12)
    assert archive.table.requests == {"Query": 4}


class ArchivedMeanwhile(MemoryTable):
    """A table that changes right before its missing items are read."""

    comes: Callable[[], object] | None = None

    def missing_before(
        self, incarnation: Incarnation, kind: type[Missing], offset: Offset, limit: int
    ) -> tuple[Missing, ...]:
        if self.comes is not None:
            comes, self.comes = self.comes, None
            comes()
        return super().missing_before(incarnation, kind, offset, limit)


@pytest.mark.parametrize("offset", [10, 12, 19])
def test_what_is_archived_after_all_while_it_is_looked_for_is_no_gap(offset: int) -> None:
    table = ArchivedMeanwhile()
    archive = archived(lost(10, 20), table=table)
    table.comes = lambda: archive.add(10, steady(5, 3, 4))
    answer = at(archive, offset)
    assert [part.next_offset for part in answer.ranges] == [20]
    assert answer.tail == 20


def test_ranges_to_a_tail_that_moves_meanwhile_are_followed_by_a_cursor() -> None:
    table = ArchivedMeanwhile()
    archive = archived(lost(10, 20), table=table)
    table.comes = lambda: archive.add(10, steady(5, 3, 4))
    answer = ask(archive, FIRST)
    assert [part.next_offset for part in answer.ranges] == [10]
    assert answer.cursor == Cursor(INCARNATION, Offset(10)).to_text()
    assert ask(archive, Cursor(INCARNATION, Offset(10))).tail == 20


def test_a_scan_tells_what_is_lost_at_the_tail_and_next_is_before_it() -> None:
    archive = archived(lost(10, 20))
    assert offset_of(archive.table, archive.objects, STREAM, NEXT) == 10
    assert list(plan_scan(archive.table, STREAM, Offset(10), Offset(30))) == [gap(10, 20)]
    assert list(plan_scan(archive.table, STREAM, Offset(20))) == []
