"""The Zstandard Seekable Format, in which objects of encoding `zstd-seekable` are stored.

    object      frames · seek table; all integers little-endian, unlike in every other format here

    frame (RFC 8878, 3.1.1); we write and accept only this kind
        magic              u32  0xFD2FB528
        descriptor         u8   bits 7-6 width of content size, 5 single segment, 2 checksum, 1-0 dictionary; 4-3 are 0
        window             u8   unless single segment
        content size       1, 2, 4 or 8 bytes; required; a dictionary is refused
        blocks             u24 each: bit 0 last, bits 2-1 type (0 raw, 1 one byte repeated, 2 compressed), then its size
        checksum           u32  low half of the content's XXH64, seed 0; optional, and always written by us

    seek table, a skippable frame
     0  magic              u32  0x184D2A5E
     4  size               u32  of all that follows
     8  entries            8 bytes a frame: compressed size u32, content size u32; with bit 7 of the descriptor 4 more,
                           a checksum, which we neither write nor read: the frames have their own
    -9  frames             u32
    -5  descriptor         u8   bit 7 checksums, bits 6-2 reserved, bits 1-0 unused
    -4  magic              u32  0x8F92EAB1

The frames, decompressed one after the other, are the identity fragment: `zstd -d` restores it. The first frame holds
the fragment's header alone. The next ones begin at the points of the manifest's sparse index, and the last ones hold
index and trailer. So any run of frames in between holds whole chunks and nothing else.

Upstream: `zstd_seekable_compression_format.md`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO

import cramjam
from awscrt.checksums import XXHash

from coldstream.errors import BadLengthError, BadMagicError, BadVersionError, CorruptionError, TruncatedError

DEFAULT_LEVEL = 3

_FRAME_MAGIC = (0xFD2FB528).to_bytes(4, "little")
_SINGLE_SEGMENT, _RESERVED, _CHECKSUM, _DICTIONARY = 1 << 5, 0b11 << 3, 1 << 2, 0b11
_CHECKSUM_BYTES = 4
_BLOCK_HEADER_BYTES = 3
_REPEATED, _UNKNOWN_BLOCK = 1, 3

_TABLE_HEADER = struct.Struct(
    "<"
    "I"  # magic
    "I"  # size of what follows, bytes
)
_TABLE_ENTRY = struct.Struct(
    "<"
    "I"  # compressed, bytes
    "I"  # content, bytes
)
_TABLE_FOOTER = struct.Struct(
    "<"
    "I"  # frames
    "B"  # descriptor
    "I"  # magic
)
assert _TABLE_HEADER.size == 8  # noqa: PLR2004  as above
assert _TABLE_ENTRY.size == 8  # noqa: PLR2004  as above

SEEK_TABLE_FOOTER_BYTES = 9
assert _TABLE_FOOTER.size == SEEK_TABLE_FOOTER_BYTES

_TABLE_MAGIC = 0x184D2A5E
_FOOTER_MAGIC = 0x8F92EAB1
_HAS_CHECKSUMS, _TABLE_RESERVED = 1 << 7, 0b0111_1100


@dataclass(frozen=True, slots=True)
class FrameSize:
    """One entry of a seek table: the sizes of a frame, compressed and decompressed."""

    compressed_bytes: int
    content_bytes: int


@dataclass(frozen=True, slots=True)
class SeekTable:
    """The sizes of all frames, in order, without the table itself."""

    frames: tuple[FrameSize, ...]

    @property
    def content_bytes(self) -> int:
        """Size of the decompressed object."""
        return sum(frame.content_bytes for frame in self.frames)

    def to_bytes(self) -> bytes:
        """Encode; the inverse of `from_bytes`. Raises OverflowError if a size does not fit its field."""
        try:
            entries = b"".join(_TABLE_ENTRY.pack(one.compressed_bytes, one.content_bytes) for one in self.frames)
            header = _TABLE_HEADER.pack(_TABLE_MAGIC, len(entries) + SEEK_TABLE_FOOTER_BYTES)
            return header + entries + _TABLE_FOOTER.pack(len(self.frames), 0, _FOOTER_MAGIC)
        except struct.error as err:
            raise OverflowError(f"no seek table can say the sizes of these {len(self.frames)} frames") from err

    @classmethod
    def from_bytes(cls, view: memoryview | bytes, *, source: str, object_bytes: int) -> SeekTable:
        """Parse the seek table at the end of `view`, which ends where the object of `object_bytes` ends.

        `seek_table_bytes` returns how many bytes are needed. Raises TruncatedError if there are fewer, BadMagicError,
        BadVersionError for reserved bits, BadLengthError if sizes contradict each other or the object's.
        """
        view = memoryview(view)
        size = seek_table_bytes(view, source=source, object_bytes=object_bytes)
        position = object_bytes - size
        if len(view) < size:
            raise TruncatedError(source, position, "seek table is cut short", expected=size, found=len(view))
        view = view[len(view) - size :]
        magic, following_bytes = _TABLE_HEADER.unpack_from(view)
        if magic != _TABLE_MAGIC:
            raise BadMagicError(
                source, position, "seek table magic", expected=f"{_TABLE_MAGIC:08x}", found=f"{magic:08x}"
            )
        if following_bytes != size - _TABLE_HEADER.size:
            raise BadLengthError(
                source, position, "size of a seek table", expected=size - _TABLE_HEADER.size, found=following_bytes
            )
        count, descriptor, _ = _TABLE_FOOTER.unpack_from(view, size - SEEK_TABLE_FOOTER_BYTES)
        step = _entry_bytes(descriptor)
        entries = range(_TABLE_HEADER.size, _TABLE_HEADER.size + count * step, step)
        table = cls(tuple(FrameSize(*_TABLE_ENTRY.unpack_from(view, at)) for at in entries))
        frames_bytes = sum(frame.compressed_bytes for frame in table.frames)
        if frames_bytes != position:
            raise BadLengthError(
                source, position, "size of all frames in a seek table", expected=position, found=frames_bytes
            )
        return table


def seek_table_bytes(view: memoryview | bytes, *, source: str, object_bytes: int) -> int:
    """Return the size of the seek table of an object of `object_bytes`; `view` holds at least its last 9 bytes.

    Raises TruncatedError, BadMagicError, BadVersionError for reserved bits, BadLengthError for a table
    larger than the object.
    """
    if len(view) < SEEK_TABLE_FOOTER_BYTES:
        raise TruncatedError(source, 0, "seek table is cut short", expected=SEEK_TABLE_FOOTER_BYTES, found=len(view))
    position = object_bytes - SEEK_TABLE_FOOTER_BYTES
    count, descriptor, magic = _TABLE_FOOTER.unpack_from(view, len(view) - SEEK_TABLE_FOOTER_BYTES)
    if magic != _FOOTER_MAGIC:
        raise BadMagicError(
            source, position, "magic at the end of a seek table", expected=f"{_FOOTER_MAGIC:08x}", found=f"{magic:08x}"
        )
    if descriptor & _TABLE_RESERVED:
        raise BadVersionError(
            source, position, "descriptor of a seek table", expected="reserved bits 0", found=f"{descriptor:08b}"
        )
    size: int = _TABLE_HEADER.size + count * _entry_bytes(descriptor) + SEEK_TABLE_FOOTER_BYTES
    if size > object_bytes:
        raise BadLengthError(
            source, position, "frames in a seek table", expected=f"those of {object_bytes} bytes", found=count
        )
    return size


def compress_frame(content: bytes | memoryview, level: int = DEFAULT_LEVEL) -> bytes:
    """Compress content, which must not be empty, into one frame with its size and its checksum."""
    frame = bytearray(cramjam.zstd.compress(content, level))
    # The library writes the size but no checksum, so set the flag and append it: the low half of XXH64, little-endian.
    frame[len(_FRAME_MAGIC)] |= _CHECKSUM
    checksum: bytes = XXHash.compute_xxhash64(content)
    return bytes(frame) + checksum[: -_CHECKSUM_BYTES - 1 : -1]


Fill = Callable[[int, Callable[[memoryview], None]], memoryview]
"""Gives memory of a size, has it filled, and returns it, read-only: as `read/buffers.py` does."""


def fill_new_memory(size_bytes: int, read_into: Callable[[memoryview], None]) -> memoryview:
    """Fill memory that nobody had before."""
    out = BytesIO(bytes(size_bytes))
    with out.getbuffer() as room:
        read_into(room)
    return memoryview(out.getvalue())  # without a copy: `out` gives its memory away


def decompress_frames(
    view: memoryview | bytes, content_bytes: int, *, source: str, position: int, fill: Fill = fill_new_memory
) -> memoryview:
    """Decompress whole frames, at byte `position` of `source`, which together must hold `content_bytes`.

    Allocates that by `fill`, and the decoder's window, whatever the data: the declared sizes are added up first, and no
    frame may come out larger than it declares. The view is one of `bytes`, which the native module reads where they
    are: of a bytearray it would make a copy. Raises TruncatedError, BadMagicError, BadVersionError for a kind of frame
    that we do not write, BadLengthError for other sizes, CorruptionError for a frame that cannot be decompressed.
    """
    view = memoryview(view)
    frames = list(_iter_frames(view, source=source, position=position))
    declared = sum(frame.content_bytes for _, frame in frames)
    if declared != content_bytes:
        raise BadLengthError(source, position, "content size of frames", expected=content_bytes, found=declared)

    def unpack_into(room: memoryview) -> None:
        at = 0
        for start, frame in frames:
            place = room[at : at + frame.content_bytes]
            try:
                found: int = cramjam.zstd.decompress_into(view[start : start + frame.compressed_bytes], place)
            except cramjam.DecompressionError as err:
                raise CorruptionError(source, position + start, f"frame cannot be decompressed ({err})") from err
            if found != frame.content_bytes:
                raise BadLengthError(
                    source, position + start, "content of a frame", expected=frame.content_bytes, found=found
                )
            at += found

    return fill(content_bytes, unpack_into)


def frame_positions(sizes: Iterable[FrameSize], position: int = 0) -> tuple[int, ...]:
    """Return where consecutive frames begin, the first at `position`, and where the last one ends."""
    positions = [position]
    for size in sizes:
        positions.append(positions[-1] + size.compressed_bytes)
    return tuple(positions)


def _entry_bytes(descriptor: int) -> int:
    return _TABLE_ENTRY.size + (_CHECKSUM_BYTES if descriptor & _HAS_CHECKSUMS else 0)


def _iter_frames(view: memoryview, *, source: str, position: int) -> Iterator[tuple[int, FrameSize]]:
    """Yield where each frame begins in `view`, and its sizes, by the headers alone."""
    start = 0
    while start < len(view):
        try:
            size = _frame_size(view[start:], source, position + start)
        except IndexError:
            raise TruncatedError(source, position + start, "frame is cut short") from None
        yield start, size
        start += size.compressed_bytes


def _frame_size(view: memoryview, source: str, position: int) -> FrameSize:
    """Walk a frame's blocks. Raises IndexError if `view` ends before the frame does."""
    if view[:4] != _FRAME_MAGIC:
        raise BadMagicError(source, position, "frame magic", expected=_FRAME_MAGIC.hex(), found=view[:4].hex())
    descriptor = view[4]
    size_flag, is_single = descriptor >> 6, bool(descriptor & _SINGLE_SEGMENT)
    size_bytes = (1 << size_flag) if size_flag or is_single else 0
    if descriptor & (_RESERVED | _DICTIONARY) or not size_bytes:
        raise BadVersionError(
            source,
            position,
            "frame descriptor",
            expected="a content size, no dictionary, reserved bits 0",
            found=f"{descriptor:08b}",
        )
    at = 5 if is_single else 6
    # A size of two bytes counts from 256 (RFC 8878, 3.1.1.1.4).
    content_bytes = int.from_bytes(view[at : at + size_bytes], "little") + (256 if size_flag == 1 else 0)
    at += size_bytes
    is_last = False
    while not is_last:
        header = view[at] | view[at + 1] << 8 | view[at + 2] << 16
        is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind == _UNKNOWN_BLOCK:
            raise BadVersionError(source, position, "block type in a frame", expected="0 to 2", found=kind)
        # A repeated byte is stored once; its block's size says how often it is repeated.
        at += _BLOCK_HEADER_BYTES + (1 if kind == _REPEATED else size)
    at += _CHECKSUM_BYTES if descriptor & _CHECKSUM else 0
    if at > len(view):
        raise IndexError
    return FrameSize(at, content_bytes)
