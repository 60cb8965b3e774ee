"""Messages of a chunk: every one, at its offset, with what is in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coldstream.errors import (
    BadCountError,
    BadLengthError,
    BadMagicError,
    BadVersionError,
    CorruptionError,
    TruncatedError,
)
from coldstream.format.amqp.message import Message, messages
from coldstream.format.amqp.sections import DATA, Header, Properties, body_section, locate, read_body
from coldstream.format.amqp.types import Symbol, Timestamp
from coldstream.format.chunk import Chunk, ChunkType, iter_chunks
from coldstream.format.compression import Compression
from coldstream.format.entry import SubBatch, iter_entries
from coldstream.format.writer import make_chunk, make_sub_batch
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.support.amqp_samples import MESSAGES

pytestmark = pytest.mark.usefixtures("decoding")

SOURCE = "ström"
FIRST = 1000
NOW = TimestampMs(1_763_700_000_123)


def chunk_of(*entries: bytes | SubBatch, kind: ChunkType = ChunkType.USER) -> Chunk:
    _, data = make_chunk(entries, chunk_id=ChunkId(FIRST), timestamp=NOW, epoch=Epoch(1), kind=kind)
    return next(iter_chunks(data, source=SOURCE, position=8))


def with_data(chunk: Chunk, data: bytes, **header: Any) -> Chunk:
    return replace(chunk, data=memoryview(data), header=replace(chunk.header, data_bytes=len(data), **header))


def messages_of(chunk: Chunk, from_offset: int = 0) -> list[Message]:
    return list(messages(chunk, source=SOURCE, from_offset=Offset(from_offset)))


def found_in(chunk: Chunk, from_offset: int = 0) -> list[tuple[int, bytes]]:
    return [(message.offset, message.raw) for message in messages_of(chunk, from_offset)]


def one(raw: bytes) -> Message:
    (message,) = messages_of(chunk_of(raw))
    return message


def data8(body: bytes) -> bytes:
    return b"\x00\x53\x75\xa0" + bytes((len(body),)) + body


def data32(body: bytes) -> bytes:
    return b"\x00\x53\x75\xb0" + len(body).to_bytes(4) + body


# What brokers of 3.10 make of an AMQP 0.9.1 message, one of whose headers holds bytes that are not UTF-8.
FROM_AMQP_0_9_1 = bytes.fromhex(
    "005372c16e0aa30d782d726f7574696e672d6b6579a1066f7264657273a30a782d65786368616e6765a100a310782d62617369632d7072696f"
    "726974795005a315782d62617369632d64656c69766572792d6d6f64655002a312782d62617369632d65787069726174696f6ea10536303030"
    "30005373c0420da1056d73672d31a00567756573744040a1077265706c696573a106636f72722d31a30a746578742f706c61696ea305757466"
    "2d3840830000018bcfe56800404040005374c18916a10c782d62617369632d74797065a1086772656574696e67a10e782d62617369632d6170"
    "702d6964a103617070a1046e616d65a1074772c3bcc39f65a10362696ea102fffea1016e54f9a103626967810000010000000000a104666c61"
    "675601a1046e6f6e6540a1026174830000018bcfe56800a102706982400c000000000000a10162a0020102005375a00b68656c6c6f20776f72"
    "6c64"
)


def test_a_message_has_its_offset_its_chunks_timestamp_and_its_bytes():
    found = messages_of(chunk_of(b"one", data8(b"two")))
    assert [(message.offset, message.timestamp, message.raw) for message in found] == [
        (FIRST, NOW, b"one"),
        (FIRST + 1, NOW, data8(b"two")),
    ]


SHORT = [0, 1, 254, 255]
LONG = [256, 65_527, 65_528, 65_529, 70_000, 300_000]
"""Up to where a size takes four bytes; and from there on, also around 64 KiB."""


@pytest.mark.parametrize(
    ("encode", "size"), [*((data8, size) for size in SHORT), *((data32, size) for size in SHORT + LONG)]
)
def test_a_body_of_any_size_in_either_encoding(encode, size):
    body = (bytes(range(251)) * (size // 251 + 1))[:size]
    message = one(encode(body))
    assert (message.body, message.raw, message.body_kind) == (body, encode(body), "data")
    assert (message.properties, message.header, message.footer) == (None, None, None)


@pytest.mark.parametrize("raw", [FROM_AMQP_0_9_1, *MESSAGES.values()], ids=["AMQP 0.9.1", *MESSAGES])
def test_a_message_is_the_same_by_the_fast_way_and_by_its_sections(raw):
    sections = locate(raw, source=SOURCE)
    message = one(raw)
    assert message.raw == raw
    assert message.body == read_body(raw, sections, source=SOURCE)
    assert (message.body_kind == "data") == (body_section(sections, source=SOURCE) == DATA)


@example(bytes(300), data32, b"\0")
@example(b"\0x", data32, data32(bytes(502)))  # from its second byte on, its size would be that of all that follows
@given(st.binary(max_size=300), st.sampled_from([data8, data32]), st.binary(max_size=3))
def test_nearly_a_data_section_is_the_same_by_the_fast_way_and_by_its_sections(body, encode, behind):
    body = body[:255] if encode is data8 else body
    raw = encode(body) + behind
    message = one(raw)
    assert message.raw == raw
    try:
        expected = read_body(raw, locate(raw, source=SOURCE), source=SOURCE)
    except CorruptionError as err:
        with pytest.raises(type(err)):
            message.body  # noqa: B018  (a property that raises)
    else:
        assert message.body == expected


def test_what_a_broker_made_of_an_amqp_0_9_1_message():
    message = one(FROM_AMQP_0_9_1)
    assert message.body == b"hello world"
    assert message.properties == Properties(
        message_id="msg-1",
        user_id=b"guest",
        reply_to="replies",
        correlation_id="corr-1",
        content_type=Symbol("text/plain"),
        content_encoding=Symbol("utf-8"),
        creation_time=Timestamp(1_700_000_000_000),
    )
    assert message.message_annotations == {
        "x-routing-key": "orders",
        "x-exchange": "",
        "x-basic-priority": 5,
        "x-basic-delivery-mode": 2,
        "x-basic-expiration": "60000",
    }
    assert message.application_properties == {
        "x-basic-type": "greeting",
        "x-basic-app-id": "app",
        "name": "Grüße",
        "bin": b"\xff\xfe",
        "n": -7,
        "big": 1 << 40,
        "flag": True,
        "none": None,
        "at": 1_700_000_000_000,
        "pi": 3.5,
        "b": b"\x01\x02",
    }
    assert (message.header, message.delivery_annotations, message.footer) == (None, None, None)


def test_every_section_by_its_name():
    message = one(MESSAGES["every section"])
    assert message.header == Header(durable=True, priority=5, ttl=60_000, first_acquirer=False, delivery_count=2)
    assert message.delivery_annotations == {"x-delivery": "d"}
    assert message.message_annotations == {"x-exchange": "e", "x-list": [1, "two"]}
    assert message.properties == Properties(message_id="id-2")
    assert message.application_properties == {"key": "value"}
    assert message.footer == {"x-crc": 42}
    assert (message.body_kind, message.body) == ("data", b"body")


def test_a_section_is_decoded_once():
    message = one(MESSAGES["properties"])
    assert message.properties is not None
    assert message.properties is message.properties


def test_a_message_without_bytes_has_no_body():
    message = one(b"")
    assert (message.raw, message.body, message.body_kind, message.properties) == (b"", None, None, None)


@pytest.mark.parametrize("raw", [b"h", b"hello", b'{"json": true}', b"\xff" * 300])
def test_what_is_not_amqp_is_delivered_raw_and_has_no_body(raw):
    message = one(raw)
    assert message.raw == raw
    for name in ("body", "body_kind", "properties", "header"):
        with pytest.raises(BadMagicError):
            getattr(message, name)


def test_damaged_amqp_is_told_by_source_and_offset():
    whole, cut = messages_of(chunk_of(data8(b"whole"), MESSAGES["properties"][:-1]))
    assert whole.body == b"whole"
    with pytest.raises(TruncatedError, match=f"{SOURCE}, message at offset {FIRST + 1} at byte"):
        cut.body  # noqa: B018  (a property that raises)


def test_a_damaged_section_leaves_the_others_readable():
    message = one(b"\x00\x53\x73\xc0\x03\x01\x56\x02" + data8(b"body"))
    assert message.body == b"body"
    for _ in range(2):
        with pytest.raises(CorruptionError, match="2 is no boolean"):
            message.properties  # noqa: B018  (a property that raises)


@pytest.mark.parametrize("compression", list(Compression))
def test_sub_batches_of_every_compression_among_simple_entries(compression):
    batch = [data8(b"%d" % number) for number in range(100)] + [b"", b"raw", data32(bytes(1000))]
    found = found_in(
        chunk_of(b"first", make_sub_batch(batch, compression), b"between", make_sub_batch(batch, compression))
    )
    assert found == list(enumerate([b"first", *batch, b"between", *batch], FIRST))


@pytest.mark.parametrize("compression", list(Compression))
def test_reading_may_start_at_any_offset_of_a_chunk(compression):
    batch = make_sub_batch([data8(b"%d" % number) for number in range(4)], compression)
    chunk = chunk_of(data8(b"a"), b"b", batch, b"c", batch, data8(b"d"))
    everything = found_in(chunk)
    assert [offset for offset, _ in everything] == list(range(FIRST, FIRST + 12))
    for from_offset in range(FIRST - 2, FIRST + 14):
        assert found_in(chunk, from_offset) == [entry for entry in everything if entry[0] >= from_offset]


def test_sub_batches_before_the_offset_asked_for_are_not_unpacked():
    bad = SubBatch(Compression.GZIP, 3, 10, memoryview(b"no gzip"), 0)
    chunk = chunk_of(bad, b"after")
    assert found_in(chunk, FIRST + 3) == [(FIRST + 3, b"after")]
    with pytest.raises(CorruptionError):
        found_in(chunk, FIRST + 2)


@pytest.mark.parametrize("kind", [ChunkType.TRACKING_DELTA, ChunkType.TRACKING_SNAPSHOT])
def test_a_tracking_chunk_has_no_messages(kind):
    assert found_in(chunk_of(b"tracking", kind=kind)) == []


SMALL = st.binary(max_size=12) | st.integers(0, 400).map(
    lambda size: data8(bytes(size)) if size < 256 else data32(bytes(size))
)
LARGE = st.sampled_from([30_000, 65_520, 65_531, 65_532, 65_533, 65_536, 140_000]).map(bytes)


@given(st.lists(SMALL | LARGE, min_size=1, max_size=30))
def test_messages_of_any_size_come_out_as_they_went_in(raw):
    assert found_in(chunk_of(*raw)) == list(enumerate(raw, FIRST))


def entry_by_entry(chunk: Chunk) -> Iterator[tuple[int, bytes]]:
    """Read a chunk as entry.py does; nothing at an offset past the chunk's last."""
    offset = FIRST
    for entry in iter_entries(chunk, source=SOURCE):
        packed = entry.messages(source=SOURCE) if isinstance(entry, SubBatch) else [entry]
        records = entry.records if isinstance(entry, SubBatch) else 1
        if records and offset + records <= chunk.header.next_offset:
            for number, message in enumerate(packed):
                yield offset + number, bytes(message)
        offset += records


