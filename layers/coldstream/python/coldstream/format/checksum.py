"""CRC-32s of joined bytes, computed from the CRC-32s of the parts alone.

Appending n bytes multiplies the CRC-32 of the bytes before them by x^8n, modulo the polynomial of the CRC. That
polynomial is primitive, so (x^8)^(2^32 - 1) is 1. Appending as many bytes as n lacks to a multiple of 2^32 - 1
therefore undoes the multiplication, which is how `crc32_before` takes the end of a whole off again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from awscrt import checksums

_PERIOD = (1 << 32) - 1


# Not a function around it: that would take as long again, three times a chunk.
combine_crc32: Callable[[int, int, int], int] = checksums.combine_crc32
"""Return the CRC-32 of two parts joined, of theirs and the size of the second in bytes. Cost: about 0.2 us."""


def combine_all_crc32(parts: Iterable[tuple[int | None, int]], *, start_crc32: int = 0) -> int | None:
    """Return the CRC-32 of parts joined, each given as its CRC-32 and its size, or None if one CRC-32 is unknown.

    `start_crc32` is the CRC-32 of the bytes before the first part.
    """
    whole_crc32 = start_crc32
    for part_crc32, size_bytes in parts:
        if part_crc32 is None:
            return None
        whole_crc32 = combine_crc32(whole_crc32, part_crc32, size_bytes)
    return whole_crc32


def crc32_before(whole_crc32: int, after_crc32: int, after_bytes: int) -> int:
    """Return the CRC-32 of the bytes before the last `after_bytes` of the whole."""
    return combine_crc32(whole_crc32 ^ after_crc32, 0, -after_bytes % _PERIOD)


def crc32_after(whole_crc32: int, before_crc32: int, after_bytes: int) -> int:
    """Return the CRC-32 of the last `after_bytes` of the whole."""
    shifted_crc32 = combine_crc32(before_crc32, 0, after_bytes)
    return shifted_crc32 ^ whole_crc32
