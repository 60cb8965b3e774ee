"""Compression of sub-batches: done by publishers, never by the broker.

    0 none · 1 gzip (RFC 1952) · 2 snappy (framing format) · 3 lz4 (frame format) · 4 zstd (RFC 8878) · 5 to 7 unknown

The broker stores a publisher's bytes unread, so the declared uncompressed length is only a claim. The data must unpack
to exactly that length. The claim bounds the memory, and `MAX_UNCOMPRESSED_BYTES` bounds the claim.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from functools import cache
from types import ModuleType

from coldstream.errors import BadLengthError, BadVersionError, CorruptionError
from coldstream.units import KIB, MIB

MAX_UNCOMPRESSED_BYTES = 256 * MIB
"""Bytes of one sub-batch at most. Clients pack at most 65,535 messages, usually some tens of KiB."""


class Compression(IntEnum):
    """How the messages of a sub-batch are packed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


@cache
def _cramjam() -> ModuleType:
    """Import the codecs only when they are needed: functions never unpack, and their layer has no codecs."""
    import cramjam  # noqa: PLC0415

    return cramjam


@cache
def _codec(compression: int) -> ModuleType | None:
    """Return the module of a codec, None for an unknown one. Sub-batches are small: to find it must cost nothing."""
    names = {Compression.GZIP: "gzip", Compression.SNAPPY: "snappy", Compression.LZ4: "lz4", Compression.ZSTD: "zstd"}
    name = names.get(compression)  # type: ignore[call-overload]  # any number may ask
    return None if name is None else getattr(_cramjam(), name)


def _name(compression: int) -> str:
    return Compression(compression).name.lower()


_GZIP_MEMBER = 16 + zlib.MAX_WBITS
"""What zlib calls a gzip header and its trailer, checked."""

_SMALL_BYTES = 8 * KIB
"""Packed and unpacked: zlib keeps a copy of what it did not come to."""

# The message of Rust's Write::write_all when the output is full: the data holds more than was declared.
_OUTPUT_IS_FULL = "failed to write whole buffer"


def _one_member(data: memoryview, uncompressed_bytes: int) -> bytes | None:
    """Unpack what is one whole gzip member of this size; None for anything else, which the codec then decides.

    Takes half as long as the codec for the 2 KB of ten messages, and a quarter longer for 64 KB.
    """
    member = zlib.decompressobj(_GZIP_MEMBER)
    try:
        # One byte more than declared, and a limit of 0 would be none.
        unpacked = member.decompress(data, uncompressed_bytes + 1)
    except zlib.error:
        return None
    is_whole = member.eof and not member.unused_data and len(unpacked) == uncompressed_bytes
    return unpacked if is_whole else None


def compress(compression: Compression, data: bytes) -> bytes:
    """Pack `data` as the RabbitMQ clients do."""
    if compression is Compression.NONE:
        return data
    codec = _codec(compression)
    assert codec is not None
    return bytes(codec.compress(data))


def decompress(
    compression: int, data: memoryview, uncompressed_bytes: int, *, source: str, position: int
) -> memoryview:
    """Unpack the data of the sub-batch at byte `position` of `source`, declared to hold `uncompressed_bytes`.

    Allocates at most `uncompressed_bytes`, whatever the data, and the decoder's window, which zstd limits to 128 MiB.
    Uncompressed data is returned as it is, whatever its declared length: other readers ignore that length, too, and
    ours must get what they get.

    Raises BadVersionError for an unknown compression, BadLengthError if the declared length is out of bounds or wrong,
    CorruptionError if the data cannot be unpacked.
    """
    if compression == Compression.NONE:
        return data
    codec = _codec(compression)
    if codec is None:
        raise BadVersionError(source, position, "compression of a sub-batch", expected="0 to 4", found=compression)
    if uncompressed_bytes > MAX_UNCOMPRESSED_BYTES:
        raise BadLengthError(
            source,
            position,
            "uncompressed length of a sub-batch",
            expected=f"at most {MAX_UNCOMPRESSED_BYTES}",
            found=uncompressed_bytes,
        )
    if compression == Compression.GZIP and max(uncompressed_bytes, len(data)) <= _SMALL_BYTES:
        unpacked = _one_member(data, uncompressed_bytes)
        if unpacked is not None:
            return memoryview(unpacked)
    out = bytearray(uncompressed_bytes)
    try:
        found: int = codec.decompress_into(data, out)
    except _cramjam().DecompressionError as err:
        if _OUTPUT_IS_FULL in str(err):
            raise BadLengthError(
                source,
                position,
                f"uncompressed length of a sub-batch ({_name(compression)})",
                expected=uncompressed_bytes,
                found="more",
            ) from err
        raise CorruptionError(source, position, f"sub-batch cannot be unpacked ({_name(compression)}: {err})") from err
    if found != uncompressed_bytes:
        raise BadLengthError(
            source,
            position,
            f"uncompressed length of a sub-batch ({_name(compression)})",
            expected=uncompressed_bytes,
            found=found,
        )
    return memoryview(out)
