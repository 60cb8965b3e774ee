"""Pages of messages, held against all messages of an archive, and what they cost."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from coldstream.archive.missing import record_missing
from coldstream.browse.limits import ViewLimits
from coldstream.browse.message_listing import BeforeOffset, MessageListing, MessageQuery
from coldstream.browse.message_view import MessageView
from coldstream.browse.messages import list_messages, read_message
from coldstream.errors import (
    BadCrcError,
    GapError,
    InvalidQueryError,
    NotFoundError,
    NotRestoredError,
    StreamNotFoundError,
    TruncatedError,
)
from coldstream.format.chunk import ChunkType
from coldstream.format.compression import Compression
from coldstream.manifest.entry import Encoding, Loss, Quarantine
from coldstream.manifest.groups import CompactionPolicy, plan_groups
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import MAX_TIMESTAMP_MS, Offset, TimestampMs
from tests.support.archive import NOW, STREAM, Spec, holes, steady
from tests.support.browsed import (
    A_FRAGMENT,
    FIRST_TIME,
    FRAGMENTS,
    MS_A_CHUNK,
    MessageArchive,
    MillionObjects,
    MillionTable,
    data_message,
)
from tests.support.compaction import Compaction
from tests.support.removing import delete, remove_prefix


def page(archive: MessageArchive, at: object, limit: int = 50, max_gets: int = 1) -> MessageListing:
    query = MessageQuery(at, limit, max_gets=max_gets)  # type: ignore[arg-type]
    return list_messages(archive.table, archive.objects, archive.stream, query)


def offsets(listing: MessageListing) -> list[int]:
    return [view.offset for view in listing.messages]


def body(view: MessageView) -> bytes:
    assert view.body is not None
    return view.body.data


def requests(archive: MessageArchive) -> Counter[str]:
    found = archive.table.requests + archive.objects.requests
    archive.table.requests.clear()
    archive.objects.requests.clear()
    return found


def random_messages(rng: random.Random, *, gaps: float = 0.2) -> MessageArchive:
    """Fragments of a few chunks, packed in all ways, with tracking chunks and holes among them."""
    packings = [None, None, *Compression]
    packing = {chunk_id: rng.choice(packings) for chunk_id in range(400)}
    archive = MessageArchive(packing=packing.__getitem__, sparse_bytes=rng.choice([60, 300, 10_000]))
    offset = rng.choice([0, 0, rng.randrange(1, 40)])
    for number in range(rng.randrange(1, 7)):
        if number and rng.random() < gaps:
            offset += rng.randrange(1, 9)
        specs = []
        for _ in range(rng.randrange(1, 7)):
            is_user = rng.random() < 0.8
            records = rng.randrange(1, 9) if is_user else 1
            specs.append(Spec(records, offset, ChunkType.USER if is_user else ChunkType.TRACKING_DELTA))
        offset = archive.add(offset, specs).next_offset
    return archive


@pytest.mark.parametrize("seed", range(40))
def test_a_page_at_any_offset_begins_with_the_first_message_from_there_on(seed: int) -> None:
    rng = random.Random(seed)
    archive = random_messages(rng)
    messages, tail = archive.user_offsets(), archive.chunks[-1].header.next_offset
    first = archive.chunks[0].header.chunk_id
    for at in range(tail):
        limit = rng.randrange(1, 12)
        requests(archive)
        found = page(archive, AtOffset(Offset(at)), limit)
        hole = next((hole for hole in holes(archive.chunks) if hole[0] <= at < hole[1]), None)
        if hole is not None:
            assert found.gap is not None
            assert (found.gap.first_offset, found.gap.next_offset) == hole
            assert (found.messages, found.previous, found.next) == ((), *hole)
            assert requests(archive) == {"Query": 1, "GetItem": 1}
            continue
        cost = requests(archive)
        assert (found.cost.requests, found.cost.gets) == (sum(cost.values()), 1)
        # Before the first archived offset the floor is asked for, unless the page shows the head.
        assert cost.pop("GetItem", 0) <= (at < first)
        assert cost == {"Query": 1, "GetObject": 1}
        wanted = [offset for offset in messages if offset >= at]
        assert offsets(found) == wanted[: len(found.messages)]
        assert all(body(view) == b"message %d" % view.offset for view in found.messages)
        end = tail if found.next is None else found.next
        assert [offset for offset in messages if max(at, first) <= offset < end] == offsets(found)
        assert len(found.messages) <= limit


@pytest.mark.parametrize("max_gets", [1, 3, 16])
@pytest.mark.parametrize("seed", range(20))
def test_pages_one_after_the_other_have_every_message_once_and_every_gap(seed: int, max_gets: int) -> None:
    rng = random.Random(seed)
    archive = random_messages(rng)
    limit = rng.randrange(1, 30)
    seen: list[int] = []
    gaps: list[tuple[int, int]] = []
    found = page(archive, FIRST, limit, max_gets)
    while True:
        seen += offsets(found)
        if found.gap is not None:
            gaps.append((found.gap.first_offset, found.gap.next_offset))
        if found.next is None:
            break
        found = page(archive, AtOffset(found.next), limit, max_gets)
    assert seen == archive.user_offsets()
    assert gaps == holes(archive.chunks)
    assert found.tail == archive.chunks[-1].header.next_offset


@pytest.mark.parametrize("max_gets", [1, 3, 16])
@pytest.mark.parametrize("seed", range(20))
def test_pages_backwards_have_every_message_once_and_every_gap(seed: int, max_gets: int) -> None:
    rng = random.Random(seed + 100)
    archive = random_messages(rng)
    limit = rng.randrange(1, 30)
    seen: list[int] = []
    gaps: list[tuple[int, int]] = []
    found = page(archive, BeforeOffset(archive.chunks[-1].header.next_offset), limit, max_gets)
    while True:
        seen = [*offsets(found), *seen]
        if found.gap is not None:
            gaps.insert(0, (found.gap.first_offset, found.gap.next_offset))
        if found.previous is None:
            break
        found = page(archive, BeforeOffset(found.previous), limit, max_gets)
    assert seen == archive.user_offsets()
    assert gaps == holes(archive.chunks)


@pytest.mark.parametrize("seed", range(20))
def test_the_page_before_one_ends_where_that_begins(seed: int) -> None:
    archive = random_messages(random.Random(seed), gaps=0)
    messages = archive.user_offsets()
    for at in range(1, archive.chunks[-1].header.next_offset + 1):
        requests(archive)
        found = page(archive, BeforeOffset(Offset(at)), 5)
        if found.messages:
            assert requests(archive) == {"Query": 1, "GetObject": 1}
            wanted = [offset for offset in messages if offset < at]
            assert offsets(found) == wanted[-len(found.messages) :]
            assert found.next == at


@pytest.mark.parametrize("seed", range(20))
def test_the_last_page_has_the_last_messages(seed: int) -> None:
    archive = random_messages(random.Random(seed), gaps=0)
    requests(archive)
    if messages := archive.user_offsets():
        found = page(archive, LAST, 3)
        assert offsets(found) == messages[-len(found.messages) :]
        assert found.messages
        assert (found.tail, found.next) == (archive.chunks[-1].header.next_offset, None)
        assert requests(archive)["GetObject"] == 1


@pytest.mark.parametrize("seed", range(20))
def test_a_page_at_a_time_begins_with_the_first_chunk_that_late(seed: int) -> None:
    archive = random_messages(random.Random(seed), gaps=0)
    times = {chunk.header.timestamp for chunk in archive.chunks}
    for time in sorted({*times, *(time + 1 for time in times)}):
        late = [chunk.header for chunk in archive.chunks if chunk.header.timestamp >= time]
        requests(archive)
        found = page(archive, AtTimestamp(TimestampMs(time)), 4)
        if not late:
            assert (found.messages, found.tail) == ((), archive.chunks[-1].header.next_offset)
            continue
        assert requests(archive) == {"Query": 2, "GetObject": 1}
        wanted = [offset for offset in archive.user_offsets() if offset >= late[0].chunk_id]
        assert offsets(found) == wanted[: len(found.messages)]


@pytest.mark.parametrize("at", [0, 1, A_FRAGMENT - 1, A_FRAGMENT, 123_456_789, FRAGMENTS * A_FRAGMENT - 1])
def test_anywhere_in_a_million_fragments_a_page_is_one_query_and_one_ranged_get(at: int) -> None:
    objects = MillionObjects()
    table = MillionTable(objects)
    for place in (AtOffset(Offset(at)), BeforeOffset(Offset(at + 1))):
        table.requests.clear()
        objects.requests.clear()
        objects.read_bytes = 0
        found = list_messages(table, objects, table.stream, MessageQuery(place, 50))
        assert (table.requests, objects.requests) == ({"Query": 1}, {"GetObject": 1})
        assert found.messages[-1 if isinstance(place, BeforeOffset) else 0].offset == at
        assert all(body(view).startswith(b"%020d" % view.offset) for view in found.messages)
        # A step of the index is one chunk of a MiB here, and a page may take two.
        assert objects.read_bytes <= 2 * objects.chunk_bytes < 2.5 * (1 << 20)


@pytest.mark.parametrize("place", [FIRST, LAST])
def test_both_ends_of_a_million_fragments_are_one_query_and_one_get(place: object) -> None:
    objects = MillionObjects()
    table = MillionTable(objects)
    found = list_messages(table, objects, table.stream, MessageQuery(place))  # type: ignore[arg-type]
    assert (table.requests, objects.requests) == ({"Query": 1}, {"GetObject": 1})
    assert len(found.messages) == 50


def test_a_time_in_a_million_fragments_is_two_queries_and_one_get() -> None:
    objects = MillionObjects()
    table = MillionTable(objects)
    time = TimestampMs(FIRST_TIME + MS_A_CHUNK * 2_345_678 - 3)
    found = list_messages(table, objects, table.stream, MessageQuery(AtTimestamp(time)))
    assert (table.requests, objects.requests) == ({"Query": 2}, {"GetObject": 1})
    assert found.messages[0].offset == 234_567_800
    assert found.messages[0].timestamp == time + 3


@pytest.mark.parametrize("encoding", list(Encoding))
def test_pages_are_the_same_after_every_step_of_a_compaction(
    encoding: Encoding,
    monkeypatch: pytest.MonkeyPatch,
    small_transactions: None,
) -> None:
    monkeypatch.setattr("coldstream.manifest.groups.STEP_BYTES", 300)
    archive = MessageArchive(packing=lambda chunk_id: Compression.GZIP if chunk_id % 4 else None)
    for number in range(9):
        archive.add(number * 9, steady(3, number * 30, number * 30 + 10, number * 30 + 20))
    compaction = Compaction(archive)
    group = next(
        iter(plan_groups(compaction.log(), CompactionPolicy(TimestampMs(MAX_TIMESTAMP_MS), 1 << 30, encoding)))
    )
    merged = compaction.store(group, encoding)
    for _ in ("before", *compaction.replace(group, merged)):
        for at in range(81):
            found = page(archive, AtOffset(Offset(at)), 4, max_gets=2)
            assert offsets(found) == list(range(at, at + len(found.messages)))
            assert found.messages
            back = page(archive, BeforeOffset(Offset(at + 1)), 4)
            assert offsets(back)[-1] == at
    assert page(archive, FIRST).fragment is not None


def test_a_page_of_several_fragments_takes_a_get_for_each() -> None:
    archive = MessageArchive()
    for number in range(6):
        archive.add(number * 2, steady(2, number))
    requests(archive)
    assert offsets(page(archive, FIRST, 5, max_gets=4)) == [0, 1, 2, 3, 4]
    assert requests(archive) == {"Query": 1, "GetObject": 3}
    assert offsets(page(archive, BeforeOffset(Offset(12)), 5, max_gets=4)) == [7, 8, 9, 10, 11]
    assert requests(archive) == {"Query": 2, "GetObject": 3}


def test_past_the_tail_the_page_tells_the_tail_and_the_way_back() -> None:
    archive = MessageArchive()
    archive.add(0, steady(4, 1, 2))
    for place in (NEXT, AtOffset(Offset(8)), AtOffset(Offset(1000))):
        found = page(archive, place)
        assert (found.messages, found.tail, found.next, found.previous) == ((), 8, None, 8)
    assert offsets(page(archive, BeforeOffset(Offset(1000)), 3)) == [5, 6, 7]


def test_what_is_lost_past_the_tail_is_the_next_page() -> None:
    archive = MessageArchive()
    archive.add(0, steady(4, 1))
    record_missing(archive.table, STREAM, Loss(Offset(4), Offset(9), "the disk was full", NOW))
    for place in (FIRST, LAST):
        found = page(archive, place)
        assert (found.tail, found.next) == (4, 4)
    lost = page(archive, AtOffset(Offset(4)))
    assert lost.gap is not None
    assert (lost.gap.reason, lost.next) == ("the disk was full", 9)
    assert page(archive, AtOffset(Offset(9))).tail == 9


def test_a_gap_comes_with_its_reason() -> None:
    archive = MessageArchive()
    archive.add(0, steady(2, 1))
    archive.add(10, steady(2, 2))
    record_missing(archive.table, STREAM, Quarantine(Offset(2), Offset(10), "a bad disk", NOW, "key", "etag"))
    for place in (AtOffset(Offset(5)), BeforeOffset(Offset(6))):
        gap = page(archive, place).gap
        assert gap is not None
        assert gap.reason == "in quarantine: a bad disk"


def test_below_the_floor_the_page_begins_with_what_is_left_and_tells_the_floor() -> None:
    archive = MessageArchive()
    for number in range(3):
        archive.add(number * 4, steady(4, number))
    remove_prefix(archive.table, STREAM.incarnation, 2)
    found = page(archive, AtOffset(Offset(1)))
    assert (offsets(found), found.floor, found.previous) == ([8, 9, 10, 11], 8, None)
    assert (page(archive, BeforeOffset(Offset(5))).next, page(archive, BeforeOffset(Offset(0))).next) == (8, 0)


def test_a_log_that_lost_everything_has_an_empty_page() -> None:
    archive = MessageArchive()
    archive.add(0, steady(4, 1))
    remove_prefix(archive.table, STREAM.incarnation, 1)
    for place in (FIRST, LAST, AtOffset(Offset(2)), BeforeOffset(Offset(3))):
        found = page(archive, place)
        assert (found.messages, found.tail, found.previous) == ((), 4, None if found.floor else found.previous)


def test_a_chunk_with_a_bad_crc_names_the_key_and_the_position() -> None:
    archive = MessageArchive()
    entry = archive.add(0, steady(4, 1, 2))
    data = bytearray(archive.objects.objects[entry.key])
    data[archive.chunks[1].position + 60] ^= 1
    archive.objects.objects[entry.key] = bytes(data)
    with pytest.raises(BadCrcError) as caught:
        page(archive, FIRST)
    assert (caught.value.source, caught.value.position) == (entry.key, archive.chunks[1].position)


def test_an_object_that_ends_early_is_an_error() -> None:
    archive = MessageArchive()
    entry = archive.add(0, steady(4, 1, 2))
    archive.objects.objects[entry.key] = archive.objects.objects[entry.key][:100]
    with pytest.raises(TruncatedError):
        page(archive, FIRST)


def test_an_object_in_a_cold_class_has_to_be_restored() -> None:
    archive = MessageArchive()
    entry = archive.add(0, steady(4, 1))
    archive.objects._change(entry.key, storage_class="GLACIER")
    with pytest.raises(NotRestoredError):
        page(archive, FIRST)


def test_a_stream_that_is_not_there_or_deleted_is_not_found() -> None:
    archive = MessageArchive()
    archive.add(0, steady(4, 1))
    other = StreamId("/", "orders", Incarnation("another"))
    with pytest.raises(StreamNotFoundError):
        list_messages(archive.table, archive.objects, other, MessageQuery(FIRST))
    delete(archive.table, STREAM.incarnation)
    with pytest.raises(StreamNotFoundError):
        page(archive, FIRST)


@pytest.mark.parametrize(("field", "value"), [("limit", 0), ("limit", 501), ("max_gets", 0), ("max_gets", 17)])
def test_a_page_that_is_too_large_is_refused(field: str, value: int) -> None:
    with pytest.raises(InvalidQueryError, match=field):
        replace(MessageQuery(FIRST), **{field: value})  # type: ignore[arg-type]


def test_a_page_of_views_that_would_not_fit_into_memory_is_refused() -> None:
    with pytest.raises(InvalidQueryError, match="limits"):
        MessageQuery(FIRST, 500, limits=ViewLimits(body_bytes=4 << 20))


@pytest.mark.parametrize("seed", range(10))
def test_every_message_is_found_by_its_offset_and_nothing_else_is(seed: int) -> None:
    archive = random_messages(random.Random(seed))
    messages = set(archive.user_offsets())
    gone = {offset for hole in holes(archive.chunks) for offset in range(*hole)}
    for at in range(archive.chunks[-1].header.next_offset + 2):
        requests(archive)
        if at in messages:
            view = read_message(archive.table, archive.objects, STREAM, Offset(at))
            assert body(view) == b"message %d" % at
            assert requests(archive) == {"Query": 1, "GetObject": 1}
        else:
            with pytest.raises(GapError if at in gone else NotFoundError):
                read_message(archive.table, archive.objects, STREAM, Offset(at))


def test_a_message_tells_its_chunk_its_entry_and_its_object() -> None:
    archive = MessageArchive(packing=lambda chunk_id: Compression.ZSTD if chunk_id else None)
    entry = archive.add(0, steady(5, 100, 200))
    alone, packed = (read_message(archive.table, archive.objects, STREAM, Offset(at)) for at in (3, 8))
    assert (alone.chunk_id, alone.timestamp, alone.entry.number, alone.entry.is_sub_batch) == (0, 100, 3, False)
    assert (packed.chunk_id, packed.timestamp, packed.key, packed.generation) == (5, 200, entry.key, 0)
    # The chunk's first message is on its own, and after an empty sub-batch come two of two.
    assert (packed.entry.number, packed.entry.compression, packed.entry.index, packed.entry.records) == (
        3,
        "zstd",
        0,
        2,
    )
    assert packed.raw_bytes == len(data_message(b"message 8"))
