"""The format of a write-ahead log's objects: what is written is read, and what is damaged is told, with its place."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest

from coldstream.errors import (
    BadCrcError,
    BadLengthError,
    BadMagicError,
    BadVersionError,
    CorruptionError,
    TruncatedError,
)
from coldstream.manifest.stream import incarnation
from coldstream.store.wal_object import (
    FIXED_BYTES,
    MAX_ENTRIES,
    WalChunk,
    WalObjectKind,
    entry_bytes,
    header_bytes_of,
    kind_and_nonce,
    parse_header,
    seal_object,
    wal_object,
)
from coldstream.units import Epoch, Offset

NONCE = bytes(range(16))
ONE, OTHER = incarnation("__orders_1763700000000000000"), incarnation("a" * 255)
CHUNKS = (
    WalChunk(ONE, Epoch(1), Offset(0), Offset(10), b"first"),
    WalChunk(OTHER, Epoch(2**64 - 1), Offset(2**63), Offset(2**63 + 1), b"x"),
    WalChunk(ONE, Epoch(1), Offset(10), Offset(11), b"y" * 1000),
)
OBJECT = wal_object(NONCE, CHUNKS)
HEADER_BYTES = FIXED_BYTES + sum(entry_bytes(one.incarnation) for one in CHUNKS) + 4

GOLDEN = bytes.fromhex(
    "4353574c 0001 0000 000102030405060708090a0b0c0d0e0f 00000001 00000046"
    "01 61 0000000000000003 0000000000000005 0000000000000007 00000046 00000002"
    "00000000 6869"
)
"""Magic, version, kind, nonce, entries, header size; an entry; a CRC-32 that `_resealed` sets; the chunk `hi`."""


def _resealed(header: bytes, size: int) -> bytes:
    """Give a header of `size` bytes the CRC-32 of what it says."""
    return header[: size - 4] + struct.pack(">I", crc32(header[: size - 4])) + header[size:]


def _changed(at: int, new: bytes) -> bytes:
    """Return OBJECT with other bytes at a position, and a CRC-32 that is right."""
    return _resealed(OBJECT[:at] + new + OBJECT[at + len(new) :], HEADER_BYTES)


def test_an_object_is_the_bytes_that_its_table_says() -> None:
    chunk = WalChunk(incarnation("a"), Epoch(3), Offset(5), Offset(7), b"hi")
    assert wal_object(NONCE, [chunk]) == _resealed(GOLDEN, 0x46)


def test_what_is_written_is_read() -> None:
    header = parse_header(OBJECT, source="object")
    assert (header.kind, header.nonce) == (WalObjectKind.BATCHES, NONCE)
    assert (header.header_bytes, header.object_bytes) == (HEADER_BYTES, len(OBJECT))
    found = [
        WalChunk(
            one.incarnation,
            one.epoch,
            one.first_offset,
            one.next_offset,
            OBJECT[one.byte_range.start : one.byte_range.end],
        )
        for one in header.entries
    ]
    assert tuple(found) == CHUNKS


@pytest.mark.parametrize("body", [seal_object(NONCE), wal_object(NONCE, ())], ids=["seal", "no chunks"])
def test_an_object_without_chunks_is_its_header(body: bytes) -> None:
    header = parse_header(body, source="object")
    assert header.entries == ()
    assert header.object_bytes == len(body) == FIXED_BYTES + 4
    assert kind_and_nonce(body[:FIXED_BYTES], source="object") == (header.kind, NONCE)


def test_a_header_is_read_at_each_length_that_has_it_all_and_refused_at_each_other() -> None:
    for length in range(HEADER_BYTES):
        with pytest.raises(TruncatedError) as caught:
            parse_header(OBJECT[:length], source="object")
        assert (caught.value.source, caught.value.position) == ("object", 0)
    for length in range(HEADER_BYTES, len(OBJECT) + 1):
        assert len(parse_header(OBJECT[:length], source="object").entries) == len(CHUNKS)


def test_the_first_bytes_tell_how_long_the_header_is_and_fewer_do_not() -> None:
    assert header_bytes_of(OBJECT[:FIXED_BYTES], source="object") == HEADER_BYTES
    for length in range(FIXED_BYTES):
        with pytest.raises(TruncatedError):
            header_bytes_of(OBJECT[:length], source="object")


def test_no_changed_byte_of_a_header_is_believed() -> None:
    for at in range(HEADER_BYTES):
        for flip in (0x01, 0x80):
            damaged = OBJECT[:at] + bytes((OBJECT[at] ^ flip,)) + OBJECT[at + 1 :]
            with pytest.raises(CorruptionError):
                parse_header(damaged, source="object")


LAST_ENTRY = HEADER_BYTES - 4 - entry_bytes(ONE)
FIRST_NAME, FIRST_NUMBERS = FIXED_BYTES + 1, FIXED_BYTES + 1 + len(ONE)


@pytest.mark.parametrize(
    ("at", "new", "error", "position"),
    [
        (0, b"CSWX", BadMagicError, 0),
        (4, b"\0\2", BadVersionError, 4),
        (6, b"\0\2", BadVersionError, 6),
        (6, b"\0\1", BadLengthError, HEADER_BYTES - 4),  # a seal with entries
        (24, struct.pack(">I", MAX_ENTRIES + 1), BadLengthError, 24),
        (24, struct.pack(">I", 2), BadLengthError, LAST_ENTRY),
        (24, struct.pack(">I", 4), BadLengthError, HEADER_BYTES - 4),
        (28, struct.pack(">I", FIXED_BYTES + 3), BadLengthError, 28),
        (28, struct.pack(">I", 2**32 - 1), BadLengthError, 28),
        (LAST_ENTRY, b"\xff", BadLengthError, LAST_ENTRY),  # a name that runs on
        (FIRST_NAME, b"/", CorruptionError, FIXED_BYTES),
        (FIRST_NAME, b"\xff", CorruptionError, FIXED_BYTES),
        (FIRST_NUMBERS + 8, struct.pack(">Q", 10), BadLengthError, FIXED_BYTES),  # no offsets
        (FIRST_NUMBERS + 24, struct.pack(">I", HEADER_BYTES + 1), BadLengthError, FIXED_BYTES),  # a gap
        (FIRST_NUMBERS + 28, struct.pack(">I", 0), BadLengthError, FIXED_BYTES),  # no bytes
    ],
)
def test_what_contradicts_the_format_is_told_with_its_place(
    at: int, new: bytes, error: type[CorruptionError], position: int
) -> None:
    with pytest.raises(error) as caught:
        parse_header(_changed(at, new), source="wal/a/1")
    assert type(caught.value) is error
    assert caught.value.source == "wal/a/1"
    assert caught.value.position == position


def test_a_crc_that_is_not_right_is_told() -> None:
    with pytest.raises(BadCrcError) as caught:
        parse_header(OBJECT[: HEADER_BYTES - 1] + bytes((OBJECT[HEADER_BYTES - 1] ^ 1,)), source="object")
    assert caught.value.position == HEADER_BYTES - 4


@pytest.mark.parametrize(
    "one",
    [
        WalChunk(ONE, Epoch(2**64), Offset(0), Offset(1), b"x"),
        WalChunk(incarnation("a"), Epoch(1), Offset(0), Offset(2**64), b"x"),
    ],
)
def test_what_no_object_can_say_is_refused(one: WalChunk) -> None:
    with pytest.raises(OverflowError):
        wal_object(NONCE, [one])


def test_a_nonce_has_its_length() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        seal_object(b"short")
