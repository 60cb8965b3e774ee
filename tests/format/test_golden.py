"""What a real broker wrote, read by this package: every chunk, every message, everything inside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from zlib import crc32

import pytest

from coldstream.format.amqp.message import Message, messages
from coldstream.format.amqp.sections import Header, Properties
from coldstream.format.amqp.values import Described, Symbol, Timestamp
from coldstream.format.chunk import Chunk, ChunkType, iter_chunks
from coldstream.format.entry import SubBatch, iter_entries
from coldstream.format.index import IndexRecord, iter_index
from coldstream.format.scanner import ChunkBytes, ChunkEnd, SegmentScanner
from coldstream.format.segment import SEGMENT_HEADER_BYTES, first_offset_of
from coldstream.format.tracking import TrackingType, iter_tracking
from tests.support.amqp_samples import LONG_TEXT, MESSAGES, SOME_UUID
from tests.support.golden import GoldenLog, digest, golden_logs
from tests.support.osiris import OsirisChunk

LOGS = {log.stream: log for log in golden_logs()}
every_log = pytest.mark.parametrize("log", LOGS.values(), ids=list(LOGS))


def chunks_of(log: GoldenLog) -> Iterator[Chunk]:
    for segment in log.segments:
        content = memoryview(segment.read_bytes())[SEGMENT_HEADER_BYTES:]
        first = first_offset_of(segment.name)
        yield from iter_chunks(content, source=segment.name, position=SEGMENT_HEADER_BYTES, expected=first)


def messages_of(log: GoldenLog) -> list[Message]:
    return [message for chunk in chunks_of(log) for message in messages(chunk, source=log.stream)]


@every_log
def test_every_chunk_reads_as_osiris_reads_it(log):
    assert [OsirisChunk.of(chunk) for chunk in chunks_of(log)] == log.chunks


@every_log
def test_every_message_is_the_one_published_at_its_offset(log):
    offsets = [chunk.chunk_id + at for chunk in log.chunks if chunk.type == 0 for at in range(chunk.records)]
    found = [(message.offset, digest(message.raw)) for message in messages_of(log)]
    assert found == list(zip(offsets, log.messages, strict=True))


@every_log
@pytest.mark.parametrize("block_bytes", [7, 4096, 1 << 20])
def test_the_scanner_passes_on_every_byte_and_its_checksum(log, block_bytes):
    for segment in log.segments:
        content = segment.read_bytes()
        scanner = SegmentScanner(segment.name, first_offset=first_offset_of(segment.name))
        passed = bytearray()
        for at in range(0, len(content), block_bytes):
            for event in scanner.feed(content[at : at + block_bytes]):
                if isinstance(event, ChunkBytes):
                    passed += event.view
                elif isinstance(event, ChunkEnd):
                    end = event.position + event.header.total_bytes
                    assert event.crc32 == crc32(content[event.position : end])
        scanner.close()
        assert passed == content[SEGMENT_HEADER_BYTES:]


@every_log
def test_the_index_has_a_record_for_every_chunk(log):
    indexed = []
    for segment in log.segments:
        with segment.with_suffix(".index").open("rb") as file:
            indexed += iter_index(file, source=segment.name)
    assert indexed == [IndexRecord.of(chunk.header, chunk.position) for chunk in chunks_of(log)]


def test_recorded_sub_batches_are_of_every_compression():
    entries = [entry for chunk in chunks_of(LOGS["sub-batches"]) for entry in iter_entries(chunk, source="sub-batches")]
    compressions = Counter(entry.compression for entry in entries if isinstance(entry, SubBatch))
    assert compressions == dict.fromkeys(range(5), 5)
    assert any(not isinstance(entry, SubBatch) for entry in entries)


def test_a_snapshot_opens_every_segment_of_a_tracked_stream_but_the_first():
    chunks = list(chunks_of(LOGS["tracking"]))
    openers = [chunk.header.type for chunk in chunks if chunk.position == SEGMENT_HEADER_BYTES]
    assert openers == [ChunkType.USER, *[ChunkType.TRACKING_SNAPSHOT] * 3]
    assert Counter(chunk.header.type for chunk in chunks)[ChunkType.TRACKING_SNAPSHOT] == 3


def test_tracking_ends_at_what_publishers_and_consumers_said_last():
    last = {
        (record.type, record.id.decode()): record.value
        for chunk in chunks_of(LOGS["tracking"])
        for record in iter_tracking(chunk, source="tracking")
    }
    assert last == {
        (TrackingType.SEQUENCE, "alpha"): 480,
        (TrackingType.SEQUENCE, "beta"): 480,
        (TrackingType.SEQUENCE, "größe"): 480,
        (TrackingType.OFFSET, "reports"): 1360,
        (TrackingType.OFFSET, "注文"): 1440,
    }


def test_a_snapshot_repeats_the_tracking_before_it():
    so_far: dict[tuple[TrackingType, bytes], int] = {}
    for before, chunk in pairwise(chunks_of(LOGS["tracking"])):
        so_far |= {(record.type, record.id): record.value for record in iter_tracking(before, source="tracking")}
        if chunk.header.type is ChunkType.TRACKING_SNAPSHOT:
            snapshot = {(record.type, record.id): record.value for record in iter_tracking(chunk, source="tracking")}
            # The round that fills a segment may bring tracking of its own: it is in the snapshot already.
            assert snapshot.keys() == so_far.keys()
            assert all(snapshot[key] >= value for key, value in so_far.items())


BODIES = {
    "data": ("data", b"hello"),
    "empty data": ("data", b""),
    "long data": ("data", bytes(range(256)) * 8),
    "two data sections": ("data", b"onetwo"),
    "value string": ("value", "grün"),
    "value null": ("value", None),
    "value map": ("value", {"a": [1, "two", {"three": 3}], "b": True}),
    "value array": ("value", [(1, 2, -300)]),
    "value described": ("value", Described(Symbol("example:point"), [1, 2])),
    "sequence": ("sequence", [1, "two", None]),
    "two sequences": ("sequence", [1, 2, "three"]),
    "properties": ("data", b"body"),
    "message id ulong": ("data", b"body"),
    "message id binary": ("data", b"body"),
    "application properties": ("data", b"body"),
    "every section": ("data", b"body"),
}


@pytest.fixture(scope="module")
def amqp() -> dict[str, Message]:
    found = messages_of(LOGS["amqp-1-0"])
    plain = dict(zip(MESSAGES, found[: len(MESSAGES)], strict=True))
    assert [message.raw for message in found] == list(MESSAGES.values()) * 2
    return plain


@pytest.mark.parametrize("name", MESSAGES)
def test_an_amqp_body_comes_out_as_it_went_in(amqp, name):
    assert (amqp[name].body_kind, amqp[name].body) == BODIES[name]


def test_amqp_properties_come_out_as_they_went_in(amqp):
    assert amqp["properties"].properties == Properties(
        message_id="id-1",
        user_id=b"guest",
        to="queue",
        subject="subject",
        reply_to="back",
        correlation_id=SOME_UUID,
        content_type=Symbol("text/plain"),
        content_encoding=Symbol("gzip"),
        absolute_expiry_time=Timestamp(1_763_700_000_123),
        creation_time=Timestamp(1_763_700_000_000),
        group_id="group",
        group_sequence=7,
        reply_to_group_id="other",
    )


def test_amqp_values_of_every_simple_type_come_out_as_they_went_in(amqp):
    found = amqp["application properties"].application_properties
    assert found == {
        "null": None,
        "true": True,
        "false": False,
        "ubyte": 255,
        "ushort": 65_535,
        "uint-0": 0,
        "uint-small": 255,
        "uint": 4_294_967_295,
        "ulong-0": 0,
        "ulong-small": 255,
        "ulong": 18_446_744_073_709_551_615,
        "byte": -128,
        "short": -32_768,
        "int-small": -128,
        "int": -2_147_483_648,
        "long-small": -128,
        "long": -9_223_372_036_854_775_808,
        "float": 0.5,
        "double": 0.1,
        "timestamp": Timestamp(1_763_700_000_123),
        "uuid": SOME_UUID,
        "binary": b"\x00\xff",
        "binary-long": bytes(range(256)) * 2,
        "string": "grün",
        "string-long": LONG_TEXT,
        "symbol": Symbol("symbol"),
    }
    assert isinstance(found["true"], bool)
    assert isinstance(found["timestamp"], Timestamp)
    assert isinstance(found["symbol"], Symbol)


def test_every_amqp_section_comes_out_as_it_went_in(amqp):
    message = amqp["every section"]
    assert message.header == Header(durable=True, priority=5, ttl=60_000, first_acquirer=False, delivery_count=2)
    assert message.delivery_annotations == {"x-delivery": "d"}
    assert message.message_annotations == {"x-exchange": "e", "x-list": [1, "two"]}
    assert message.properties == Properties(message_id="id-2")
    assert message.application_properties == {"key": "value"}
    assert message.body == b"body"
    assert message.footer == {"x-crc": 42}


def test_amqp_0_9_1_messages_come_out_as_the_broker_translates_them():
    found = messages_of(LOGS["amqp-0-9-1"])
    assert [message.body for message in found] == [b"", b"", b"plain", b"plain", bytes(300), bytes(300)]
    bare, full = found[2:4]
    assert bare.message_annotations == {"x-routing-key": "amqp-0-9-1", "x-exchange": ""}
    assert (bare.header, bare.properties, bare.application_properties) == (None, None, None)
    assert full.properties == Properties(
        message_id="id-1",
        user_id=b"guest",
        reply_to="back",
        correlation_id="correlation",
        content_type=Symbol("text/plain"),
        content_encoding=Symbol("identity"),
        creation_time=Timestamp(1_763_700_000_000),
    )
    assert full.message_annotations == {
        "x-routing-key": "amqp-0-9-1",
        "x-exchange": "",
        "x-basic-priority": 5,
        "x-basic-delivery-mode": 2,
        "x-basic-expiration": "60000",
    }
    assert full.application_properties == {
        "x-basic-type": "type",
        "x-basic-app-id": "app",
        "text": "größe",
        "number": 42,
        "big": 1 << 40,
        "flag": True,
        "nothing": None,
        "bytes": b"\x00\xff",
        "time": Timestamp(1_763_683_200_000),
    }
