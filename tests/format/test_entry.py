"""Entries of a chunk: whole, and counted in pieces."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import BadCountError, BadLengthError, BadVersionError
from coldstream.format.chunk import Chunk, ChunkType, iter_chunks
from coldstream.format.compression import Compression
from coldstream.format.entry import SubBatch, iter_entries, simple_entry
from coldstream.format.entry_counter import EntryCounter, count_simple_entries
from coldstream.format.writer import make_chunk, make_sub_batch
from coldstream.units import ChunkId, Epoch, TimestampMs

SOURCE = "ström"
POSITION = 500


def chunk_of(*entries: bytes | SubBatch, kind: ChunkType = ChunkType.USER, bloom: bytes = b"") -> Chunk:
    _, data = make_chunk(entries, chunk_id=ChunkId(3), timestamp=TimestampMs(0), epoch=Epoch(1), kind=kind, bloom=bloom)
    return next(iter_chunks(data, source=SOURCE, position=POSITION))


def with_data(chunk: Chunk, data: bytes) -> Chunk:
    return replace(chunk, data=memoryview(data))


def counter_of(*pieces: bytes) -> EntryCounter:
    counter = EntryCounter()
    for piece in pieces:
        counter.feed(memoryview(piece))
    return counter


def flatten(chunk: Chunk) -> list[bytes]:
    messages: list[bytes] = []
    for entry in iter_entries(chunk, source=SOURCE):
        if isinstance(entry, SubBatch):
            messages += map(bytes, entry.messages(source=SOURCE))
        else:
            messages.append(bytes(entry))
    return messages


messages = st.binary(max_size=20)
batches = st.builds(make_sub_batch, st.lists(messages, max_size=4), st.sampled_from(Compression))
chunks = st.lists(st.one_of(messages, batches), min_size=1, max_size=8).filter(
    lambda entries: any(not isinstance(entry, SubBatch) or entry.records for entry in entries)
)


def test_simple_entry_is_a_31_bit_length_and_the_message():
    assert simple_entry(b"abc") == b"\0\0\0\x03abc"


def test_a_message_too_long_for_a_simple_entry_is_refused(monkeypatch):
    monkeypatch.setattr("coldstream.format.entry.MAX_MESSAGE_BYTES", 3)
    assert simple_entry(b"abc") == b"\0\0\0\x03abc"
    with pytest.raises(OverflowError, match="at most 3 bytes, not 4"):
        simple_entry(b"abcd")


def test_sub_batch_header_is_laid_out_as_the_field_table_says():
    batch = SubBatch(Compression.LZ4, 0x0102, 0x03040506, memoryview(b"xyz"), 0)
    assert batch.to_bytes() == bytes.fromhex("b0 0102 03040506 00000003") + b"xyz"
    chunk = with_data(chunk_of(b""), batch.to_bytes())
    assert next(iter_entries(chunk, source=SOURCE)) == replace(batch, position=POSITION + 48)


def test_entries_come_out_in_order_with_sub_batches_still_packed():
    batch = make_sub_batch([b"two", b"three"], Compression.GZIP)
    chunk = chunk_of(b"one", batch, b"", bloom=b"B" * 16)
    first, packed, last = iter_entries(chunk, source=SOURCE)
    assert (bytes(first), bytes(last)) == (b"one", b"")
    assert packed == replace(batch, position=POSITION + 48 + 16 + 4 + 3)
    assert flatten(chunk) == [b"one", b"two", b"three", b""]


@given(chunks)
def test_messages_of_any_entries_come_back(entries):
    expected: list[bytes] = []
    for entry in entries:
        expected += map(bytes, entry.messages(source="")) if isinstance(entry, SubBatch) else [entry]
    assert flatten(chunk_of(*entries)) == expected


@pytest.mark.parametrize("kind", ChunkType)
def test_tracking_chunks_have_entries_too(kind):
    assert flatten(chunk_of(b"tracked", kind=kind)) == [b"tracked"]


def test_an_entry_that_runs_past_the_data_is_named_by_its_position():
    chunk = with_data(chunk_of(b"one", b"two"), b"\0\0\0\x03one\0\0\0\x04two")
    with pytest.raises(BadLengthError) as caught:
        list(iter_entries(chunk, source=SOURCE))
    assert caught.value.position == POSITION + 48 + 7


def test_every_cut_of_the_data_is_noticed():
    chunk = chunk_of(b"one", make_sub_batch([b"two"]), b"three")
    for size in range(len(chunk.data)):
        with pytest.raises((BadLengthError, BadCountError)):
            list(iter_entries(with_data(chunk, bytes(chunk.data[:size])), source=SOURCE))


def test_reserved_bits_of_a_sub_batch_are_refused_where_entries_are_read():
    data = bytearray(chunk_of(make_sub_batch([b"one"])).data)
    data[0] |= 1
    with pytest.raises(BadVersionError):
        list(iter_entries(with_data(chunk_of(b"one"), bytes(data)), source=SOURCE))


def test_an_unknown_compression_is_refused_only_when_messages_are_asked_for():
    batch = replace(make_sub_batch([b"one"]), compression=7)
    (found,) = iter_entries(chunk_of(batch), source=SOURCE)
    assert isinstance(found, SubBatch)
    assert found.compression == 7
    with pytest.raises(BadVersionError, match="compression"):
        next(found.messages(source=SOURCE))


@pytest.mark.parametrize("changes", [{"entries": 1}, {"entries": 3}, {"records": 1}, {"records": 3}])
def test_counts_that_differ_from_the_header_are_refused_after_the_entries(changes):
    chunk = chunk_of(b"one", b"two")
    entries = iter_entries(replace(chunk, header=replace(chunk.header, **changes)), source=SOURCE)
    assert [bytes(next(entries)), bytes(next(entries))] == [b"one", b"two"]
    with pytest.raises(BadCountError) as caught:
        next(entries)
    assert caught.value.position == POSITION


@pytest.mark.parametrize(("records", "found"), [(0, "more"), (1, "more"), (3, 2)])
def test_a_sub_batch_of_another_number_of_messages_is_refused_and_yields_no_more_than_it_claims(records, found):
    messages = replace(make_sub_batch([b"one", b"two"]), records=records, position=77).messages(source=SOURCE)
    assert [bytes(next(messages)) for _ in range(min(records, 2))] == [b"one", b"two"][:records]
    with pytest.raises(BadCountError) as caught:
        next(messages)
    assert (caught.value.position, caught.value.expected, caught.value.found) == (77, records, found)


@pytest.mark.parametrize("size", [1, 3, 4, 6, 8, 13])
def test_a_message_that_runs_past_its_sub_batch_is_refused(size):
    batch = make_sub_batch([b"one", b"two"])
    with pytest.raises(BadLengthError):
        list(replace(batch, data=batch.data[:size]).messages(source=SOURCE))


def test_a_sub_batch_inside_a_sub_batch_is_refused():
    inner = make_sub_batch([b"one"]).to_bytes()
    with pytest.raises(BadVersionError, match="inside"):
        list(SubBatch(0, 1, len(inner), memoryview(inner), 0).messages(source=SOURCE))


@pytest.mark.parametrize(("compression", "records"), [(0, -1), (0, 65536), (8, 1), (16, 1)])
def test_a_sub_batch_that_its_header_cannot_describe_is_not_encoded(compression, records):
    with pytest.raises(OverflowError):
        SubBatch(compression, records, 0, memoryview(b""), 0).to_bytes()


@given(chunks, st.data())
def test_counting_does_not_depend_on_where_pieces_are_cut(entries, data):
    chunk = chunk_of(*entries)
    size = len(chunk.data)
    cuts = sorted(data.draw(st.lists(st.integers(0, size), max_size=10)))
    counter = counter_of(*(bytes(chunk.data[a:b]) for a, b in zip([0, *cuts], [*cuts, size], strict=True)))
    counter.check(chunk.header, source=SOURCE, position=0)


def test_counting_byte_by_byte():
    chunk = chunk_of(b"", make_sub_batch([b"one", b""], Compression.ZSTD), b"x" * 300, make_sub_batch([]))
    counter = counter_of(*(bytes([byte]) for byte in chunk.data))
    counter.check(chunk.header, source=SOURCE, position=0)


@pytest.mark.parametrize("size", range(1, 19))
def test_data_that_ends_inside_an_entry_is_refused_when_counted(size):
    chunk = chunk_of(make_sub_batch([b"one", b"two"]), b"three")
    counter = counter_of(bytes(chunk.data[:-size]))
    with pytest.raises((BadLengthError, BadCountError)) as caught:
        counter.check(chunk.header, source=SOURCE, position=9)
    assert caught.value.position == 9


@pytest.mark.parametrize("changes", [{"entries": 2}, {"entries": 4}, {"records": 3}, {"records": 5}])
def test_counting_compares_with_the_header(changes):
    chunk = chunk_of(b"one", make_sub_batch([b"two", b"three"]), b"four")
    counter = counter_of(bytes(chunk.data))
    counter.check(chunk.header, source=SOURCE, position=0)
    with pytest.raises(BadCountError):
        counter.check(replace(chunk.header, **changes), source=SOURCE, position=0)


def test_a_sub_batch_in_a_tracking_chunk_is_refused_when_counted():
    chunk = chunk_of(make_sub_batch([b"one"]))
    counter = counter_of(bytes(chunk.data))
    counter.check(chunk.header, source=SOURCE, position=0)
    with pytest.raises(BadCountError, match="tracking"):
        counter.check(replace(chunk.header, type=ChunkType.TRACKING_DELTA), source=SOURCE, position=0)


def test_counting_does_not_care_about_compressions_or_reserved_bits():
    data = bytearray(make_sub_batch([b"one"]).to_bytes())
    data[0] = 0xFF
    counter_of(bytes(data)).check(chunk_of(b"one").header, source=SOURCE, position=0)


@given(st.lists(messages, max_size=8), st.integers(0, 5), st.integers(-3, 3))
def test_simple_entries_are_counted_at_once_if_they_end_where_the_data_does(found, before, more):
    data = b"\xff" * before + b"".join(map(simple_entry, found)) + b"\0\0\0"
    end = len(data) - 3
    count = count_simple_entries(data, before, end + more)
    assert count == (len(found) if more == 0 else count_simple_entries(memoryview(data), before, end + more))
    if more > 0:
        assert count is None


def test_a_sub_batch_is_not_counted_at_once():
    data = simple_entry(b"one") + make_sub_batch([b"two"]).to_bytes()
    assert count_simple_entries(data, 0, len(data)) is None
