"""The Zstandard Seekable Format, with the command `zstd` as a second opinion."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from itertools import accumulate

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import (
    BadLengthError,
    BadMagicError,
    BadVersionError,
    CorruptionError,
    TruncatedError,
)
from coldstream.format.seekable import (
    SEEK_TABLE_FOOTER_BYTES,
    FrameSize,
    SeekTable,
    compress_frame,
    decompress_frames,
    frame_positions,
    seek_table_bytes,
)

TABLE = SeekTable((FrameSize(100, 8), FrameSize(70_000, 1 << 20), FrameSize(0xFFFF_FFFF, 0xFFFF_FFFF)))
OBJECT_BYTES = 100 + 70_000 + 0xFFFF_FFFF + len(TABLE.to_bytes())


def content(size: int, seed: int = 1) -> bytes:
    """Bytes that can be compressed, though not to nothing."""
    rng = random.Random(seed)
    words = [rng.randbytes(rng.randrange(1, 9)) for _ in range(50)]
    return b"".join(rng.choices(words, k=size))[:size]


def unpack(data: bytes, size: int) -> bytes:
    return bytes(decompress_frames(data, size, source="x", position=1000))


@given(st.binary(min_size=1, max_size=5000), st.integers(1, 19))
def test_a_frame_decompresses_to_what_it_was_made_of(data: bytes, level: int) -> None:
    assert unpack(compress_frame(data, level), len(data)) == data


@pytest.mark.parametrize("size", [1, 255, 256, 65_535, 65_536, 65_791, 65_792, 131_072, 131_073, 1 << 20, 5_000_000])
def test_contents_of_every_width_of_size_and_number_of_blocks(size: int) -> None:
    for data in (content(size), bytes(size), random.Random(size).randbytes(size)):
        assert unpack(compress_frame(data), size) == data


def test_several_frames_decompress_to_one_content() -> None:
    parts = [content(size, seed=size) for size in (8, 100_000, 300_000)]
    packed = b"".join(map(compress_frame, parts))
    assert unpack(packed, 400_008) == b"".join(parts)


def test_the_content_is_in_bytes_which_the_native_module_reads_without_a_copy() -> None:
    parts = [content(size, seed=size) for size in (100_000, 8)]
    view = decompress_frames(b"".join(map(compress_frame, parts)), 100_008, source="x", position=0)
    assert type(view.obj) is bytes
    assert view.obj == b"".join(parts)


def test_the_command_zstd_gives_the_content_back_and_finds_a_checksum(zstd: Callable[..., bytes]) -> None:
    parts = [content(size, seed=size) for size in (8, 100_000, 300_000)]
    frames = [compress_frame(part) for part in parts]
    sizes = tuple(FrameSize(len(frame), len(part)) for frame, part in zip(frames, parts, strict=True))
    packed = b"".join((*frames, SeekTable(sizes).to_bytes()))
    assert zstd("-d", data=packed) == b"".join(parts)
    damaged = bytearray(frames[1])
    damaged[-1] ^= 1
    with pytest.raises(subprocess.CalledProcessError) as caught:
        zstd("-d", data=bytes(damaged))
    assert b"checksum" in caught.value.stderr


def test_a_frame_of_another_compressor_is_taken(zstd: Callable[..., bytes]) -> None:
    data = content(700_000)
    packed = zstd("-9", "--stream-size=700000", data=data)
    assert unpack(packed, len(data)) == data


def test_one_flipped_bit_anywhere_is_found_and_named_or_does_not_matter() -> None:
    data = content(600)
    packed = compress_frame(data[:300]) + compress_frame(data[300:])
    for bit in range(len(packed) * 8):
        damaged = bytearray(packed)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            found = unpack(bytes(damaged), 600)
        except CorruptionError as err:
            problem = err
        else:
            assert found == data
            continue
        assert problem.source == "x"
        assert 1000 <= problem.position < 1000 + len(packed)


def test_frames_come_out_in_the_memory_that_the_caller_has() -> None:
    parts = [content(size, seed=size) for size in (8, 100_000, 300)]
    packed = b"".join(map(compress_frame, parts))
    memory = bytearray(b"\xff" * 100_400)

    def fill(size_bytes: int, read_into: Callable[[memoryview], None]) -> memoryview:
        with memoryview(memory) as room:
            read_into(room[:size_bytes])
        return memoryview(bytes(memory[:size_bytes]))

    assert decompress_frames(packed, 100_308, source="x", position=0, fill=fill) == b"".join(parts)
    assert memory[100_308:] == b"\xff" * 92
    with pytest.raises(CorruptionError):
        decompress_frames(packed[:-1], 100_308, source="x", position=0, fill=fill)


def test_every_truncation_is_found() -> None:
    packed = compress_frame(content(300)) + compress_frame(content(5))
    for size in range(len(packed)):
        with pytest.raises(CorruptionError):
            unpack(packed[:size], 305)


@pytest.mark.parametrize("claimed", [0, 299, 301, 1 << 50])
def test_another_size_than_expected_is_refused_before_anything_is_allocated(claimed: int) -> None:
    with pytest.raises(BadLengthError, match="content size of frames"):
        unpack(compress_frame(content(300)), claimed)


def test_a_frame_that_declares_more_or_less_than_it_holds_is_refused() -> None:
    frame = bytearray(compress_frame(content(300)))
    assert int.from_bytes(frame[5:7], "little") + 256 == 300
    for size in (299, 301):
        frame[5:7] = (size - 256).to_bytes(2, "little")
        with pytest.raises(CorruptionError):
            unpack(bytes(frame), size)


def test_a_frame_without_a_content_size_is_refused() -> None:
    compressor = cramjam.zstd.Compressor()
    compressor.compress(content(300))
    with pytest.raises(BadVersionError, match="frame descriptor"):
        unpack(bytes(compressor.finish()), 300)


def test_unused_bits_of_a_seek_table_are_ignored_and_reserved_ones_refused() -> None:
    for bit in range(7):
        data = bytearray(TABLE.to_bytes())
        data[-5] |= 1 << bit
        if bit < 2:
            assert SeekTable.from_bytes(bytes(data), source="x", object_bytes=OBJECT_BYTES) == TABLE
        else:
            with pytest.raises(BadVersionError, match="descriptor of a seek table"):
                SeekTable.from_bytes(bytes(data), source="x", object_bytes=OBJECT_BYTES)


@pytest.mark.parametrize("descriptor", [0x61, 0x62, 0x63, 0x68, 0x70])
def test_a_frame_with_a_dictionary_or_reserved_bits_is_refused(descriptor: int) -> None:
    frame = bytearray(compress_frame(content(300)))
    frame[4] = descriptor
    with pytest.raises(BadVersionError, match="frame descriptor"):
        unpack(bytes(frame), 300)


def test_a_skippable_frame_is_refused() -> None:
    with pytest.raises(BadMagicError):
        unpack(SeekTable(()).to_bytes(), 0)


def test_a_seek_table_comes_back_as_it_was_written() -> None:
    data = TABLE.to_bytes()
    assert SeekTable.from_bytes(b"before" + data, source="x", object_bytes=OBJECT_BYTES) == TABLE
    assert seek_table_bytes(data[-SEEK_TABLE_FOOTER_BYTES:], source="x", object_bytes=OBJECT_BYTES) == len(data)
    assert TABLE.content_bytes == 8 + (1 << 20) + 0xFFFF_FFFF


def test_a_seek_table_is_laid_out_as_the_format_says() -> None:
    expected = "5e2a4d18 11000000 01000000 02000000 01000000 00b1ea92 8f"
    assert SeekTable((FrameSize(1, 2),)).to_bytes() == bytes.fromhex(expected)


def test_a_seek_table_with_checksums_is_read() -> None:
    data = bytes.fromhex("5e2a4d18 15000000 01000000 02000000 aaaaaaaa 01000000 80b1ea92 8f")
    assert SeekTable.from_bytes(data, source="x", object_bytes=1 + len(data)).frames == (FrameSize(1, 2),)


def test_every_truncation_of_a_seek_table_is_found() -> None:
    data = TABLE.to_bytes()
    for size in range(len(data)):
        with pytest.raises(TruncatedError):
            SeekTable.from_bytes(data[len(data) - size :], source="x", object_bytes=OBJECT_BYTES)


@pytest.mark.parametrize(
    ("at", "error"),
    [
        (0, BadMagicError),
        (4, BadLengthError),
        (8, BadLengthError),
        (-9, BadLengthError),
        (-5, BadVersionError),
        (-4, BadMagicError),
        (-1, BadMagicError),
    ],
)
def test_a_seek_table_that_contradicts_itself_or_the_object_is_refused(at: int, error: type[CorruptionError]) -> None:
    small = SeekTable((FrameSize(10, 20), FrameSize(30, 40)))
    data = bytearray(small.to_bytes())
    data[at] ^= 0b0000_0101 if at != -9 else 0b0111_0000
    with pytest.raises(error):
        SeekTable.from_bytes(bytes(data), source="x", object_bytes=40 + len(data))


def test_a_size_that_does_not_fit_is_an_overflow() -> None:
    with pytest.raises(OverflowError):
        SeekTable((FrameSize(1 << 32, 1),)).to_bytes()


def test_positions_are_sums_of_sizes() -> None:
    sizes = [FrameSize(number, 1) for number in (17, 5, 9)]
    assert frame_positions(sizes, 100) == tuple(accumulate((17, 5, 9), initial=100))
