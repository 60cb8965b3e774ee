"""Names, descriptions and pages of streams."""

from __future__ import annotations

import pytest

from coldstream.archive.missing import record_missing
from coldstream.errors import InvalidNameError, InvalidQueryError, StreamNotFoundError
from coldstream.manifest.entry import Gap, Loss, Quarantine
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.resolve.answer import Bounds, Continue, RangesQuery
from coldstream.resolve.resolver import NAMES_KEPT_S, Resolver
from coldstream.store.ports import LogPage
from coldstream.units import Offset
from tests.support.archive import NOW, STREAM, ChunkArchive, steady


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def archive() -> ChunkArchive:
    archive = ChunkArchive()
    archive.add(0, steady(5, 1, 2))
    archive.add(20, steady(5, 3, 4))
    return archive


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def resolver(archive: ChunkArchive, clock: Clock) -> Resolver:
    return Resolver(archive.table, archive.objects, url_expiry_s=60, now=lambda: NOW, clock=clock)


def test_a_name_is_looked_up_once_in_a_while(archive: ChunkArchive, resolver: Resolver, clock: Clock) -> None:
    query = RangesQuery("/", "orders", FIRST)
    for expected in ({"Query": 2, "GetItem": 1}, {"Query": 1}, {"Query": 1}):
        archive.table.requests.clear()
        assert resolver.ranges(query).stream == STREAM
        assert archive.table.requests == expected
    clock.now += NAMES_KEPT_S
    archive.table.requests.clear()
    resolver.ranges(query)
    assert archive.table.requests == {"Query": 2, "GetItem": 1}


def test_a_stream_declared_again_is_noticed(archive: ChunkArchive, resolver: Resolver, clock: Clock) -> None:
    query = RangesQuery("/", "orders", FIRST)
    assert resolver.ranges(query).stream == STREAM
    again = ChunkArchive(StreamId("/", "orders", Incarnation("__orders_1763700000000000007")), objects=archive.objects)
    again.table = archive.table
    again.add(0, steady(1, 9))
    clock.now += NAMES_KEPT_S
    assert resolver.ranges(query).stream == again.stream
    named = RangesQuery("/", "orders", FIRST, STREAM.incarnation)
    assert resolver.ranges(named).stream == STREAM


def test_an_unknown_name_is_not_remembered(resolver: Resolver, archive: ChunkArchive) -> None:
    query = RangesQuery("/", "payments", FIRST)
    with pytest.raises(StreamNotFoundError):
        resolver.ranges(query)
    payments = ChunkArchive(StreamId("/", "payments", Incarnation("__payments_1763700000000000000")))
    payments.table, payments.objects = archive.table, archive.objects
    payments.add(0, steady(1, 9))
    assert resolver.ranges(query).ranges


def test_a_named_incarnation_is_proven_to_be_the_streams_once(archive: ChunkArchive, resolver: Resolver) -> None:
    query = RangesQuery("/", "orders", FIRST, STREAM.incarnation)
    for expected in ({"GetItem": 1, "Query": 1}, {"Query": 1}):
        archive.table.requests.clear()
        resolver.ranges(query)
        assert archive.table.requests == expected


def test_an_incarnation_or_a_cursor_of_another_stream_is_not_found_however_little_is_asked_for(
    archive: ChunkArchive, resolver: Resolver
) -> None:
    for first in range(30, 100, 10):
        archive.add(first, steady(5, 4, 5))
    small = Bounds(max_ranges=1)
    cursor = resolver.ranges(RangesQuery("/", "orders", AtOffset(Offset(20)), bounds=small)).cursor
    assert cursor is not None
    for query in (
        RangesQuery("/", "payments", FIRST, STREAM.incarnation, bounds=small),
        RangesQuery("/", "payments", Continue(cursor), bounds=small),
        RangesQuery("orders", "/", Continue(cursor), STREAM.incarnation, bounds=small),
    ):
        with pytest.raises(StreamNotFoundError):
            resolver.ranges(query)


def test_a_cursor_goes_on_in_its_own_incarnation_at_one_query(archive: ChunkArchive, resolver: Resolver) -> None:
    archive.add(10, steady(5, 2, 3))
    first = resolver.ranges(RangesQuery("/", "orders", FIRST, bounds=Bounds(max_ranges=1)))
    assert first.cursor is not None
    archive.table.requests.clear()
    answer = resolver.ranges(RangesQuery("/", "orders", Continue(first.cursor)))
    assert answer.ranges[0].first_offset == 10
    assert archive.table.requests == {"Query": 1}


def test_a_cursor_of_another_incarnation_than_the_named_one_is_refused(resolver: Resolver) -> None:
    cursor = "eyJ2IjoxLCJpIjoiYSIsIm8iOjV9"
    with pytest.raises(InvalidQueryError, match="another incarnation"):
        resolver.ranges(RangesQuery("/", "orders", Continue(cursor), "b"))


@pytest.mark.parametrize(
    ("vhost", "name", "incarnation", "field"),
    [("", "orders", None, "vhost"), ("/", "", None, "name"), ("/", "x" * 256, None, "name"), ("/", "x", "a/b", "inc")],
)
def test_names_that_cannot_be_are_refused_by_field(
    resolver: Resolver, vhost: str, name: str, incarnation: str | None, field: str
) -> None:
    with pytest.raises(InvalidNameError) as raised:
        resolver.ranges(RangesQuery(vhost, name, FIRST, incarnation))
    assert raised.value.field.startswith(field)