def until_error(found: Iterator[Any]) -> tuple[list[Any], type | None]:
    """Return what comes, and the type of the error at its end."""
    out = []
    try:
        out.extend(found)
    except CorruptionError as err:
        return out, type(err)
    return out, None


ENTRIES = st.lists(
    st.binary(max_size=20)
    | st.binary(max_size=20).map(data8)
    | st.builds(make_sub_batch, st.lists(st.binary(max_size=20), min_size=1, max_size=4), st.sampled_from(Compression)),
    min_size=1,
    max_size=6,
)


@given(ENTRIES, st.data())
def test_damage_is_found_where_reading_entry_by_entry_finds_it(entries, data):
    chunk = chunk_of(*entries)
    content = bytearray(chunk.data)
    what = data.draw(st.sampled_from(["cut", "change", "extend", "records", "entries"]))
    header: dict[str, int] = {}
    if what == "cut":
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    elif what == "change":
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    elif what == "extend":
        content += data.draw(st.binary(max_size=20))
    else:
        header[what] = getattr(chunk.header, what) + data.draw(st.integers(-1, 1))
    damaged = with_data(chunk, bytes(content), **header)
    found = ((message.offset, message.raw) for message in messages(damaged, source=SOURCE))
    assert until_error(found) == until_error(entry_by_entry(damaged))


