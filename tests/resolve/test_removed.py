"""Lookups in an archive of which some was removed: as if it had begun there, and the answer says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from coldstream.errors import StreamNotFoundError
from coldstream.manifest.appender import Appender, Opening, WalKind, WalPlace
from coldstream.manifest.entry import Gap, StorageClass
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.resolve.answer import Answer, Continue, RangesQuery
from coldstream.resolve.api import AnswerBody, DescriptionBody
from coldstream.resolve.attach import MAX_AT_ONCE, REMOVED, Attachment, attach
from coldstream.resolve.bodies import answer_body
from coldstream.resolve.cursor import Cursor
from coldstream.resolve.resolver import NAMES_KEPT_S, Resolver
from coldstream.resolve.tail import Tail
from coldstream.units import Epoch, Offset, TimestampMs
from tests.support.archive import NOW, STREAM, ChunkArchive, steady
from tests.support.changes import change_to
from tests.support.removing import delete, move_to_class, remove_prefix, undelete

INCARNATION = STREAM.incarnation
LATER = StreamId("/", "orders", Incarnation("__orders_1763700000000000009"))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def archive() -> ChunkArchive:
    """Offsets 0 to 40 in four fragments, at 100, 200, 300 and 400, without 20 to 24."""
    archive = ChunkArchive()
    for first, at in ((0, 100), (10, 200), (24, 300), (34, 400)):
        archive.add(first, steady(5, at, at + 50))
    return archive


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def resolver(archive: ChunkArchive, clock: Clock) -> Resolver:
    return Resolver(archive.table, archive.objects, url_expiry_s=60, now=lambda: NOW, clock=clock)


def ask(resolver: Resolver, start: OffsetSpec | Continue) -> Answer:
    return resolver.ranges(RangesQuery("/", "orders", start))


@pytest.mark.parametrize("removed", [1, 2])
@pytest.mark.parametrize("offset", [0, 3, 9])
def test_an_offset_below_the_floor_begins_with_what_is_left_and_tells_the_floor(
    archive: ChunkArchive, resolver: Resolver, removed: int, offset: int
) -> None:
    remove_prefix(archive.table, INCARNATION, removed)
    answer = ask(resolver, AtOffset(Offset(offset)))
    floor, first = (10, 10) if removed == 1 else (20, 24)
    assert (answer.floor, answer.ranges[0].first_offset) == (floor, first)


@pytest.mark.parametrize(
    "start", [FIRST, LAST, AtOffset(Offset(24)), AtOffset(Offset(22)), AtTimestamp(TimestampMs(1))]
)
def test_a_start_at_what_is_left_does_not_tell_the_floor(
    archive: ChunkArchive, resolver: Resolver, start: OffsetSpec
) -> None:
    remove_prefix(archive.table, INCARNATION, 2)
    answer = ask(resolver, start)
    assert answer.floor is None
    assert answer.ranges[0].first_offset == (39 if start == LAST else 24)


def test_a_reader_who_has_come_to_what_is_removed_by_then_is_told_of_a_gap_and_why(archive: ChunkArchive) -> None:
    remove_prefix(archive.table, INCARNATION, 2)
    found = attach(archive.table, STREAM, Cursor(INCARNATION, Offset(10)), 5)
    assert found == Gap(Offset(10), Offset(24), REMOVED)


@pytest.mark.parametrize(
    ("timestamp", "expected"), [(0, 24), (100, 24), (249, 24), (250, 24), (301, 29), (400, 34), (451, None)]
)
def test_a_timestamp_is_looked_up_in_what_is_left(archive: ChunkArchive, timestamp: int, expected: int | None) -> None:
    remove_prefix(archive.table, INCARNATION, 2)
    found = attach(archive.table, STREAM, AtTimestamp(TimestampMs(timestamp)), 5)
    if expected is None:
        assert found == Tail(Offset(44))
    else:
        assert isinstance(found, Attachment)
        assert found.entries[0].first_offset <= expected < found.entries[0].next_offset


@pytest.mark.parametrize("fragments", [3, MAX_AT_ONCE + 20])
@pytest.mark.parametrize("with_hole", [False, True])
def test_times_later_than_all_that_is_left_were_removed_and_lookups_do_not_stumble_over_them(
    fragments: int, *, with_hole: bool
) -> None:
    archive = ChunkArchive()
    archive.add(0, steady(1, 1_000_000))
    shift = 0
    for number in range(1, fragments + 1):
        shift += with_hole and number == 2
        archive.add(number + shift, steady(1, number))
    remove_prefix(archive.table, INCARNATION, 1)
    found = attach(archive.table, STREAM, AtTimestamp(TimestampMs(fragments)), fragments + 1)
    assert isinstance(found, Attachment)
    assert found.entries[0].first_timestamp == fragments
    assert attach(archive.table, STREAM, AtTimestamp(TimestampMs(fragments + 1)), fragments + 1) == Tail(
        Offset(fragments + shift + 1)
    )


@pytest.mark.parametrize("start", [FIRST, LAST, NEXT, AtTimestamp(TimestampMs(1)), AtTimestamp(TimestampMs(900))])
def test_a_log_that_lost_all_of_its_entries_is_answered_with_its_tail(archive: ChunkArchive, start: OffsetSpec) -> None:
    remove_prefix(archive.table, INCARNATION, 30)
    assert attach(archive.table, STREAM, start, 5) == Tail(Offset(44))


def test_an_offset_in_a_log_that_lost_all_of_its_entries_is_answered_with_tail_and_floor(
    archive: ChunkArchive, resolver: Resolver
) -> None:
    remove_prefix(archive.table, INCARNATION, 30)
    answer = ask(resolver, AtOffset(Offset(7)))
    assert (answer.tail, answer.floor, answer.ranges) == (44, 44, ())
    assert attach(archive.table, STREAM, AtOffset(Offset(44)), 5) == Tail(Offset(44))
    assert attach(archive.table, STREAM, Cursor(INCARNATION, Offset(7)), 5) == Gap(Offset(7), Offset(44), REMOVED)


def test_an_answer_that_tells_a_floor_survives_the_way_to_the_client(archive: ChunkArchive, resolver: Resolver) -> None:
    remove_prefix(archive.table, INCARNATION, 1)
    answer = ask(resolver, AtOffset(Offset(3)))
    assert AnswerBody.model_validate(answer_body(answer)).value() == answer


def test_a_range_tells_its_storage_class_whether_it_must_be_restored_and_whether_it_was_erased(
    archive: ChunkArchive, resolver: Resolver
) -> None:
    for number, storage_class in enumerate((StorageClass.GLACIER_IR, StorageClass.DEEP_ARCHIVE)):
        move_to_class(archive.table, INCARNATION, number, storage_class)
    answer = ask(resolver, FIRST)
    assert [part.storage_class for part in answer.ranges] == ["GLACIER_IR", "DEEP_ARCHIVE"]
    assert [part.must_be_restored for part in answer.ranges] == [False, True]
    body = answer_body(answer)
    assert [part["must_be_restored"] for part in body["ranges"]] == [False, True]
    assert AnswerBody.model_validate(body).value() == answer
    erased = replace(answer, ranges=(replace(answer.ranges[0], erased=True),))
    assert AnswerBody.model_validate(answer_body(erased)).value().ranges[0].erased


def test_the_description_tells_the_floor_and_what_is_missing_from_there_on(
    archive: ChunkArchive, resolver: Resolver
) -> None:
    remove_prefix(archive.table, INCARNATION, 1)
    description = resolver.describe("/", "orders")
    assert (description.head.floor, description.before) == (10, None)
    remove_prefix(archive.table, INCARNATION, 1)
    description = resolver.describe("/", "orders")
    assert description.before == Gap(Offset(20), Offset(24))
    assert DescriptionBody.of(description).value().head.floor == 20


@pytest.mark.parametrize(
    "call",
    [
        lambda resolver: ask(resolver, FIRST),
        lambda resolver: ask(resolver, AtOffset(Offset(3))),
        lambda resolver: resolver.ranges(RangesQuery("/", "orders", FIRST, INCARNATION)),
        lambda resolver: ask(resolver, Continue(Cursor(INCARNATION, Offset(10)).to_text())),
        lambda resolver: resolver.describe("/", "orders"),
        lambda resolver: resolver.describe("/", "orders", INCARNATION),
    ],
)
def test_a_deleted_stream_is_as_one_that_never_was(
    archive: ChunkArchive, resolver: Resolver, clock: Clock, call: Callable[[Resolver], object]
) -> None:
    call(resolver)
    delete(archive.table, INCARNATION)
    clock.now += NAMES_KEPT_S
    with pytest.raises(StreamNotFoundError):
        call(resolver)
    undelete(archive.table, INCARNATION)
    clock.now += NAMES_KEPT_S
    call(resolver)


def test_the_name_of_a_deleted_incarnation_means_the_newest_of_the_others(
    archive: ChunkArchive, resolver: Resolver, clock: Clock
) -> None:
    again = ChunkArchive(LATER, objects=archive.objects)
    again.table = archive.table
    again.add(0, steady(1, 9))
    assert ask(resolver, FIRST).stream == LATER
    delete(archive.table, LATER.incarnation)
    clock.now += NAMES_KEPT_S
    assert ask(resolver, FIRST).stream == STREAM


def test_who_appends_to_a_direct_stream_is_described(archive: ChunkArchive, resolver: Resolver) -> None:
    body = DescriptionBody.of(resolver.describe("/", "orders", INCARNATION))
    assert body.appender is None
    assert body.value().head.appender is None
    opening = Opening(Epoch(2), WalPlace(WalKind.DISK, "host-1", 3))
    appender = Appender(Epoch(2), (opening,), Offset(1), Offset(7), is_sealed=True, properties=(("größe", "x"),))
    head = archive.table.head(INCARNATION)
    assert head is not None
    archive.table.apply(change_to(replace(head, revision=head.revision + 1, appender=appender)))
    described = resolver.describe("/", "orders", INCARNATION)
    assert DescriptionBody.model_validate_json(
        DescriptionBody.of(described).model_dump_json()
    ).value().head.appender == (appender)


def test_deleted_streams_are_listed_and_described_only_for_who_asks_for_them(
    archive: ChunkArchive, resolver: Resolver
) -> None:
    again = ChunkArchive(LATER, objects=archive.objects)
    again.table = archive.table
    again.add(0, steady(1, 9))
    delete(archive.table, INCARNATION)
    assert resolver.streams(None, 10).streams == (LATER,)
    assert resolver.streams(None, 10, may_read=lambda *_: True).streams == (LATER,)
    for may_read in (None, lambda *_: True):
        assert set(resolver.streams(None, 10, may_read=may_read, deleted=True).streams) == {STREAM, LATER}
    described = resolver.describe("/", "orders", INCARNATION, deleted=True)
    body = DescriptionBody.of(described)
    assert body.deleted_at == described.head.deleted_at == NOW
    assert body.value().head.purge_at == described.head.purge_at


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_pages_of_a_list_without_deleted_streams_lose_none_and_repeat_none(limit: int) -> None:
    archive = ChunkArchive()
    streams = [StreamId("/", f"s{number}", Incarnation(f"__s{number}_1763700000000000000")) for number in range(9)]
    for stream in streams:
        one = ChunkArchive(stream, objects=archive.objects)
        one.table = archive.table
        one.add(0, steady(1, 9))
    for stream in streams[::3]:
        delete(archive.table, stream.incarnation)
    resolver = Resolver(archive.table, archive.objects, url_expiry_s=60)
    found: list[StreamId] = []
    cursor = None
    while True:
        page = resolver.streams(cursor, limit)
        found += page.streams
        cursor = page.cursor
        if cursor is None:
            break
    assert len(found) == len(set(found))
    assert set(found) == set(streams) - set(streams[::3])
