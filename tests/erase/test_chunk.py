from __future__ import annotations

from dataclasses import replace

import pytest
from rstream._pyamqp._decode import decode_payload

from coldstream.erase.chunk import Doubts, erase_chunk
from coldstream.erase.selection import Selection
from coldstream.erase.value_digest import ValueDigest
from coldstream.errors import CorruptionError
from coldstream.format.amqp.message import Message, messages
from coldstream.format.chunk import ChunkType
from coldstream.format.compression import Compression
from coldstream.format.entry import SubBatch, iter_entries
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.format.tracking import TrackingType, iter_tracking
from coldstream.format.writer import make_sub_batch
from coldstream.units import Offset
from tests.erase.samples import BLOOM, amqp, between, bytes_of, chunk_of, erase, raw_of

SECRET = b"the secret of Alice"


def members(count: int) -> list[bytes]:
    return [amqp(SECRET + b" %d" % number, user=f"user-{number}") for number in range(count)]


def test_the_offsets_of_a_range_lose_their_bytes_and_no_other_does() -> None:
    published = members(5)
    found = raw_of(erase(chunk_of(*published), between(101, 103)))
    assert found == [published[0], ERASED_MESSAGE, ERASED_MESSAGE, *published[3:]]


@pytest.mark.parametrize(("first", "following"), [(0, 100), (105, 200)])
def test_a_chunk_beside_the_range_is_left_alone(first: int, following: int) -> None:
    assert erase_chunk(chunk_of(*members(5)), between(first, following), Doubts(), source="test") is None


@pytest.mark.parametrize(("first", "following", "left"), [(0, 101, 4), (104, 105, 4), (104, 999, 4), (0, 999, 0)])
def test_the_borders_of_a_range_are_half_open(first: int, following: int, left: int) -> None:
    found = raw_of(erase(chunk_of(*members(5)), between(first, following)))
    assert sum(raw != ERASED_MESSAGE for raw in found) == left


def test_the_header_keeps_all_but_crc_and_size() -> None:
    before = chunk_of(*members(3), make_sub_batch(members(4), Compression.GZIP))
    after = erase(before, between(0, 999)).header
    assert after == replace(before.header, crc=after.crc, data_bytes=after.data_bytes)
    assert after.crc != before.header.crc


def test_the_trailer_stays_so_publishers_are_still_deduplicated() -> None:
    before = chunk_of(*members(3))
    after = erase(before, between(0, 999))
    assert bytes(after.trailer) == bytes(before.trailer)
    (record,) = iter_tracking(after, source="test")
    assert (record.type, record.value) == (TrackingType.SEQUENCE, 17)


def test_the_bloom_filter_of_a_rewritten_chunk_matches_any_value() -> None:
    assert bytes(erase(chunk_of(*members(3)), between(101, 102)).bloom) == b"\xff" * len(BLOOM)


def test_an_erased_message_is_one_that_another_library_decodes_as_empty() -> None:
    decoded = decode_payload(memoryview(ERASED_MESSAGE))
    assert decoded.body == b""
    assert [value for value in decoded if value is not None] == [b""]


def test_an_erased_message_has_an_empty_body_and_nothing_else() -> None:
    message = next(messages(erase(chunk_of(amqp(SECRET, user="alice")), between(0, 999)), source="test"))
    assert (message.body, message.body_kind, message.properties, message.message_annotations) == (
        b"",
        "data",
        None,
        None,
    )
    assert message.to_dict() == {"offset": 100, "timestamp": "2025-11-21T04:40:00.123Z", "body": ""}


@pytest.mark.parametrize("compression", list(Compression))
def test_members_of_a_sub_batch_go_and_the_others_stay(compression: Compression) -> None:
    published = members(6)
    before = chunk_of(published[0], make_sub_batch(published[1:5], compression), published[5])
    after = erase(before, between(102, 104))
    assert raw_of(after) == [*published[:2], ERASED_MESSAGE, ERASED_MESSAGE, *published[4:]]
    _, batch, _ = iter_entries(after, source="test")
    assert isinstance(batch, SubBatch)
    assert (batch.compression, batch.records) == (compression, 4)


def test_a_sub_batch_without_taken_messages_stays_as_its_publisher_packed_it() -> None:
    packed = make_sub_batch(members(4), Compression.ZSTD)
    before = chunk_of(SECRET, packed)
    _, after = iter_entries(erase(before, between(100, 101)), source="test")
    assert isinstance(after, SubBatch)
    assert after.to_bytes() == packed.to_bytes()


def test_what_was_erased_is_not_erased_again() -> None:
    erased = erase(chunk_of(SECRET, make_sub_batch(members(4), Compression.LZ4)), between(0, 103))
    assert erase_chunk(erased, between(0, 103), Doubts(), source="test") is None
    assert raw_of(erase(erased, between(0, 999))) == [ERASED_MESSAGE] * 5


def test_a_message_without_any_byte_becomes_an_erased_one_too() -> None:
    assert raw_of(erase(chunk_of(b"", b"abc"), between(100, 101))) == [ERASED_MESSAGE, b"abc"]


