"""Cut a segment's verified chunks into fragments.

A cut falls after the chunk that takes a fragment's data past the target size, at the end of the segment, and before a
chunk that the manifest holds already: so borders depend on the data alone, whoever cuts and whenever.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from coldstream.archive.coverage import Coverage
from coldstream.archive.draft import CutFragment, FragmentDraft
from coldstream.archive.rolled import SegmentRolled
from coldstream.errors import BadSequenceError
from coldstream.format.scanner import ChunkBegin, ChunkBytes, ChunkEnd, SegmentScanner


class SegmentCutter:
    """Feeds a scanner, and gives each chunk's bytes to the fragment that it belongs to.

    Borders are counted over all chunks of the segment, also those that the manifest holds: what an interrupted upload
    left to do is cut as if it had not been interrupted.
    """

    def __init__(self, segment: SegmentRolled, coverage: Coverage, fragment_bytes: int, spool_dir: Path | None) -> None:
        self._segment = segment
        self._coverage = coverage
        self._fragment_bytes = fragment_bytes
        self._spool_dir = spool_dir
        self._scanner = SegmentScanner(segment.staged_key, first_offset=segment.first_offset)
        self._draft: FragmentDraft | None = None
        self._sequence_number = 0
        self._bytes_since_border = 0
        self._chunks = 0
        self._next_offset: int = segment.first_offset

    def feed(self, block: bytes) -> Iterator[CutFragment]:
        """Take the next bytes of the segment; yield the fragments that they complete."""
        for step in self._scanner.feed(block):
            match step:
                case ChunkBytes(view):
                    if self._draft is not None:
                        self._draft.write(view)
                case ChunkBegin(header, position):
                    if self._coverage.holds_chunk(header, source=self._segment.staged_key):
                        yield from self._end_fragment()
                    elif self._draft is None:
                        self._draft = self._begin(position)
                case ChunkEnd(header, _, chunk_crc32):
                    if self._draft is not None:
                        self._draft.add(header, chunk_crc32)
                    self._chunks += 1
                    self._next_offset = header.next_offset
                    self._bytes_since_border += header.total_bytes
                    if self._bytes_since_border > self._fragment_bytes:
                        yield from self._end_fragment()
                        self._sequence_number += 1
                        self._bytes_since_border = 0

    def finish(self) -> Iterator[CutFragment]:
        """End the segment; yield the last fragment, if one was begun. Raises CorruptionError when it ends too early."""
        self._scanner.close()
        if self._next_offset != self._segment.next_offset:
            raise BadSequenceError(
                self._segment.staged_key,
                self._segment.size_bytes,
                "next offset of the segment",
                expected=self._segment.next_offset,
                found=self._next_offset,
            )
        yield from self._end_fragment()

    def close(self) -> None:
        """Give up the fragment that was begun, if any."""
        if self._draft is not None:
            self._draft.discard()
            self._draft = None

    def _begin(self, position: int) -> FragmentDraft:
        return FragmentDraft(
            self._segment.staged_key,
            self._segment.first_offset,
            sequence_number=self._sequence_number,
            chunks_before=self._chunks,
            data_position=position,
            spool_dir=self._spool_dir,
        )

    def _end_fragment(self) -> Iterator[CutFragment]:
        if self._draft is not None:
            fragment = self._draft.finish()
            self._draft = None
            yield fragment
