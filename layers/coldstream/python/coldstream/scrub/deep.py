"""The whole of an object, read by what its own trailer and seek table say: whether it is a sound fragment, and which.

Nothing of the entry is relied on but key, size and encoding, so that a wrong entry can be rebuilt from a sound object.
Memory: a block of 4 MiB, or a frame and what it expands to; and the index, 20 bytes a chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING
from zlib import crc32

from coldstream.errors import BadLengthError, BadSequenceError
from coldstream.format.fragment import FRAGMENT_HEADER_BYTES, FRAGMENT_TRAILER_BYTES, FragmentTrailer
from coldstream.format.index import INDEX_HEADER_BYTES
from coldstream.manifest.entry import Encoding, FragmentEntry
from coldstream.manifest.frames import Frames
from coldstream.scrub.content import ContentReader, ObjectContent
from coldstream.scrub.damage import Damage
from coldstream.scrub.trouble import Trouble, differs
from coldstream.units import MIB, ByteRange

if TYPE_CHECKING:
    from coldstream.format.seekable import SeekTable

BLOCK_BYTES = 4 * MIB

TRAILER_DIFFERS = "first offset, next offset and size of the data in the trailer"
"""What is wrong, as the error says, if the trailer alone contradicts sound chunks and their index."""

GetRange = Callable[[str, ByteRange], bytes]
"""Reads a range of an object, whole; the store's errors pass through."""


@dataclass(frozen=True, slots=True)
class SoundObject:
    """An object whose chunks, index and trailer fit each other, byte by byte."""

    content: ObjectContent
    frames: Frames | None


def read_object(get: GetRange, key: str, object_bytes: int, encoding: Encoding) -> SoundObject:
    """Read and verify a whole object. Cost: a GET for each 4 MiB or frame, and up to two for its end.

    Raises CorruptionError of the kind that fits.
    """
    return (
        _read_identity(get, key, object_bytes)
        if encoding is Encoding.IDENTITY
        else _read_frames(get, key, object_bytes)
    )


def content_troubles(entry: FragmentEntry, sound: SoundObject) -> list[Trouble]:
    """Return what contradicts the entry in a sound object, beside what its index and trailer show already."""
    content = sound.content
    troubles = []
    if content.object_crc32 != entry.crc32:
        detail = differs("the CRC-32 of its bytes", expected=f"{entry.crc32:08x}", found=f"{content.object_crc32:08x}")
        troubles.append(Trouble.of(Damage.BYTES, entry, detail))
    expected = {
        "epoch": (content.last.epoch, entry.epoch),
        "messages": (content.messages, entry.messages),
        "last user chunk": (content.last_user_chunk, entry.last_user_chunk),
        # Entries of earlier releases know neither.
        "first epoch": (content.first_epoch, content.first_epoch if entry.first_epoch is None else entry.first_epoch),
        "CRC-32 of the data": (
            content.data_crc32,
            content.data_crc32 if entry.data_crc32 is None else entry.data_crc32,
        ),
    }
    wrong = [differs(f"the entry's {what}", expected=own, found=told) for what, (own, told) in expected.items()
             if own != told]  # fmt: skip
    if wrong:
        troubles.append(Trouble.of(Damage.ENTRY, entry, "; ".join(wrong)))
    return troubles


def _read_identity(get: GetRange, key: str, object_bytes: int) -> SoundObject:
    end = get(key, ByteRange(max(0, object_bytes - FRAGMENT_TRAILER_BYTES), object_bytes))
    trailer = FragmentTrailer.from_bytes(end, source=key, object_bytes=object_bytes)
    reader, checksum = ContentReader(key), 0
    data_end = trailer.data_range.end
    for start in range(0, data_end, BLOCK_BYTES):
        block = get(key, ByteRange(start, min(start + BLOCK_BYTES, data_end)))
        checksum = crc32(block, checksum)
        reader.feed(block)
    footer = get(key, ByteRange(data_end, object_bytes))
    content = reader.finish(object_bytes=object_bytes, object_crc32=crc32(footer, checksum))
    _check_footer(key, footer, trailer, content)
    return SoundObject(content, None)


def _read_frames(get: GetRange, key: str, object_bytes: int) -> SoundObject:
    from coldstream.format.seekable import decompress_frames, frame_positions  # noqa: PLC0415  as in `footer_checks`

    table = _seek_table(get, key, object_bytes)
    positions = frame_positions(table.frames)
    starts = tuple(accumulate((one.content_bytes for one in table.frames), initial=0))
    # The last frame of all ends with the trailer, which tells where the chunks end.
    last = len(table.frames) - 1
    tail = decompress_frames(
        get(key, ByteRange(positions[last], positions[last + 1])),
        table.frames[last].content_bytes,
        source=key,
        position=positions[last],
    )
    trailer = FragmentTrailer.from_bytes(tail, source=key, object_bytes=table.content_bytes)
    data_end = trailer.data_range.end
    cuts = [start for start in starts if FRAGMENT_HEADER_BYTES <= start < data_end]
    reader, checksum, footer = ContentReader(key, cuts), 0, bytearray()
    for number, frame in enumerate(table.frames):
        block = get(key, ByteRange(positions[number], positions[number + 1]))
        checksum = crc32(block, checksum)
        data = decompress_frames(block, frame.content_bytes, source=key, position=positions[number])
        if starts[number] < data_end < starts[number + 1]:
            raise BadSequenceError(key, positions[number], "a frame holds both chunks and what follows them")
        if starts[number] < data_end:
            reader.feed(data)
        else:
            footer += data
    checksum = crc32(get(key, ByteRange(positions[-1], object_bytes)), checksum)
    content = reader.finish(object_bytes=object_bytes, object_crc32=checksum)
    _check_footer(key, bytes(footer), trailer, content)
    if len(content.points) != len(cuts):
        raise BadSequenceError(key, 0, "frames that begin with a chunk", expected=len(cuts), found=len(content.points))
    chunk_frames = range(starts.index(FRAGMENT_HEADER_BYTES), starts.index(FRAGMENT_HEADER_BYTES) + len(cuts) + 1)
    return SoundObject(content, Frames(tuple(positions[number] for number in chunk_frames)))


def _seek_table(get: GetRange, key: str, object_bytes: int) -> SeekTable:
    from coldstream.format.seekable import SEEK_TABLE_FOOTER_BYTES, SeekTable, seek_table_bytes  # noqa: PLC0415

    end = get(key, ByteRange(max(0, object_bytes - SEEK_TABLE_FOOTER_BYTES), object_bytes))
    size = seek_table_bytes(end, source=key, object_bytes=object_bytes)
    data = get(key, ByteRange(object_bytes - size, object_bytes))
    return SeekTable.from_bytes(data, source=key, object_bytes=object_bytes)


def _check_footer(key: str, footer: bytes, trailer: FragmentTrailer, content: ObjectContent) -> None:
    records = footer[INDEX_HEADER_BYTES : INDEX_HEADER_BYTES + trailer.index_bytes]
    if records != content.records:
        raise BadSequenceError(key, trailer.index_position, "the index has other chunks than the data")
    found = *content.span, content.data_bytes
    if found != (trailer.first_offset, trailer.next_offset, trailer.data_bytes):
        raise BadLengthError(
            key,
            trailer.index_position + trailer.index_bytes,
            TRAILER_DIFFERS,
            expected=found,
            found=(trailer.first_offset, trailer.next_offset, trailer.data_bytes),
        )