def unknown(count: int) -> SubBatch:
    return SubBatch(7, count, 1000, memoryview(SECRET), 0)


def test_a_sub_batch_that_nobody_can_unpack_goes_if_all_of_it_does() -> None:
    assert raw_of(erase(chunk_of(b"a", unknown(3), b"b"), between(101, 104))) == [b"a", *[ERASED_MESSAGE] * 3, b"b"]


def test_a_part_of_a_sub_batch_that_nobody_can_unpack_is_refused() -> None:
    with pytest.raises(CorruptionError):
        erase_chunk(chunk_of(b"a", unknown(3)), between(101, 103), Doubts(), source="test")


def test_a_sub_batch_that_nobody_can_unpack_stays_beside_what_goes() -> None:
    before = chunk_of(b"a", unknown(3))
    after = erase_chunk(before, between(100, 101), Doubts(), source="test")
    assert after is not None
    assert unknown(3).to_bytes() in bytes_of(after)


@pytest.mark.parametrize("count", [1, 3])
def test_a_sub_batch_that_nobody_can_unpack_is_counted_and_does_not_keep_the_others(count: int) -> None:
    alice, doubts = amqp(SECRET, user="alice"), Doubts()
    packed = make_sub_batch([amqp(SECRET, user="bob"), alice], Compression.GZIP)
    lying = SubBatch(0, count, packed.uncompressed_bytes, make_sub_batch([alice] * (count + 1)).data, 0)
    before = chunk_of(alice, unknown(count), packed, lying, amqp(SECRET)[:-3], alice)
    erased = erase_chunk(before, Selection(key=ValueDigest.of("alice")), doubts, source="test")
    assert erased is not None
    last = before.header.next_offset - 1
    assert list(erased.offsets) == [100, 102 + count, last]
    assert doubts == Doubts(unreadable=2 * count + 1)
    left = make_sub_batch([amqp(SECRET, user="bob"), ERASED_MESSAGE], Compression.GZIP)
    assert unknown(count).to_bytes() + left.to_bytes() in bytes_of(erased)


@pytest.mark.parametrize(("first", "following", "unreadable"), [(0, 101, 0), (0, 102, 1), (103, 104, 1), (104, 999, 0)])
def test_a_sub_batch_that_nobody_can_unpack_counts_by_the_offsets_that_are_asked_for(
    first: int, following: int, unreadable: int
) -> None:
    doubts = Doubts()
    selection = Selection(Offset(first), Offset(following), key=ValueDigest.of("alice"))
    erase_chunk(chunk_of(b"a", unknown(3), b"b"), selection, doubts, source="test")
    assert doubts == Doubts(unreadable=unreadable)


def test_bytes_that_hide_in_a_sub_batch_without_records_go_with_their_neighbour() -> None:
    hidden = SubBatch(0, 0, len(SECRET), memoryview(SECRET), 0)
    for place in ([hidden, b"a", b"b"], [b"a", hidden, b"b"], [b"a", b"b", hidden]):
        erased = erase_chunk(chunk_of(*place), between(100, 102), Doubts(), source="test")
        assert erased is not None
        assert SECRET not in bytes_of(erased)
        assert erased.header.entries == 3


@pytest.mark.parametrize("kind", [ChunkType.TRACKING_DELTA, ChunkType.TRACKING_SNAPSHOT])
def test_a_tracking_chunk_stays(kind: ChunkType) -> None:
    assert erase_chunk(chunk_of(SECRET, kind=kind), between(0, 999), Doubts(), source="test") is None


def test_a_message_of_damaged_amqp_is_left_and_counted() -> None:
    doubts = Doubts()
    damaged = amqp(SECRET, user="alice")[:-3]
    selection = Selection(key=ValueDigest.of("alice"))
    assert raw_of(erase(chunk_of(damaged, amqp(SECRET, user="alice")), selection, doubts)) == [damaged, ERASED_MESSAGE]
    assert doubts == Doubts(unreadable=1)


def test_a_message_whose_filter_value_only_the_bloom_filter_knows_is_counted() -> None:
    doubts = Doubts()
    selection = Selection(filter_value=ValueDigest.of("alice"))
    beside, own = amqp(SECRET), amqp(SECRET, x_stream_filter_value="alice")
    other = amqp(SECRET, x_stream_filter_value="bob")
    assert raw_of(erase(chunk_of(beside, own, other), selection, doubts)) == [beside, ERASED_MESSAGE, other]
    assert doubts == Doubts(unknown_filter_values=1)


def test_the_function_of_a_user_is_given_every_message_that_the_other_conditions_take() -> None:
    asked = []

    def takes(message: Message) -> bool:
        asked.append(message.offset)
        return message.body == b"b"

    selection = Selection(Offset(101), Offset(104), function="a:b").with_predicate(takes)
    published = [amqp(body) for body in (b"b", b"a", b"b", b"c", b"b")]
    assert raw_of(erase(chunk_of(*published), selection)) == [*published[:2], ERASED_MESSAGE, *published[3:]]
    assert asked == [101, 102, 103]
