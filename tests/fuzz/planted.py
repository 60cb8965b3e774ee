"""A parser with a mistake that no chance finds: five bytes have to be right before it goes wrong."""

from __future__ import annotations

from coldstream.errors import BadLengthError, BadMagicError, CorruptionError
from tests.fuzz.fuzz_target import SOURCE, FuzzTarget


def _parse(data: bytes) -> int:
    if data[:1] != b"c":
        raise BadMagicError(SOURCE, 0, "magic")
    if data[1:2] != b"o":
        raise BadMagicError(SOURCE, 1, "magic")
    if data[2:3] != b"l":
        raise BadMagicError(SOURCE, 2, "magic")
    if len(data) < 5:
        raise BadLengthError(SOURCE, 3, "length")
    return 1 // (data[3] ^ 0x5A if data[4] == 0xA5 else 1)


PLANTED = FuzzTarget("planted", _parse, lambda: [b"", b"seed"], (CorruptionError,), max_bytes=16)
