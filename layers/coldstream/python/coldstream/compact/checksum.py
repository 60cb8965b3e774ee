"""CRC-32s taken apart: that of a part from those of the whole and the rest, without a look at the part.

To append n bytes multiplies the CRC-32 of what was there by x^8n modulo the CRC's polynomial. That is primitive, so
(x^8)^(2^32 - 1) is 1: to append as many bytes as n lacks to a multiple of 2^32 - 1 takes the n bytes back.
"""

from __future__ import annotations

from awscrt.checksums import combine_crc32

_PERIOD = (1 << 32) - 1


def crc32_before(whole_crc32: int, after_crc32: int, after_bytes: int) -> int:
    """Return the CRC-32 of what comes before the last `after_bytes` of the whole."""
    before: int = combine_crc32(whole_crc32 ^ after_crc32, 0, -after_bytes % _PERIOD)
    return before


def crc32_after(whole_crc32: int, before_crc32: int, after_bytes: int) -> int:
    """Return the CRC-32 of the last `after_bytes` of the whole."""
    moved_up: int = combine_crc32(before_crc32, 0, after_bytes)
    return moved_up ^ whole_crc32
