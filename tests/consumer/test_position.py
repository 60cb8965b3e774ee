from __future__ import annotations

import pytest

from coldstream.consumer.position import ReadPosition, Relation
from coldstream.errors import IncarnationError
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs


def header(chunk_id: int, records: int = 10, *, timestamp: int = 1000, epoch: int = 2, crc: int = 7) -> ChunkHeader:
    return ChunkHeader(
        ChunkType.USER, records, records, TimestampMs(timestamp), Epoch(epoch), ChunkId(chunk_id), crc, 100, 0, 0
    )


def after(chunk: ChunkHeader) -> ReadPosition:
    position = ReadPosition("orders")
    position.advance(chunk)
    return position


def test_before_a_start_is_known_any_chunk_is_next() -> None:
    assert ReadPosition("orders").relation(header(77)) is Relation.NEXT


@pytest.mark.parametrize(
    ("chunk", "relation"),
    [
        (header(100), Relation.WITNESS),
        (header(90), Relation.BEFORE),
        (header(110), Relation.NEXT),
        (header(111), Relation.PAST),
    ],
)
def test_a_chunk_goes_on_only_where_the_one_before_ended(chunk: ChunkHeader, relation: Relation) -> None:
    assert after(header(100)).relation(chunk) is relation


@pytest.mark.parametrize(
    "chunk",
    [
        header(100, crc=8),
        header(100, epoch=3),
        header(100, timestamp=1001),
        header(100, records=11),
        header(95),
        header(99, records=2),
        header(105),
        header(109, records=1),
    ],
)
def test_another_chunk_in_the_place_of_the_witness_is_of_another_incarnation(chunk: ChunkHeader) -> None:
    with pytest.raises(IncarnationError, match="'orders' was deleted and declared again"):
        after(header(100)).relation(chunk)


def test_an_erased_witness_is_the_chunk_that_it_was() -> None:
    position = ReadPosition("orders")
    position.advance(header(100), is_erased=True)
    assert position.relation(header(100, crc=8)) is Relation.WITNESS
    with pytest.raises(IncarnationError):
        position.relation(header(100, epoch=3, crc=8))
    assert after(header(100)).relation(header(100, crc=8), is_erased=True) is Relation.WITNESS
    position.advance(header(110))
    with pytest.raises(IncarnationError):
        position.relation(header(110, crc=8))


def test_a_user_chunk_in_the_place_of_tracking_chunks_is_of_another_incarnation() -> None:
    position = after(header(100))
    position.expected = Offset(113)
    assert position.relation(header(113)) is Relation.NEXT
    with pytest.raises(IncarnationError):
        position.relation(header(111, records=1))
    with pytest.raises(IncarnationError):
        position.relation(header(112, records=2))


def test_a_start_inside_a_chunk_takes_the_chunk() -> None:
    position = ReadPosition("orders")
    position.move(Offset(105), is_border=False)
    assert position.relation(header(100)) is Relation.NEXT
    assert position.relation(header(95)) is Relation.BEFORE
    position.move(Offset(105))
    with pytest.raises(IncarnationError):
        position.relation(header(100))


def test_a_chunk_after_the_witness_has_no_older_epoch_and_one_before_it_is_not_younger() -> None:
    position = after(header(100))
    position.check_order(header(200))
    position.check_order(header(50))
    for chunk in (header(200, epoch=1), header(50, timestamp=1001)):
        with pytest.raises(IncarnationError):
            position.check_order(chunk)
    ReadPosition("orders").check_order(header(200))


def test_reading_attaches_at_the_witness_or_else_at_the_expected_offset() -> None:
    position = ReadPosition("orders")
    assert position.attachment() == FIRST
    position.advance(header(100))
    assert position.attachment() == AtOffset(Offset(100))
    position.move(Offset(150))
    assert position.attachment() == AtOffset(Offset(150))


def test_the_first_chunk_of_a_time_and_all_after_it_are_read() -> None:
    position = ReadPosition("orders", not_before=TimestampMs(1000))
    assert [position.reaches_start_time(header(0, timestamp=at)) for at in (998, 999, 1000, 990)] == [
        False,
        False,
        True,
        True,
    ]
