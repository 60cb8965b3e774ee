"""What publishers write, and no broker has looked at: sub-batches, AMQP 1.0, and properties of AMQP 0.9.1."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator

from coldstream.errors import CorruptionError
from coldstream.format.amqp.json import to_json
from coldstream.format.amqp.sections import body_section, locate, read_body, read_section
from coldstream.format.amqp.typed import typed_elements, typed_value
from coldstream.format.amqp.values import MAX_EMPTY_ELEMENTS, decode, decode_prefix, skip
from coldstream.format.compression import Compression, compress
from coldstream.format.entry import SubBatch, simple_entry
from coldstream.queues.fields import BasicFields
from tests.fuzz.fuzz_target import CORRUPT, SOURCE, FuzzTarget, same
from tests.fuzz.golden_bytes import golden_chunks
from tests.support.amqp_samples import EVERY_SIMPLE_VALUE, MESSAGES, encode

_SUB_BATCH = struct.Struct(">BHI")  # compression, records, uncompressed bytes
_MAX_CLAIM = (1 << 20) - 1  # a claim is memory, by design up to 256 MiB: more than a fuzzer has for each input
_SECTIONS = range(0x70, 0x79)


def _sub_batch(data: bytes) -> None:
    if len(data) < _SUB_BATCH.size:
        return
    compression, records, claim = _SUB_BATCH.unpack_from(data)
    batch = SubBatch(compression & 7, records, claim & _MAX_CLAIM, memoryview(data)[_SUB_BATCH.size :], 0)
    found = list(batch.messages(source=SOURCE))
    same(len(found), records)
    # Packed anew, the same messages come out.
    plain = b"".join(simple_entry(one) for one in found)
    again = SubBatch(Compression.NONE, records, len(plain), memoryview(plain), 0)
    same([bytes(one) for one in again.messages(source=SOURCE)], [bytes(one) for one in found])


def _value(data: bytes) -> None:
    value, end = decode_prefix(data, 0, source=SOURCE)
    # Where a value ends, its size alone says, too; only who decodes it finds what is wrong within.
    same(skip(data, 0), end)
    same(repr(typed_value(data, 0, end, source=SOURCE).value), repr(value))
    to_json(value)
    deque(typed_elements(data, 0, end, source=SOURCE), maxlen=0)


def _message(data: bytes) -> None:
    sections = locate(data, source=SOURCE)
    problem: CorruptionError | None = None
    for code in sections:
        if code not in (0x75, 0x76, 0x77):
            try:
                to_json(read_section(data, sections, code, source=SOURCE))
            except CorruptionError as err:
                problem = err
    if body_section(sections, source=SOURCE) is not None:
        to_json(read_body(data, sections, source=SOURCE))
    if problem is not None:
        raise problem


def _basic(data: bytes) -> None:
    BasicFields.from_bytes(data, source=SOURCE)


def _sub_batch_seeds() -> Iterator[bytes]:
    packed = b"".join(simple_entry(one) for one in (b"", b"first", bytes(100)))
    for compression in Compression:
        yield _SUB_BATCH.pack(compression, 3, len(packed)) + compress(compression, packed)
    yield _SUB_BATCH.pack(7, 3, len(packed)) + packed


def _value_seeds() -> Iterator[bytes]:
    for value in EVERY_SIMPLE_VALUE.values():
        message = encode(application_properties={"a": value})
        yield message[3:]
    for message in MESSAGES.values():
        sections = locate(message, source=SOURCE)
        for start, end in (span[:2] for span in sections.values()):
            decode(message, start, end, source=SOURCE)
            yield message[start:end][:600]


def _message_seeds() -> Iterator[bytes]:
    yield from MESSAGES.values()
    yield from (chunk[-60:] for chunk in golden_chunks())


def _basic_seeds() -> Iterator[bytes]:
    yield bytes(2)
    text = b"\x05hello"
    number = b"\x00\x00\x00\x01"
    headers = (
        b"\x01at\x01"
        b"\x01bb\xff"
        b"\x01cI" + number + b"\x01dl" + bytes(8) + b"\x01eS" + number + b"x"
        b"\x01fD\x02" + number + b"\x01gV"
        b"\x01hA\x00\x00\x00\x02t\x00"
        b"\x01iF\x00\x00\x00\x04\x01at\x01"
        b"\x01jd" + bytes(8) + b"\x01kT" + bytes(8)
    )
    table = len(headers).to_bytes(4) + headers
    yield b"\xff\xfc" + text + text + table + b"\x02\x09" + text * 4 + bytes(8) + text * 4
    yield b"\x20\x00" + table


TARGETS = (
    FuzzTarget("sub-batches", _sub_batch, _sub_batch_seeds, CORRUPT, memory_bytes=4 << 20, lines_a_byte=200),
    FuzzTarget("amqp-value", _value, _value_seeds, CORRUPT, memory_factor=400, lines=20 * MAX_EMPTY_ELEMENTS),
    FuzzTarget("amqp-message", _message, _message_seeds, CORRUPT, memory_factor=400),
    FuzzTarget("amqp-0-9-1-fields", _basic, _basic_seeds, CORRUPT),
)
