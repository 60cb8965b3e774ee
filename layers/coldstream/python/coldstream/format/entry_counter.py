"""Count the entries of a chunk: of one whose data comes in pieces, or all at once."""

from __future__ import annotations

from coldstream.errors import BadCountError, BadLengthError
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.entry import (
    SIMPLE_HEADER,
    SIMPLE_HEADER_BYTES,
    SUB_BATCH_HEADER,
    SUB_BATCH_HEADER_BYTES,
    SUB_BATCH_KIND,
    check_counts,
)


def count_simple_entries(block: bytes | bytearray | memoryview, at: int, end: int) -> int | None:
    """Count the entries from byte `at` of a block up to `end`; None unless all are simple, and the last ends there.

    Cost: about 0.1 us an entry. None says nothing more: the caller has an `EntryCounter` look.
    """
    unpack = SIMPLE_HEADER.unpack_from
    last = end - SIMPLE_HEADER_BYTES
    count = 0
    while at <= last:
        (length,) = unpack(block, at)
        if length < 0:
            return None
        at += SIMPLE_HEADER_BYTES + length
        count += 1
    return count if at == end else None


class EntryCounter:
    """Counts the entries and records of a chunk whose data comes in pieces, cut anywhere.

    It raises nothing before `check`. So the caller can check the CRC first, and report a wrong CRC as such.
    """

    __slots__ = ("_cut_header", "_packed_records", "_rest", "_simple", "_sub_batches")

    def __init__(self) -> None:
        self._simple = 0
        self._sub_batches = 0
        self._packed_records = 0
        self._rest = 0  # bytes that the current entry still lacks
        self._cut_header = b""  # the start of an entry header that a piece ended in

    def feed(self, piece: memoryview) -> None:
        """Count the entries of the next piece. Cost: about 0.15 us an entry, however large it is."""
        if self._cut_header:
            # The first byte has bit 31, which tells how long the header is, however little of it is there.
            header_bytes = SIMPLE_HEADER_BYTES if self._cut_header[0] < SUB_BATCH_KIND else SUB_BATCH_HEADER_BYTES
            missing = header_bytes - len(self._cut_header)
            joined = self._cut_header + piece[:missing]
            self._cut_header = b""
            # A whole header ends that piece exactly, so this sets `_rest` to the entry's bytes in the pieces to come. A
            # header that is still cut is kept again, and nothing of `piece` is left.
            self.feed(memoryview(joined))
            piece = piece[missing:]
        unpack = SIMPLE_HEADER.unpack_from
        at, end = self._rest, len(piece)
        last = end - SIMPLE_HEADER_BYTES
        simple = 0
        while at <= last:
            length = unpack(piece, at)[0]
            if length >= 0:
                at += SIMPLE_HEADER_BYTES + length
                simple += 1
            elif at + SUB_BATCH_HEADER_BYTES <= end:
                _, records, _, length = SUB_BATCH_HEADER.unpack_from(piece, at)
                at += SUB_BATCH_HEADER_BYTES + length
                self._packed_records += records
                self._sub_batches += 1
            else:
                break
        self._simple += simple
        if at < end:
            self._cut_header = bytes(piece[at:])
            self._rest = 0
        else:
            self._rest = at - end

    def check(self, header: ChunkHeader, *, source: str, position: int) -> None:
        """Compare the counts with the header of the chunk at byte `position`, after all of its data was fed.

        Raises BadLengthError if the last entry runs past the end, BadCountError unless there are as many entries and
        records as the header says, and for a tracking chunk that holds a sub-batch.
        """
        if self._rest or self._cut_header:
            raise BadLengthError(source, position, "last entry of a chunk runs past the end of the data")
        entries, records = self._simple + self._sub_batches, self._simple + self._packed_records
        check_counts(header, entries, records, source=source, position=position)
        if self._sub_batches and header.type is not ChunkType.USER:
            raise BadCountError(
                source, position, "sub-batches in a tracking chunk", expected=0, found=self._sub_batches
            )
