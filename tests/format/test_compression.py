"""Sub-batches unpacked within bounds."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import BadLengthError, BadVersionError, CorruptionError
from coldstream.format.compression import MAX_UNCOMPRESSED_BYTES, Compression, compress, decompress
from tests.support.memory import peak_bytes

PACKED = [kind for kind in Compression if kind is not Compression.NONE]
TEXT = "Größe ".encode() * 1000


def unpack(compression: int, data: bytes, uncompressed_bytes: int) -> bytes:
    return bytes(decompress(compression, memoryview(data), uncompressed_bytes, source="ström", position=42))


@given(st.sampled_from(Compression), st.binary(max_size=1000))
def test_unpacking_undoes_packing(kind, data):
    assert unpack(kind, compress(kind, data), len(data)) == data


@pytest.mark.parametrize(
    ("kind", "magic"),
    [
        (Compression.GZIP, "1f8b"),
        (Compression.SNAPPY, "ff060000734e61507059"),
        (Compression.LZ4, "04224d18"),
        (Compression.ZSTD, "28b52ffd"),
    ],
)
def test_packing_is_of_the_framed_kind_that_clients_use(kind, magic):
    assert compress(kind, TEXT).startswith(bytes.fromhex(magic))


def test_gzip_may_have_several_members():
    assert unpack(Compression.GZIP, gzip.compress(b"one") + gzip.compress(b"two"), 6) == b"onetwo"


@pytest.mark.parametrize("data", [zlib.compress(b"one"), zlib.compress(b"one")[2:-4]], ids=["zlib", "deflate"])
def test_gzip_without_its_header_is_no_gzip(data):
    with pytest.raises(CorruptionError, match=r"cannot be unpacked \(gzip: "):
        unpack(Compression.GZIP, data, 3)


def test_snappy_chunks_may_be_stored_as_they_are():
    stored = bytes.fromhex("ff060000734e6150705901070000") + _masked_crc32c(b"one") + b"one"
    assert unpack(Compression.SNAPPY, stored, 3) == b"one"


def _masked_crc32c(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


def test_what_is_not_packed_is_returned_without_a_copy_whatever_length_is_declared():
    data = memoryview(TEXT)
    assert decompress(0, data, 7, source="a", position=0) is data


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("declared", [0, 1, len(TEXT) - 1, len(TEXT) + 1])
def test_another_length_than_declared_is_refused(kind, declared):
    with pytest.raises(BadLengthError) as caught:
        unpack(kind, compress(kind, TEXT), declared)
    assert (caught.value.source, caught.value.position, caught.value.expected) == ("ström", 42, declared)


@pytest.mark.parametrize("kind", PACKED)
def test_what_cannot_be_unpacked_is_corrupt(kind):
    packed = compress(kind, TEXT)
    for damaged in (b"not packed at all", packed[:-1], packed + b"x", packed[: len(packed) // 2], packed[:1]):
        with pytest.raises(CorruptionError) as caught:
            unpack(kind, damaged, len(TEXT))
        assert caught.value.position == 42
        assert isinstance(caught.value.__cause__, cramjam.DecompressionError)


@pytest.mark.parametrize("kind", PACKED)
def test_nothing_is_not_what_was_declared(kind):
    with pytest.raises(CorruptionError):
        unpack(kind, b"", 10)


@pytest.mark.parametrize("compression", [5, 6, 7])
def test_an_unknown_compression_is_refused(compression):
    with pytest.raises(BadVersionError) as caught:
        unpack(compression, b"", 0)
    assert caught.value.found == compression


def refusing(kind: Compression, data: bytes, declared: int) -> Callable[[], None]:
    def refuse() -> None:
        with pytest.raises(BadLengthError, match="at most" if declared > MAX_UNCOMPRESSED_BYTES else None):
            unpack(kind, data, declared)

    return refuse


@pytest.mark.parametrize("kind", PACKED)
def test_a_bomb_takes_no_more_memory_than_it_declares(kind):
    assert peak_bytes(refusing, kind, compress(kind, bytes(64 << 20)), 1000) < 100_000


@pytest.mark.parametrize("kind", PACKED)
def test_a_declared_length_up_to_the_bound_is_unpacked(kind, monkeypatch):
    monkeypatch.setattr("coldstream.format.compression.MAX_UNCOMPRESSED_BYTES", len(TEXT))
    assert unpack(kind, compress(kind, TEXT), len(TEXT)) == TEXT
    monkeypatch.setattr("coldstream.format.compression.MAX_UNCOMPRESSED_BYTES", len(TEXT) - 1)
    with pytest.raises(BadLengthError, match="at most"):
        unpack(kind, compress(kind, TEXT), len(TEXT))


@pytest.mark.parametrize("kind", PACKED)
def test_a_declared_length_beyond_the_bound_is_refused_before_memory_is_taken(kind):
    assert peak_bytes(refusing, kind, compress(kind, TEXT), MAX_UNCOMPRESSED_BYTES + 1) < 100_000
