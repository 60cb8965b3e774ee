"""The footer of a fragment's object, read without anything that the manifest says: index, trailer, and the frames."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from coldstream.errors import BadLengthError, BadSequenceError, TruncatedError
from coldstream.format.fragment import FRAGMENT_HEADER_BYTES, FRAGMENT_TRAILER_BYTES, FragmentTrailer
from coldstream.format.seekable import (
    SEEK_TABLE_FOOTER_BYTES,
    SeekTable,
    decompress_frames,
    frame_positions,
    seek_table_bytes,
)
from coldstream.manifest.entry import Encoding
from coldstream.store.ports import ListedObject, ObjectReads
from coldstream.units import KIB, ByteRange

TAIL_BYTES = 64 * KIB
"""Bytes that the first read takes: the whole footer of most fragments, and the seek table of all up to 4 GiB."""

_SEEKABLE_END = (0x8F92EAB1).to_bytes(4, "little")
"""The last bytes of a seek table. A trailer ends in a size of records of 20 bytes, which this number never is."""


@dataclass(frozen=True, slots=True)
class ObjectFooter:
    """The end of a fragment in the identity encoding: the `index` with its header, and the `trailer`.

    `frames` are the frames that hold chunks: where each begins in the identity encoding, in order, and in the object,
    with the end of the last. They are None for an identity fragment. `crc32` is that of index and trailer together.
    """

    encoding: Encoding
    trailer: FragmentTrailer
    index: memoryview
    crc32: int
    size_bytes: int
    content_positions: tuple[int, ...] | None = None
    frame_positions: tuple[int, ...] | None = None


def read_footer(objects: ObjectReads, listed: ListedObject) -> ObjectFooter:
    """Read the footer of an object as it was listed. Memory: the index, 20 bytes a chunk.

    Cost: one GET, and one more if the footer is larger than TAIL_BYTES; for a compressed object up to three. Raises
    CorruptionError of the kind that fits, ObjectNotFoundError, ReplacedError, NotRestoredError.
    """
    tail = _Tail(objects, listed)
    if bytes(tail.last(4)) == _SEEKABLE_END:
        return _of_frames(tail)
    trailer = FragmentTrailer.from_bytes(
        tail.last(FRAGMENT_TRAILER_BYTES), source=listed.key, object_bytes=listed.size_bytes
    )
    footer = tail.last(listed.size_bytes - trailer.index_range.start)
    return _footer(Encoding.IDENTITY, trailer, footer)


def _of_frames(tail: _Tail) -> ObjectFooter:
    key, object_bytes = tail.listed.key, tail.listed.size_bytes
    size = seek_table_bytes(tail.last(SEEK_TABLE_FOOTER_BYTES), source=key, object_bytes=object_bytes)
    table = SeekTable.from_bytes(tail.last(size), source=key, object_bytes=object_bytes)
    if not table.frames:
        raise BadLengthError(key, 0, "frames in a seek table", expected="one at least", found=0)
    positions = frame_positions(table.frames)
    contents = [0]
    for frame in table.frames:
        contents.append(contents[-1] + frame.content_bytes)
    # Usually one frame holds index and trailer. Its end is enough to know; the trailer then tells where they begin.
    content = tail.content(positions, contents, len(table.frames) - 1)
    trailer = FragmentTrailer.from_bytes(content, source=key, object_bytes=contents[-1])
    try:
        first = contents.index(trailer.index_range.start)
        chunks = contents.index(FRAGMENT_HEADER_BYTES)
    except ValueError:
        expected = f"one begins at {FRAGMENT_HEADER_BYTES}, one at {trailer.index_range.start}"
        raise BadSequenceError(key, 0, "frames of a fragment", expected=expected, found=contents[:8]) from None
    if first < len(table.frames) - 1:
        content = tail.content(positions, contents, first)
    return _footer(
        Encoding.ZSTD_SEEKABLE,
        trailer,
        content,
        content_positions=tuple(contents[chunks:first]),
        frame_positions=positions[chunks : first + 1],
    )


def _footer(
    encoding: Encoding,
    trailer: FragmentTrailer,
    footer: memoryview,
    *,
    content_positions: tuple[int, ...] | None = None,
    frame_positions: tuple[int, ...] | None = None,
) -> ObjectFooter:
    index = footer[: len(trailer.index_range)]
    return ObjectFooter(encoding, trailer, index, crc32(footer), len(footer), content_positions, frame_positions)


class _Tail:
    """The last bytes of an object, as many as were needed so far."""

    def __init__(self, objects: ObjectReads, listed: ListedObject) -> None:
        self._objects = objects
        self.listed = listed
        self._data = memoryview(b"")

    def last(self, size_bytes: int) -> memoryview:
        """Return the last bytes; raises TruncatedError if the object has fewer."""
        if size_bytes > self.listed.size_bytes:
            raise TruncatedError(
                self.listed.key, 0, "fragment is cut short", expected=size_bytes, found=self.listed.size_bytes
            )
        if size_bytes > len(self._data):
            end = self.listed.size_bytes - len(self._data)
            start = max(0, min(self.listed.size_bytes - size_bytes, self.listed.size_bytes - TAIL_BYTES))
            found = self._objects.get_range(self.listed.key, ByteRange(start, end), if_match=self.listed.etag)
            if len(found.data) != end - start:
                raise TruncatedError(
                    self.listed.key, start, "fragment is cut short", expected=end - start, found=len(found.data)
                )
            self._data = memoryview(found.data + bytes(self._data))
        return self._data[len(self._data) - size_bytes :]

    def content(self, positions: tuple[int, ...], contents: list[int], first: int) -> memoryview:
        """Return what the frames from number `first` on decompress to."""
        frames = self.last(self.listed.size_bytes - positions[first])[: positions[-1] - positions[first]]
        return decompress_frames(
            frames, contents[-1] - contents[first], source=self.listed.key, position=positions[first]
        )
