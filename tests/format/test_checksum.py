from __future__ import annotations

from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from coldstream.format.checksum import combine_crc32, crc32_after, crc32_before


@given(before=st.binary(), after=st.binary())
def test_each_part_follows_from_the_whole_and_the_other(before: bytes, after: bytes) -> None:
    whole = crc32(before + after)
    assert crc32_before(whole, crc32(after), len(after)) == crc32(before)
    assert crc32_after(whole, crc32(before), len(after)) == crc32(after)


@given(before=st.integers(0, (1 << 32) - 1), after=st.integers(0, (1 << 32) - 1), size=st.integers(1, 1 << 33))
def test_sizes_of_many_gigabytes_are_no_different(before: int, after: int, size: int) -> None:
    whole = combine_crc32(before, after, size)
    assert crc32_before(whole, after, size) == before
    assert crc32_after(whole, before, size) == after
