"""Scan whole segments in bounded memory: a push parser that does no I/O.

    scanner = SegmentScanner(source, first_offset=...)
    for block in blocks:                  of any size
        for event in scanner.feed(block):
            ChunkBegin                    a header that is valid by itself
            ChunkBytes ...                all bytes of the chunk, header included, in order
            ChunkEnd                      the chunk is verified
    scanner.close()

`feed_whole` gives the same events, except that a chunk that lies in one block is one event, a WholeChunk.

Do not rely on a chunk before its ChunkEnd. The scanner checks the segment's header, every chunk header, the succession
of chunk ids, that epochs do not fall, the CRC of the data, the counts of entries and records, and the form of trailers.
No checksum covers the rest, which the scanner takes as it is: timestamps, bloom filters, the values in trailers, the
exact epochs, and whether a chunk of one simple entry is a user chunk or a tracking chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast
from zlib import crc32

from coldstream.errors import BadCrcError, BadLengthError, BadSequenceError, TruncatedError
from coldstream.format.checksum import combine_crc32
from coldstream.format.chunk import CHUNK_HEADER_BYTES, ChunkHeader
from coldstream.format.entry_counter import EntryCounter, count_simple_entries
from coldstream.format.native import NATIVE
from coldstream.format.segment import MAX_POSITION, SEGMENT_HEADER, SEGMENT_HEADER_BYTES, check_file_header
from coldstream.format.tracking import TrackingCheck
from coldstream.units import Offset

# Events are named tuples, as there are several of each chunk: a frozen dataclass takes three times as long to make.


class ChunkBegin(NamedTuple):
    """A chunk begins at byte `position` of the segment."""

    header: ChunkHeader
    position: int


class ChunkBytes(NamedTuple):
    """The next bytes of the chunk, at least one. The view is of the block that was fed: copy it to keep it."""

    view: memoryview


class ChunkEnd(NamedTuple):
    """The chunk ends here, verified. `crc32` covers all of its bytes, from header to trailer."""

    header: ChunkHeader
    position: int
    crc32: int


class WholeChunk(NamedTuple):
    """A verified chunk, all in one: what `ChunkBegin`, one `ChunkBytes` and `ChunkEnd` say."""

    header: ChunkHeader
    position: int
    crc32: int
    view: memoryview


ScanEvent = ChunkBegin | ChunkBytes | ChunkEnd


class SegmentScanner:
    """Turns the blocks of one segment into events. Memory: one header, whatever the size of chunks and blocks.

    `first_offset`, if given, is the id that the first chunk must have: the number in the segment's file name. A
    `position` other than 0 starts the scan at the chunk there instead of the segment's header. Do not use the scanner
    again after an error.
    """

    def __init__(self, source: str, *, first_offset: Offset | None = None, position: int = 0) -> None:
        self._source = source
        self._expected_id: int | None = first_offset
        self._epoch = 0
        self._position = position  # of the segment's header, then of the current or next chunk
        self._cut_header = b""  # the start of a header that a block ended in
        self._header: ChunkHeader | None = None  # of the current chunk
        self._data_start = self._data_end = self._end = 0  # in that chunk, counted from its first byte
        self._taken = 0  # bytes of it that were fed
        self._verified_end = 0  # of the whole chunks in the block that the native module found right
        self._head_crc = self._data_crc = self._trailer_crc = 0
        self._entries = EntryCounter()
        self._trailer = TrackingCheck()  # one for all: a trailer that passes leaves nothing in it

    def feed(self, block: bytes | bytearray | memoryview) -> Iterator[ScanEvent]:
        """Yield the events of the next block. Exhaust the iterator before the next call: it holds the scanner's state.

        Raises the matching kind of CorruptionError, with the position of the chunk.
        """
        return cast("Iterator[ScanEvent]", self._feed(block, is_whole=False))

    def feed_whole(self, block: bytes | bytearray | memoryview) -> Iterator[ScanEvent | WholeChunk]:
        """Yield the events as `feed`, with a `WholeChunk` for each chunk that lies in this block. Half the cost.

        Raises the same errors, but of such a chunk only once all of it is there.
        """
        return self._feed(block, is_whole=True)

    def _feed(self, block: bytes | bytearray | memoryview, *, is_whole: bool) -> Iterator[ScanEvent | WholeChunk]:
        view = memoryview(block)
        at, end = 0, len(view)
        self._verified_end = 0
        while at < end:
            header = self._header
            if header is None:
                if is_whole and self._position and not self._cut_header and (whole := self._take_whole(view, at)):
                    yield whole
                    at += len(whole.view)
                    continue
                header_bytes = CHUNK_HEADER_BYTES if self._position else SEGMENT_HEADER_BYTES
                missing = header_bytes - len(self._cut_header)
                start = view[at : at + missing]
                if len(start) < missing:
                    self._cut_header += start
                    return
                cut, self._cut_header = self._cut_header, b""
                if not self._position:
                    check_file_header(cut + start, SEGMENT_HEADER, source=self._source)
                    self._position = SEGMENT_HEADER_BYTES
                    at += missing
                    continue
                if cut:
                    start = memoryview(cut + start)
                header = self._begin(start)
                yield ChunkBegin(header, self._position)
                # A header that two blocks share is a piece of its own. Any other is part of the piece below.
                if cut:
                    self._take(start)
                    yield ChunkBytes(start)
                    at += missing
            piece = view[at : at + self._end - self._taken]
            if piece:
                self._take(piece)
                yield ChunkBytes(piece)
                at += len(piece)
            if self._taken == self._end:
                yield self._finish(header)

    def close(self) -> None:
        """Say that the segment ends here. Raises TruncatedError unless a chunk, or the segment's header, just did."""
        if self._header is not None:
            raise TruncatedError(
                self._source, self._position, "segment ends inside a chunk", expected=self._end, found=self._taken
            )
        if self._cut_header or not self._position:
            header_bytes = CHUNK_HEADER_BYTES if self._position else SEGMENT_HEADER_BYTES
            raise TruncatedError(
                self._source,
                self._position,
                "segment ends inside a header",
                expected=header_bytes,
                found=len(self._cut_header),
            )

    def _take_whole(self, view: memoryview, at: int) -> WholeChunk | None:
        """Verify the chunk at byte `at` of the block; None unless all of it is there."""
        data_at = at + CHUNK_HEADER_BYTES
        if data_at > len(view):
            return None
        header = self._parse(view[at:data_at])
        data_at += header.bloom_bytes
        trailer_at = data_at + header.data_bytes
        end = trailer_at + header.trailer_bytes
        if end > len(view):
            return None
        entries: EntryCounter | None = None
        if self._is_verified(view, at):
            self._data_crc = header.crc
        else:
            self._data_crc = crc32(view[data_at:trailer_at])
            # What has sub-batches, or is wrong, is counted by the other way, which knows what to say of it.
            if not count_simple_entries(view, data_at, trailer_at) == header.entries == header.records:
                entries = EntryCounter()
                entries.feed(view[data_at:trailer_at])
        self._head_crc = crc32(view[at:data_at])
        if header.trailer_bytes:
            self._trailer_crc = crc32(view[trailer_at:end])
            self._trailer.feed(view[trailer_at:end])
        position = self._position
        return WholeChunk(header, position, self._verify(header, entries), view[at:end])

    def _is_verified(self, view: memoryview, at: int) -> bool:
        """Tell whether the native module found CRC and entries of the chunk at byte `at` of the block right.

        It looks at all chunks from there on in one call.
        """
        if at >= self._verified_end and NATIVE is not None and isinstance(view.obj, bytes):  # it would copy others
            self._verified_end = NATIVE.verified_end(view, at)
        return at < self._verified_end

    def _parse(self, start: memoryview) -> ChunkHeader:
        """Parse the header of the chunk that comes next. Raises unless it follows the one before."""
        source, position = self._source, self._position
        header = ChunkHeader.from_bytes(start, source=source, position=position)
        if position > MAX_POSITION:
            raise BadLengthError(
                source,
                position,
                "position of a chunk in its segment",
                expected=f"at most {MAX_POSITION}",
                found=position,
            )
        if header.chunk_id != self._expected_id and self._expected_id is not None:
            raise BadSequenceError(source, position, "chunk id", expected=self._expected_id, found=header.chunk_id)
        if header.epoch < self._epoch:
            raise BadSequenceError(
                source, position, "epoch of a chunk", expected=f"at least {self._epoch}", found=header.epoch
            )
        return header

    def _begin(self, start: memoryview) -> ChunkHeader:
        header = self._header = self._parse(start)
        self._data_start = CHUNK_HEADER_BYTES + header.bloom_bytes
        self._data_end = self._data_start + header.data_bytes
        self._end = self._data_end + header.trailer_bytes
        self._taken = self._head_crc = self._data_crc = self._trailer_crc = 0
        self._entries = EntryCounter()
        return header

    def _take(self, piece: memoryview) -> None:
        taken = self._taken
        data_start, data_end = max(self._data_start - taken, 0), max(self._data_end - taken, 0)
        if data_start:
            self._head_crc = crc32(piece[:data_start], self._head_crc)
        if data_end > data_start:
            data = piece[data_start:data_end]
            self._data_crc = crc32(data, self._data_crc)
            self._entries.feed(data)
        if data_end < len(piece):
            trailer = piece[data_end:]
            self._trailer_crc = crc32(trailer, self._trailer_crc)
            self._trailer.feed(trailer)
        self._taken = taken + len(piece)

    def _finish(self, header: ChunkHeader) -> ChunkEnd:
        position = self._position
        whole_crc = self._verify(header, self._entries)
        self._header = None
        return ChunkEnd(header, position, whole_crc)

    def _verify(self, header: ChunkHeader, entries: EntryCounter | None) -> int:
        """Judge the chunk by all that was taken of it, and go on to the next; return the CRC-32 of all its bytes.

        Without `entries`, they are known to be as many as the header says.
        """
        position = self._position
        if self._data_crc != header.crc:
            raise BadCrcError(
                self._source, position, "CRC-32 of a chunk's data", expected=header.crc, found=self._data_crc
            )
        if entries is not None:
            entries.check(header, source=self._source, position=position)
        whole_crc = combine_crc32(self._head_crc, self._data_crc, header.data_bytes)
        if header.trailer_bytes:
            trailer_position = position + header.total_bytes - header.trailer_bytes
            self._trailer.check(source=self._source, position=trailer_position)
            whole_crc = combine_crc32(whole_crc, self._trailer_crc, header.trailer_bytes)
        self._position = position + header.total_bytes
        self._expected_id = header.next_offset
        self._epoch = header.epoch
        return whole_crc