@pytest.mark.parametrize(
    ("records", "error"), [(1, BadCountError), (2, BadCountError), (4, BadCountError), (5, BadCountError)]
)
def test_no_message_is_delivered_at_an_offset_past_the_chunks(records, error):
    chunk = chunk_of(b"a", b"b", b"c")
    found, raised = until_error(iter(messages(with_data(chunk, bytes(chunk.data), records=records), source=SOURCE)))
    assert [message.offset for message in found] == list(range(FIRST, FIRST + min(records, 3)))
    assert raised is error


def test_a_sub_batch_of_more_messages_than_it_says_does_not_take_the_offsets_behind_it():
    batch = make_sub_batch([b"a", b"b", b"c"])
    found, raised = until_error(iter(messages(chunk_of(replace(batch, records=2), b"d"), source=SOURCE)))
    assert [(message.offset, message.raw) for message in found] == [(FIRST, b"a"), (FIRST + 1, b"b")]
    assert raised is BadCountError


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (SubBatch(5, 1, 1, memoryview(b"x"), 0), BadVersionError),
        (SubBatch(Compression.NONE, 1, 9, memoryview(b"\x00\x00\x00\x05xxxx"), 0), BadLengthError),
        (SubBatch(Compression.NONE, 1, 9, memoryview(b"\x80\x00\x00\x00"), 0), BadVersionError),
        (SubBatch(Compression.NONE, 2, 9, memoryview(b"\x00\x00\x00\x00"), 0), BadCountError),
    ],
)
def test_a_bad_sub_batch_is_told_behind_what_comes_before_it(batch, error):
    found, raised = until_error(iter(messages(chunk_of(b"before", batch, b"behind"), source=SOURCE)))
    assert found[0].raw == b"before"
    assert b"behind" not in [message.raw for message in found]
    assert raised is error