def test_a_description_tells_the_whole_and_the_gaps(resolver: Resolver, archive: ChunkArchive) -> None:
    archive.table.requests.clear()
    description = resolver.describe("/", "orders", STREAM.incarnation)
    assert (description.head.first_offset, description.head.next_offset) == (0, 30)
    assert description.gaps == (Gap(Offset(10), Offset(20)),)
    assert archive.table.requests == {"GetItem": 1, "Query": 1}


def test_a_description_says_why_the_archive_begins_where_it_does() -> None:
    late = ChunkArchive(stream=StreamId("/", "late", Incarnation("__late_1763700000000000000")))
    late.add(40, steady(5, 1, 2))
    resolver = Resolver(late.table, late.objects, 900)
    found = resolver.describe("/", "late")
    assert (found.before, found.complete_from) == (Gap(Offset(0), Offset(40)), 40)
    record_missing(late.table, late.stream, Loss(Offset(0), Offset(45), "retention", NOW))
    late.table.requests.clear()
    assert resolver.describe("/", "late").before == Gap(Offset(0), Offset(40), "retention")
    assert late.table.requests == {"GetItem": 1, "Query": 2}


def test_a_description_says_what_is_lost_behind_the_tail(resolver: Resolver, archive: ChunkArchive) -> None:
    assert resolver.describe("/", "orders").after is None
    record_missing(archive.table, STREAM, Loss(Offset(30), Offset(70), "retention", NOW))
    assert resolver.describe("/", "orders").after == Gap(Offset(30), Offset(70), "retention")


def test_a_stream_with_nothing_but_a_quarantined_segment_is_described(resolver: Resolver) -> None:
    stream = StreamId("/", "broken", Incarnation("__broken_1763700000000000000"))
    record_missing(resolver.table, stream, Quarantine(Offset(0), Offset(9), "CRC", NOW, "k", "etag"))
    description = resolver.describe("/", "broken")
    assert description.head.quarantined == 1
    assert description.head.next_offset is None


def test_an_unknown_incarnation_has_no_description(resolver: Resolver) -> None:
    with pytest.raises(StreamNotFoundError):
        resolver.describe("/", "orders", "__orders_0")
    with pytest.raises(StreamNotFoundError):
        resolver.describe("/", "payments", STREAM.incarnation)


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_page_of_streams_has_bounds(resolver: Resolver, limit: int) -> None:
    with pytest.raises(InvalidQueryError) as raised:
        resolver.streams(None, limit)
    assert raised.value.field == "limit"


@pytest.mark.parametrize(
    "bounds", [{"max_ranges": 0}, {"max_ranges": 1001}, {"max_bytes": 0}, {"range_bytes": 0}], ids=str
)
def test_bounds_that_mean_nothing_are_refused_by_name(bounds: dict[str, int]) -> None:
    with pytest.raises(InvalidQueryError) as raised:
        Bounds(**bounds)
    assert raised.value.field in bounds


def test_no_more_entries_are_read_than_an_answer_of_the_size_before_holds(
    archive: ChunkArchive, resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in range(30, 130, 10):
        archive.add(first, steady(5, first, first + 1))
    limits = []
    read = archive.table.log_from_offset

    def reading(incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:
        limits.append(limit)
        return read(incarnation, offset, limit)

    monkeypatch.setattr(archive.table, "log_from_offset", reading)
    whole = resolver.ranges(RangesQuery("/", "orders", AtOffset(Offset(30))))
    fragment_bytes = whole.ranges[0].data_bytes
    bounds = Bounds(max_bytes=3 * fragment_bytes)
    answer = resolver.ranges(RangesQuery("/", "orders", AtOffset(Offset(30)), bounds=bounds))
    assert answer.ranges == resolver.ranges(RangesQuery("/", "orders", AtOffset(Offset(30)), bounds=bounds)).ranges
    assert len(answer.ranges) == 3
    assert limits == [17, 6, 6]
    split = Bounds(max_ranges=2, range_bytes=fragment_bytes // 2)
    resolver.ranges(RangesQuery("/", "orders", AtOffset(Offset(30)), bounds=split))
    assert limits[-1] == 3


def test_entries_smaller_than_those_before_end_one_answer_early_and_no_offset_is_left_out(
    archive: ChunkArchive, resolver: Resolver
) -> None:
    archive.add(30, steady(500, 5, 6))
    for first in range(1030, 1090, 10):
        archive.add(first, steady(5, first, first + 1))
    large = resolver.ranges(RangesQuery("/", "orders", AtOffset(Offset(30)), bounds=Bounds(max_ranges=1)))
    bounds = Bounds(max_bytes=large.ranges[0].data_bytes)
    answer = resolver.ranges(RangesQuery("/", "orders", AtOffset(Offset(1030)), bounds=bounds))
    assert [part.first_offset for part in answer.ranges] == [1030, 1040, 1050, 1060]
    assert answer.cursor is not None
    rest = resolver.ranges(RangesQuery("/", "orders", Continue(answer.cursor), bounds=bounds))
    assert [part.first_offset for part in rest.ranges] == [1070, 1080]
    assert rest.tail == 1090
