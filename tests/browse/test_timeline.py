"""The timeline of a stream, from the head and the items beside it."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from coldstream.archive.missing import record_missing
from coldstream.browse.coverage import GONE_AT_BROKER
from coldstream.browse.drawing import join_by_place, join_neighbours
from coldstream.browse.spans import BrokerOffsets, SpanKind, TimelineSpan
from coldstream.browse.stream_timeline import StreamTimeline
from coldstream.browse.timeline import OTHER_AT_BROKER, read_timeline
from coldstream.errors import InvalidQueryError, LostRaceError, StreamNotFoundError
from coldstream.manifest.entry import Gap, Hold, Loss, Missing, Quarantine
from coldstream.manifest.holding import plan_hold
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.memory.table import MemoryTable
from coldstream.store.memory.visibility import SeededVisibility
from coldstream.store.ports import StreamOverview
from coldstream.store.table import DynamoTable
from coldstream.units import Offset
from tests.store.samples import NOW, ORDERS, commit, entry
from tests.store.wire import Wire
from tests.support.archive import ChunkArchive, steady
from tests.support.hostile_text import HOSTILE_TEXTS
from tests.support.removing import delete, remove_prefix

LIFE = ORDERS.incarnation

Shape = list[tuple[str, int, int]]


def holed(*firsts: int, table: MemoryTable | None = None) -> MemoryTable:
    """A stream with ten offsets from each of these on."""
    table = table or MemoryTable()
    for first in firsts:
        commit(table, entry(first, first + 10))
    return table


def shape(spans: tuple[TimelineSpan, ...]) -> Shape:
    return [(span.kind.value, span.first_offset, span.next_offset) for span in spans]


def check_cover(found: StreamTimeline) -> None:
    """Every offset is in exactly one span."""
    at = 0
    for span in found.coverage:
        assert span.first_offset == at
        assert span.next_offset > at
        at = span.next_offset
    assert at == found.next_offset


def lose(table: MemoryTable, first: int, following: int, reason: str = "the disk was full") -> None:
    record_missing(table, ORDERS, Loss(Offset(first), Offset(following), reason, NOW))


def test_what_is_archived_and_what_is_missing_come_in_turn() -> None:
    table = holed(0, 20, 40)
    lose(table, 10, 20)
    found = read_timeline(table, ORDERS)
    assert shape(found.coverage) == [
        ("archived", 0, 10),
        ("gap", 10, 20),
        ("archived", 20, 30),
        ("gap", 30, 40),
        ("archived", 40, 50),
    ]
    assert [span.reason for span in found.coverage if span.kind is SpanKind.GAP] == ["the disk was full", None]
    assert shape(found.losses) == [("loss", 10, 20)]
    assert (found.scale_from, found.scale_offsets, found.broker) == (0, 50, None)


def test_a_stream_of_a_million_fragments_costs_the_same_two_queries() -> None:
    """The log is never read: of the table that counts, any method but `overview` would fail."""
    table = holed(*range(0, 1000, 20))

    class OnlyOverview:
        def overview(self, incarnation: Incarnation) -> StreamOverview:
            return table.overview(incarnation)

    table.requests.clear()
    found = read_timeline(OnlyOverview(), ORDERS)  # type: ignore[arg-type]
    assert table.requests == {"Query": 2}
    assert found.cost.queries == 2
    check_cover(found)


def test_on_dynamodb_it_is_two_queries(dynamo_table: DynamoTable) -> None:
    for first in range(0, 400, 20):
        commit(dynamo_table, entry(first, first + 10))
    with Wire(dynamo_table._connection().client) as seen:
        found = read_timeline(dynamo_table, ORDERS)
    assert seen.calls == ["Query", "Query"]
    assert found.head.gaps == sum(span.kind is SpanKind.GAP for span in found.coverage) == 19


def test_what_was_removed_is_below_the_floor() -> None:
    archive = ChunkArchive()
    for number in range(4):
        archive.add(number * 10, steady(10, number))
    remove_prefix(archive.table, archive.stream.incarnation, 2)
    found = read_timeline(archive.table, archive.stream)
    assert shape(found.coverage) == [("removed", 0, 20), ("archived", 20, 40)]
    assert found.scale_from == 20


def test_an_archive_that_begins_after_its_stream_begins_with_a_gap_and_its_reason() -> None:
    table = holed(50)
    lose(table, 0, 50, "retention was faster")
    found = read_timeline(table, ORDERS)
    assert shape(found.coverage) == [("gap", 0, 50), ("archived", 50, 60)]
    assert found.coverage[0].reason == "retention was faster"
    assert found.scale_from == 50


def test_what_is_lost_past_the_tail_is_a_gap_and_the_broker_may_have_what_is_between() -> None:
    table = holed(0)
    lose(table, 20, 30, "one")
    record_missing(table, ORDERS, Quarantine(Offset(25), Offset(40), "two", NOW, "quarantine/x", '"etag"'))
    found = read_timeline(table, ORDERS)
    assert shape(found.coverage) == [("archived", 0, 10), ("waiting", 10, 20), ("gap", 20, 40)]
    assert found.coverage[-1].reason == "one; in quarantine: two"
    assert shape(found.quarantines) == [("quarantine", 25, 40)]


def test_the_range_of_the_broker_reaches_past_the_tail() -> None:
    found = read_timeline(holed(0, 10), ORDERS, broker=BrokerOffsets(Offset(5), Offset(33)))
    assert shape(found.coverage) == [("archived", 0, 20), ("waiting", 20, 33)]


def test_what_neither_the_archive_nor_the_broker_has_is_a_gap() -> None:
    found = read_timeline(holed(0), ORDERS, broker=BrokerOffsets(Offset(15), Offset(30)))
    assert shape(found.coverage) == [("archived", 0, 10), ("gap", 10, 15), ("waiting", 15, 30)]
    assert found.coverage[1].reason == GONE_AT_BROKER


@pytest.mark.parametrize("broker", [BrokerOffsets(), BrokerOffsets(problem="no answer")])
def test_a_broker_that_tells_nothing_new_changes_nothing(broker: BrokerOffsets) -> None:
    found = read_timeline(holed(0), ORDERS, broker=broker)
    assert shape(found.coverage) == [("archived", 0, 10)]
    assert found.broker == broker


def test_a_broker_that_ends_before_the_archive_has_another_incarnation_and_is_not_drawn() -> None:
    found = read_timeline(holed(0), ORDERS, broker=BrokerOffsets(Offset(0), Offset(4)))
    assert shape(found.coverage) == [("archived", 0, 10)]
    assert found.broker is not None
    assert (found.broker.first_offset, found.broker.next_offset) == (None, None)
    assert found.broker.problem == f"{OTHER_AT_BROKER}: it ends before offset 4"


def test_holds_have_their_reason_and_reach_the_end_if_they_have_none() -> None:
    table = holed(0, 10)
    for id_, first, following in (("a", 3, 7), ("b", 5, None), ("c", 90, None)):
        head = table.head(LIFE)
        assert head is not None
        end = None if following is None else Offset(following)
        table.apply(plan_hold(head, Hold(id_, Offset(first), end, HOSTILE_TEXTS["script"], "jo", NOW)))
    found = read_timeline(table, ORDERS)
    assert shape(found.holds) == [("hold", 3, 7), ("hold", 5, 20), ("hold", 90, 91)]
    assert {(span.reason, span.by) for span in found.holds} == {(HOSTILE_TEXTS["script"], "jo")}


def test_a_stream_of_which_nothing_is_archived_yet_has_an_empty_timeline() -> None:
    table = MemoryTable()
    lose(table, 5, 9)
    found = read_timeline(table, ORDERS)
    assert shape(found.coverage) == [("waiting", 0, 5), ("gap", 5, 9)]


def test_a_deleted_stream_has_a_timeline() -> None:
    archive = ChunkArchive()
    archive.add(0, steady(10, 1))
    delete(archive.table, archive.stream.incarnation)
    found = read_timeline(archive.table, archive.stream)
    assert found.head.is_deleted


def test_an_unknown_stream_is_not_found_and_neither_is_an_incarnation_of_another() -> None:
    with pytest.raises(StreamNotFoundError):
        read_timeline(MemoryTable(), ORDERS)
    with pytest.raises(StreamNotFoundError):
        read_timeline(holed(0), StreamId("/", "others", LIFE))


@pytest.mark.parametrize("max_spans", [0, 15, 10_001])
def test_too_few_or_too_many_spans_are_refused(max_spans: int) -> None:
    with pytest.raises(InvalidQueryError, match="max_spans"):
        read_timeline(holed(0), ORDERS, max_spans=max_spans)


class ScriptedOverviews(MemoryTable):
    """Shows these overviews in turn."""

    def __init__(self, *overviews: StreamOverview) -> None:
        super().__init__()
        self.overviews = list(overviews)

    def overview(self, incarnation: Incarnation, *, page_items: int | None = None) -> StreamOverview:
        return self.overviews.pop(0)


def test_a_view_that_contradicts_itself_is_read_again_after_a_pause() -> None:
    table = holed(0, 20)
    right = table.overview(LIFE)
    half = StreamOverview(right.head)
    slept: list[float] = []
    found = read_timeline(ScriptedOverviews(half, half, right), ORDERS, sleep=slept.append)
    assert not found.is_changing
    assert len(slept) == 2
    assert found.cost.queries == 6
    check_cover(found)


def test_a_view_that_never_agrees_says_so_and_still_covers_every_offset() -> None:
    table = holed(0, 20)
    right = table.overview(LIFE)
    strange = StreamOverview(right.head, gaps=(Gap(Offset(25), Offset(90)), Gap(Offset(8), Offset(20))))
    found = read_timeline(ScriptedOverviews(*[strange] * 3), ORDERS, sleep=lambda _: None)
    assert found.is_changing
    check_cover(found)


def test_of_gaps_that_do_not_fit_the_oldest_are_told_as_unread() -> None:
    table = holed(0, 20, 40, 60)
    cut = table.overview(LIFE, page_items=2)
    found = read_timeline(ScriptedOverviews(cut), ORDERS)
    assert found.is_cut
    assert not found.is_changing
    assert shape(found.coverage) == [
        ("unread", 0, 30),
        ("gap", 30, 40),
        ("archived", 40, 50),
        ("gap", 50, 60),
        ("archived", 60, 70),
    ]


def test_if_no_gap_was_read_all_of_the_archive_is_unread() -> None:
    cut = StreamOverview(holed(0, 20).overview(LIFE).head, gaps_from=Offset((1 << 64) - 1))
    assert shape(read_timeline(ScriptedOverviews(cut), ORDERS).coverage) == [("unread", 0, 30)]


def random_spans(rng: random.Random, count: int) -> list[TimelineSpan]:
    at, found = rng.randrange(1 << 40), []
    for number in range(count):
        following = at + rng.choice([1, 1, 2, 50, 10**4, 10**9])
        kind = SpanKind.ARCHIVED if number % 2 == 0 else SpanKind.GAP
        missing = following - at if kind is SpanKind.GAP else 0
        reason = rng.choice([None, "one", "two", "three", "four"]) if missing else None
        found.append(TimelineSpan(kind, Offset(at), Offset(following), reason, missing_offsets=missing))
        at = following
    return found


@pytest.mark.parametrize("seed", range(60))
def test_joined_spans_are_few_cover_the_same_and_hide_no_gap(seed: int) -> None:
    rng = random.Random(seed)
    spans = random_spans(rng, rng.randrange(1, 600))
    most = rng.randrange(14, 400)
    found = join_neighbours(spans, most)
    assert len(found) <= most
    assert (found[0].first_offset, found[-1].next_offset) == (spans[0].first_offset, spans[-1].next_offset)
    for before, after in pairwise(found):
        assert before.next_offset == after.first_offset
    assert sum(span.parts for span in found) == len(spans)
    assert sum(span.missing_offsets for span in found) == sum(span.missing_offsets for span in spans)
    for gap in spans:
        if gap.kind is SpanKind.GAP:
            (around,) = (span for span in found if span.first_offset <= gap.first_offset < span.next_offset)
            assert around.kind is SpanKind.GAP


def test_spans_that_are_few_stay_as_they_are() -> None:
    spans = random_spans(random.Random(1), 14)
    assert join_neighbours(spans, 14) == tuple(spans)


def test_joined_spans_name_the_first_reasons() -> None:
    spans = [
        TimelineSpan(SpanKind.GAP, Offset(n), Offset(n + 1), reason, missing_offsets=1)
        for n, reason in enumerate([None, "a", "a", "b", "c", "d"] * 5)
    ]
    joined = join_neighbours(spans, 14)
    assert joined[0].reason == "not explained; a; b; and 1 more"
    assert join_by_place(spans, 1)[0].reason == "not explained; a; b; and 2 more"


@pytest.mark.parametrize("seed", range(20))
def test_spans_that_overlap_are_joined_by_where_they_begin(seed: int) -> None:
    rng = random.Random(seed)
    spans = []
    for _ in range(500):
        first = rng.randrange(10**6)
        spans.append(TimelineSpan(SpanKind.LOSS, Offset(first), Offset(first + rng.choice([1, 10**5])), "why"))
    found = join_by_place(spans, 40)
    assert len(found) <= 40
    assert sum(span.parts for span in found) == 500
    for span in spans:
        assert any(one.first_offset <= span.first_offset and span.next_offset <= one.next_offset for one in found)


@pytest.mark.parametrize("seed", range(40))
def test_every_offset_of_a_random_stream_is_in_one_span(seed: int) -> None:
    rng = random.Random(seed)
    table = MemoryTable()
    offset = rng.choice([0, 30])
    archived: set[int] = set()
    for _ in range(rng.randrange(0, 12)):
        if rng.random() < 0.4:
            offset += rng.randrange(1, 30)
        following = offset + rng.randrange(1, 20)
        commit(table, entry(offset, following))
        archived |= set(range(offset, following))
        offset = following
    for _ in range(rng.randrange(0 if archived else 1, 6)):
        first = rng.randrange(0, 200)
        one: Missing = Loss(Offset(first), Offset(first + rng.randrange(1, 60)), f"why {first}", NOW)
        record_missing(table, ORDERS, one)
    broker = rng.choice([None, BrokerOffsets(), BrokerOffsets(Offset(rng.randrange(250)), Offset(260))])
    found = read_timeline(table, ORDERS, broker=broker)
    check_cover(found)
    covered = {
        offset
        for span in found.coverage
        if span.kind is SpanKind.ARCHIVED
        for offset in range(span.first_offset, span.next_offset)
    }
    assert covered == archived


@pytest.mark.parametrize("seed", range(150))
def test_while_changes_show_by_half_every_offset_is_in_one_span_all_the_same(seed: int) -> None:
    rng = random.Random(seed)
    table = MemoryTable(SeededVisibility(seed))
    fragments = [entry(first, first + 10) for first in range(0, 120, 10)]
    rng.shuffle(fragments)
    for number, one in enumerate(fragments):
        for _ in range(20):  # refused while another change is being written
            try:
                commit(table, one)
                break
            except LostRaceError:
                continue
        if number == 0:
            table.settle()  # before, there may be no stream yet
        if number % 3 == 2:
            record_missing(table, ORDERS, Loss(Offset(130 + number), Offset(131 + number), "why", NOW))
        found = read_timeline(table, ORDERS, sleep=lambda _: None)
        check_cover(found)
    table.settle()
    whole = read_timeline(table, ORDERS, sleep=lambda _: None)
    assert not whole.is_changing
    check_cover(whole)
