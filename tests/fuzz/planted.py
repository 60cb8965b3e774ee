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
    if data[3:4] != b"d":
        return len(data)
    return 1 // (0 if data[4:5] == b"!" else 1)


PLANTED = FuzzTarget("planted", _parse, lambda: [b"", b"seed"], (CorruptionError,), max_bytes=16)