def test_a_message_as_a_dict():
    assert one(MESSAGES["every section"]).to_dict() == {
        "offset": FIRST,
        "timestamp": "2025-11-21T04:40:00.123Z",
        "header": {"durable": True, "priority": 5, "ttl": 60_000, "first_acquirer": False, "delivery_count": 2},
        "delivery_annotations": {"x-delivery": "d"},
        "message_annotations": {"x-exchange": "e", "x-list": [1, "two"]},
        "properties": {"message_id": "id-2"},
        "application_properties": {"key": "value"},
        "footer": {"x-crc": 42},
        "body": "body",
    }


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (data8(b"gr\xc3\xbcn"), {"body": "grün"}),
        (data8(b"\xff"), {"body": {"base64": "/w=="}}),
        (b"", {}),
        (MESSAGES["value null"], {"body_kind": "value", "body": None}),
        (MESSAGES["value map"], {"body_kind": "value", "body": {"a": [1, "two", {"three": 3}], "b": True}}),
        (MESSAGES["two sequences"], {"body_kind": "sequence", "body": [1, 2, "three"]}),
        (b"hello", {"raw": "hello"}),
        (b"\xff", {"raw": {"base64": "/w=="}}),
    ],
)
def test_a_body_as_part_of_a_dict(raw, expected):
    assert one(raw).to_dict() == {"offset": FIRST, "timestamp": "2025-11-21T04:40:00.123Z"} | expected


def test_damaged_amqp_as_a_dict_is_its_bytes_and_what_is_wrong():
    found = one(data8(b"body") + b"\x00").to_dict()
    assert found.keys() == {"offset", "timestamp", "raw", "error"}
    assert found["raw"] == {"base64": "AFN1oARib2R5AA=="}
    assert f"message at offset {FIRST} at byte 9" in found["error"]


@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda tail: b"\x00\x53" + tail))
def test_a_dict_can_be_made_and_written_of_whatever_was_published(raw):
    json.dumps(one(raw).to_dict(), allow_nan=False)


def test_a_message_tells_where_it_is():
    assert repr(one(data8(b"body"))) == f"<message at offset {FIRST}, 9 bytes>"
