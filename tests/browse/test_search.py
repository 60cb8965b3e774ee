"""Searches in slices: they find what a look at every message finds, and never go on by themselves."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from coldstream.browse.limits import ViewLimits
from coldstream.browse.names import StreamNames
from coldstream.browse.predicate_text import parse_predicate
from coldstream.browse.search import search_slice
from coldstream.browse.search_cursor import SearchCursor
from coldstream.browse.search_forecast import search_forecast
from coldstream.browse.search_slice import SearchEnd, SearchQuery, SearchSlice, SliceBounds
from coldstream.errors import BadCrcError, InvalidQueryError, NotRestoredError, StreamNotFoundError
from coldstream.format.chunk import ChunkType
from coldstream.format.compression import Compression
from coldstream.manifest.entry import StorageClass
from coldstream.manifest.spec import FIRST, LAST, AtOffset, AtTimestamp
from coldstream.manifest.storage_class import in_class, plan_storage_class
from coldstream.resolve.attach import REMOVED
from coldstream.store.prices import READ_UNIT_USD
from coldstream.units import Offset, TimestampMs
from tests.support.archive import NOW, Spec, holes, steady
from tests.support.browsed import A_FRAGMENT, MessageArchive, MillionObjects, MillionTable, data_message
from tests.support.removing import delete, remove_prefix


def colour(offset: int) -> bytes:
    return data_message(b'{"n": %d, "colour": "%s"}' % (offset, [b"red", b"green", b"blue"][offset % 3]))


RED = parse_predicate('json:/colour = "red"')


def query_of(archive: MessageArchive, **fields: object) -> SearchQuery:
    stream = archive.stream
    return replace(SearchQuery(stream.vhost, stream.name, RED), **fields)  # type: ignore[arg-type]


def run(archive: MessageArchive, query: SearchQuery, bounds: SliceBounds = SliceBounds()) -> list[SearchSlice]:  # noqa: B008
    """Search to the end, slice by slice."""
    slices = [search_slice(archive.table, archive.objects, query, None, bounds)]
    while (cursor := slices[-1].cursor) is not None:
        assert len(slices) < 1000
        slices.append(search_slice(archive.table, archive.objects, query, cursor, bounds))
    return slices


def found_in(slices: list[SearchSlice]) -> list[int]:
    return [view.offset for one in slices for view in one.matches]


def holed(rng: random.Random) -> MessageArchive:
    packing = {chunk_id: rng.choice([None, None, *Compression]) for chunk_id in range(400)}
    archive = MessageArchive(colour, packing.__getitem__, sparse_bytes=rng.choice([100, 400]))
    offset = rng.choice([0, 17])
    for number in range(rng.randrange(2, 7)):
        offset += rng.choice([0, 0, 3]) if number else 0
        specs = []
        for _ in range(rng.randrange(1, 6)):
            is_user = rng.random() < 0.85
            kind = ChunkType.USER if is_user else ChunkType.TRACKING_SNAPSHOT
            specs.append(Spec(rng.randrange(1, 9) if is_user else 1, offset, kind))
        offset = archive.add(offset, specs).next_offset
    return archive


@pytest.mark.parametrize("seed", range(40))
def test_slices_of_any_size_find_every_match_once_and_tell_every_gap(seed: int) -> None:
    rng = random.Random(seed)
    archive = holed(rng)
    first, tail = archive.chunks[0].header.chunk_id, archive.chunks[-1].header.next_offset
    start = rng.choice([0, first, rng.randrange(first, tail)])
    end = rng.choice([None, rng.randrange(start, tail + 3)])
    bounds = SliceBounds(rng.choice([1, 300, 1 << 20]), max_matches=rng.choice([1, 3, 200]))
    query = query_of(
        archive,
        start=AtOffset(Offset(start)),
        end=None if end is None else AtOffset(Offset(end)),
        max_matches=10_000,
    )
    slices = run(archive, query, bounds)
    to = tail if end is None else min(end, tail)
    wanted = [offset for offset in archive.user_offsets() if start <= offset < to]
    assert found_in(slices) == [offset for offset in wanted if offset % 3 == 0]
    gaps = [(one.gap.first_offset, one.gap.next_offset) for one in slices if one.gap is not None]
    assert gaps == [hole for hole in holes(archive.chunks) if max(start, first) < hole[1] and hole[0] < to]
    progress = slices[-1].progress
    assert slices[-1].ended_by is SearchEnd.END
    assert (progress.next_offset, progress.matches, progress.share) == (progress.end, len(found_in(slices)), 1.0)
    assert progress.messages >= len(wanted)
    assert progress.gap_offsets == sum(min(to, b) - max(start, first, a) for a, b in gaps)
    shares = [one.progress.share for one in slices]
    assert shares == sorted(shares)


def test_from_its_first_chunk_on_a_slice_stops_when_its_time_is_over() -> None:
    archive = MessageArchive(colour)
    archive.add(0, steady(5, *range(30)))
    ticks = iter(range(10_000))
    one = search_slice(archive.table, archive.objects, query_of(archive), clock=lambda: next(ticks) * 1.0)
    assert one.ended_by is SearchEnd.SLICE
    assert 5 <= one.progress.next_offset < 150
    assert one.progress.messages == one.progress.next_offset


def test_a_slice_stops_at_its_bytes_and_reads_no_further() -> None:
    archive = MessageArchive(colour)
    for number in range(20):
        archive.add(number * 5, steady(5, number))
    archive.objects.requests.clear()
    one = search_slice(archive.table, archive.objects, query_of(archive), bounds=SliceBounds(max_bytes=1000))
    assert one.ended_by is SearchEnd.SLICE
    assert 1000 <= one.progress.chunk_bytes < 1500
    assert archive.objects.requests["GetObject"] == one.progress.cost.gets < 6


def test_a_search_ends_at_its_own_bytes_for_good() -> None:
    archive = MessageArchive(colour)
    for number in range(20):
        archive.add(number * 5, steady(5, number))
    slices = run(archive, query_of(archive, max_bytes=1000), SliceBounds(max_bytes=300))
    assert (slices[-1].ended_by, slices[-1].cursor) == (SearchEnd.BOUND, None)
    assert 1000 <= slices[-1].progress.chunk_bytes < 1500
    assert slices[-1].progress.next_offset < 100


def test_a_search_ends_at_its_last_match_and_says_where() -> None:
    archive = MessageArchive(colour)
    archive.add(0, steady(5, *range(20)))
    slices = run(archive, query_of(archive, max_matches=4), SliceBounds(max_matches=3))
    assert [len(one.matches) for one in slices] == [3, 1]
    assert (slices[-1].ended_by, slices[-1].cursor) == (SearchEnd.MATCHES, None)
    assert slices[-1].progress.next_offset == 10


def test_a_window_of_time_is_cut_at_chunks() -> None:
    archive = MessageArchive(colour)
    archive.add(0, steady(3, 10, 20, 30, 40))
    window = query_of(archive, start=AtTimestamp(TimestampMs(15)), end=AtTimestamp(TimestampMs(40)))
    slices = run(archive, window)
    assert found_in(slices) == [3, 6]
    assert (slices[0].progress.first_offset, slices[0].progress.end) == (3, 9)
    assert found_in(run(archive, query_of(archive, start=LAST))) == [9]


def test_what_is_archived_after_a_search_began_is_not_searched() -> None:
    archive = MessageArchive(colour)
    archive.add(0, steady(3, 1))
    archive.add(3, steady(3, 2))
    query = query_of(archive)
    one = search_slice(archive.table, archive.objects, query, bounds=SliceBounds(max_bytes=1))
    archive.add(6, steady(3, 3))
    assert one.cursor is not None
    rest = search_slice(archive.table, archive.objects, query, one.cursor)
    assert (rest.progress.end, found_in([one, rest])) == (6, [0, 3])


def test_what_is_removed_between_two_slices_is_told_as_a_gap() -> None:
    archive = MessageArchive(colour)
    for number in range(4):
        archive.add(number * 3, steady(3, number))
    query = query_of(archive)
    one = search_slice(archive.table, archive.objects, query, bounds=SliceBounds(max_bytes=1))
    remove_prefix(archive.table, archive.stream.incarnation, 3)
    two = search_slice(archive.table, archive.objects, query, one.cursor)
    assert two.gap is not None
    assert (two.ended_by, two.gap.reason, two.progress.gap_offsets) == (SearchEnd.GAP, REMOVED, 6)
    three = search_slice(archive.table, archive.objects, query, two.cursor)
    assert (found_in([one, two, three]), three.ended_by) == ([0, 9], SearchEnd.END)


def test_messages_that_cannot_be_read_are_counted() -> None:
    def make(offset: int) -> bytes:
        return bytes.fromhex("005374c1050201") + b"aa\xff" if offset % 4 == 1 else data_message(b"x")

    archive = MessageArchive(make)
    archive.add(0, steady(8, 1))
    (one,) = run(archive, query_of(archive, predicate=parse_predicate("app.a exists")))
    assert (one.progress.unreadable, one.progress.messages, one.matches) == (2, 8, ())


def test_a_match_is_a_view_within_its_limits() -> None:
    archive = MessageArchive(lambda _: data_message(b'{"colour": "red"}' + b" " * 5000))
    archive.add(0, steady(1, 1))
    (one,) = run(archive, query_of(archive))
    (view,) = one.matches
    assert view.body is not None
    assert (len(view.body.data), view.body.size_bytes, view.body.is_cut) == (1024, 5017, True)


def test_a_damaged_chunk_ends_the_search_with_its_place() -> None:
    archive = MessageArchive(colour)
    entry = archive.add(0, steady(3, 1, 2))
    data = bytearray(archive.objects.objects[entry.key])
    data[archive.chunks[1].position + 60] ^= 1
    archive.objects.objects[entry.key] = bytes(data)
    with pytest.raises(BadCrcError, match=entry.key):
        run(archive, query_of(archive))


def test_an_object_that_must_be_restored_ends_the_search_and_the_forecast_warned() -> None:
    archive = MessageArchive(colour)
    entry = archive.add(0, steady(3, 1))
    moved = in_class(entry, entry.key + "-cold", 1, StorageClass.GLACIER)
    archive.objects.copy(entry.key, moved.key, if_match=archive.objects.info(entry.key).etag)  # type: ignore[union-attr]
    archive.objects._change(moved.key, storage_class="GLACIER")
    head = archive.table.head(archive.stream.incarnation)
    assert head is not None
    (there,) = archive.table.log_from_offset(archive.stream.incarnation, Offset(0), 1).entries
    archive.table.apply(plan_storage_class(head, there, moved, (), at=NOW, due_at=NOW))
    assert search_forecast(archive.table, query_of(archive)).cold is StorageClass.GLACIER
    with pytest.raises(NotRestoredError):
        run(archive, query_of(archive))


def test_an_empty_or_unknown_or_deleted_stream() -> None:
    archive = MessageArchive(colour)
    with pytest.raises(StreamNotFoundError):
        run(archive, query_of(archive))
    archive.add(0, steady(3, 1))
    names = StreamNames(archive.table)
    assert search_slice(archive.table, archive.objects, query_of(archive), names=names).matches
    remove_prefix(archive.table, archive.stream.incarnation, 1)
    (one,) = run(archive, query_of(archive))
    assert (one.ended_by, one.progress.share) == (SearchEnd.END, 1.0)
    assert search_forecast(archive.table, query_of(archive)).offsets == 0
    delete(archive.table, archive.stream.incarnation)
    for call in (lambda: run(archive, query_of(archive)), lambda: search_forecast(archive.table, query_of(archive))):
        with pytest.raises(StreamNotFoundError):
            call()
    # Its name was found within the last ten seconds: the head tells that it is deleted.
    with pytest.raises(StreamNotFoundError):
        search_slice(archive.table, archive.objects, query_of(archive), names=names)


def test_a_cursor_of_another_search_or_from_nobody_is_refused() -> None:
    archive = MessageArchive(colour)
    archive.add(0, steady(3, 1, 2))
    query = query_of(archive)
    one = search_slice(archive.table, archive.objects, query, bounds=SliceBounds(max_matches=1))
    assert one.cursor is not None
    for other in (
        replace(query, max_bytes=5),
        replace(query, name="others"),
        replace(query, predicate=parse_predicate("size > 1")),
        replace(query, start=AtOffset(Offset(0))),
    ):
        with pytest.raises(InvalidQueryError, match="cursor"):
            search_slice(archive.table, archive.objects, other, one.cursor)
    rng = random.Random(1)
    for _ in range(300):
        at = rng.randrange(len(one.cursor))
        broken = one.cursor[:at] + rng.choice("Aaz09-_=é") + one.cursor[at + 1 :]
        if broken != one.cursor:
            # A changed digit of a count may be another cursor; anything else is none.
            try:
                assert SearchCursor.from_text(broken, query).to_text(query) == broken
            except InvalidQueryError as err:
                assert err.field == "cursor"  # noqa: PT017
    for text in ("", "x" * 3000, "e30", "bnVsbA"):
        with pytest.raises(InvalidQueryError, match="cursor"):
            SearchCursor.from_text(text, query)


def test_a_cursor_of_another_stream_gives_nothing_of_it() -> None:
    """Names are what a caller may read: an incarnation of other names must not be read under them."""
    archive = MessageArchive(colour)
    archive.add(0, steady(3, 1))
    query = query_of(archive, name="others")
    begun = search_slice(archive.table, archive.objects, query_of(archive), bounds=SliceBounds(max_matches=1))
    forged = SearchCursor(begun.incarnation, begun.progress).to_text(query)
    with pytest.raises(StreamNotFoundError):
        search_slice(archive.table, archive.objects, query, forged)


@pytest.mark.parametrize(
    "fields", [{"max_bytes": 0}, {"max_bytes": 1 << 60}, {"max_matches": 0}, {"max_matches": 10_001}]
)
def test_no_search_is_without_bounds(fields: dict[str, int]) -> None:
    with pytest.raises(InvalidQueryError):
        SearchQuery("/", "orders", RED, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bounds", [(0, 1.0, 1), (1 << 30, 1.0, 1), (1, 0.0, 1), (1, 61.0, 1), (1, 1.0, 0), (1, 1.0, 201)]
)
def test_no_slice_is_without_bounds(bounds: tuple[int, float, int]) -> None:
    with pytest.raises(InvalidQueryError):
        SliceBounds(*bounds)


def test_no_slice_holds_more_than_fits_into_memory() -> None:
    archive = MessageArchive(colour)
    archive.add(0, steady(3, 1))
    large = query_of(archive, limits=ViewLimits(body_bytes=4 << 20))
    with pytest.raises(InvalidQueryError, match="limits"):
        search_slice(archive.table, archive.objects, large, bounds=SliceBounds(max_matches=200))


def test_a_slice_looks_at_the_clock_within_a_chunk_of_sub_batches() -> None:
    archive = MessageArchive(colour, lambda _: Compression.ZSTD)
    archive.add(0, steady(9, 1))
    ticks = iter(range(10_000))
    one = search_slice(
        archive.table, archive.objects, query_of(archive), bounds=SliceBounds(max_seconds=4), clock=lambda: next(ticks)
    )
    assert one.ended_by is SearchEnd.SLICE
    assert 0 < one.progress.next_offset < 9
    assert one.cursor is not None
    rest = search_slice(archive.table, archive.objects, query_of(archive), one.cursor)
    assert found_in([one, rest]) == [0, 3, 6]


def test_a_forecast_of_a_million_fragments_takes_a_few_requests() -> None:
    objects = MillionObjects()
    table = MillionTable(objects)

    class Known(StreamNames):
        def find(self, *_: object, **__: object) -> object:  # type: ignore[override]
            return table.stream

    head = table._head()
    table.head = lambda _: head  # type: ignore[method-assign]
    query = SearchQuery("/", "million", RED, max_bytes=1 << 36)
    table.requests.clear()
    whole = search_forecast(table, query, names=Known(table))
    assert table.requests == Counter({"Query": 1})
    assert (whole.is_bounded, whole.chunk_bytes) == (True, 1 << 36)
    assert objects.requests == {}
    start = 400_000 * A_FRAGMENT
    ten = replace(query, start=AtOffset(Offset(start)), end=AtOffset(Offset(start + 10 * A_FRAGMENT)))
    some = search_forecast(table, ten, names=Known(table))
    assert (some.offsets, some.messages, some.is_bounded) == (4000, 4000, False)
    assert some.chunk_bytes == pytest.approx(10 * 4 * objects.chunk_bytes, rel=0.01)
    assert some.cost.gets == 11
    assert 0 < some.cost.usd < 0.001
    assert some.cost.transfer_usd > some.cost.usd


@pytest.mark.parametrize("seed", range(10))
def test_the_forecast_is_near_what_the_search_takes(seed: int) -> None:
    rng = random.Random(seed)
    archive = MessageArchive(colour)
    for number in range(30):
        archive.add(number * 60, steady(20, number * 3, number * 3 + 1, number * 3 + 2))
    start, end = sorted(rng.sample(range(0, 1800, 20), 2))
    query = query_of(archive, start=AtOffset(Offset(start)), end=AtOffset(Offset(end)), max_matches=10_000)
    forecast = search_forecast(archive.table, query)
    took = run(archive, query, SliceBounds(max_matches=200))[-1].progress
    assert (forecast.first_offset, forecast.next_offset) == (took.first_offset, took.end)
    assert forecast.messages == pytest.approx(took.messages, abs=2)
    assert forecast.chunk_bytes == pytest.approx(took.chunk_bytes, rel=0.3, abs=500)
    assert forecast.cost.gets == pytest.approx(took.cost.gets, abs=4)


def test_what_a_search_cost_is_what_it_asked_for() -> None:
    archive = MessageArchive(colour)
    for number in range(10):
        archive.add(number * 3, steady(3, number))
    archive.table.requests.clear()
    archive.objects.requests.clear()
    took = run(archive, query_of(archive, start=FIRST), SliceBounds(max_bytes=500))[-1].progress.cost
    assert took.queries == sum(archive.table.requests.values())
    assert took.gets == archive.objects.requests["GetObject"]
    assert took.usd == pytest.approx(took.units * READ_UNIT_USD + took.gets * 0.0004 / 1000)
