"""Cut a segment's verified chunks into fragments.

A cut falls after the chunk that takes a fragment's data past the target size, at a time border (`archive.borders`), at
the end of the segment, and before a chunk that the manifest holds or that was removed from the archive. So cuts depend
on the data alone, not on who makes them or when. Counting starts over at a time border, as if the segment had rolled
there: chunks between two time borders are cut alike, whichever part of the segment was staged with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coldstream.archive.borders import Side, TimeBorders
from coldstream.archive.coverage import Coverage
from coldstream.archive.draft import CutFragment, FragmentDraft
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.spool_files import SpoolFiles
from coldstream.errors import BadSequenceError
from coldstream.format.chunk import ChunkHeader
from coldstream.format.scanner import ChunkBegin, ChunkBytes, ScanEvent, SegmentScanner, WholeChunk
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.units import Offset


@dataclass(slots=True)
class _Span:
    """Counts since the segment's start, or since a time border. The first chunk is at byte `position`."""

    first_offset: Offset
    position: int
    sequence_number: int = 0
    chunks: int = 0
    bytes_since_cut: int = 0


class SegmentCutter:
    """Feeds a scanner, and gives each chunk's bytes to the fragment that it belongs to.

    All chunks of the segment are counted, including those that the manifest holds. So after an interrupted upload, the
    next one cuts the rest as the first would have. Chunks that may lie on either side of a time border are held in
    memory until a later chunk decides, HELD_BYTES of them at most.
    """

    def __init__(
        self,
        segment: SegmentRolled,
        coverage: Coverage,
        fragment_bytes: int,
        spool_dir: Path | None,
        zstd_level: int | None = None,
    ) -> None:
        self._segment = segment
        self._coverage = coverage
        self._fragment_bytes = fragment_bytes
        self._spool_dir = spool_dir
        self._files = SpoolFiles(spool_dir)
        self._zstd_level = zstd_level
        self._scanner = SegmentScanner(segment.staged_key, first_offset=segment.first_offset)
        self._borders = TimeBorders(segment.cut_every_ms, segment.quiet)
        self._holds = False  # whether the chunk being scanned is held
        self._held: list[ScanEvent | WholeChunk] = []
        # From here on nothing is covered: a question that need not be asked of each chunk then.
        self._covered_to = max((coverage.floor, *(entry.next_offset for entry in coverage.entries)))
        self._span: _Span | None = None  # None before a first chunk
        self._draft: FragmentDraft | None = None
        self._next_offset: int = segment.first_offset

    def feed(self, block: bytes) -> Iterator[CutFragment]:
        """Take the next bytes of the segment; yield the fragments that they complete.

        Raises CorruptionError.
        """
        for event in self._scanner.feed_whole(block):
            if isinstance(event, WholeChunk | ChunkBegin):
                self._next_offset = event.header.next_offset
                if self._next_offset > self._segment.next_offset:
                    # No agent announced this chunk, so nobody has proven that it is committed.
                    raise self._bad_end(event.position)
                side = self._borders.take(event.header)
                self._holds = side is Side.HOLD
                # Held chunks go before this one, and after the border if there is one: they follow the last user chunk.
                if side is Side.PART or (self._held and not self._holds):
                    yield from self._release(is_border=side is Side.PART)
            if self._holds:
                self._held.append(_copy(event))
            elif fragment := self._take(event):
                yield fragment

    def finish(self) -> Iterator[CutFragment]:
        """End the segment; yield its last fragments. Raises CorruptionError if it ends too early."""
        self._scanner.close()
        if self._next_offset != self._segment.next_offset:
            raise self._bad_end(self._segment.size_bytes)
        yield from self._release(is_border=True)
        if fragment := self._end_fragment():
            yield fragment
        self._files.close()

    def close(self) -> None:
        """Discard the unfinished fragment, if any, and the files that the others have given back."""
        if self._draft is not None:
            self._draft.discard()
            self._draft = None
        self._files.close()

    def _release(self, *, is_border: bool) -> Iterator[CutFragment]:
        """End the fragment if there is a border; then take the chunks that were held."""
        if is_border:
            self._span = None
            if fragment := self._end_fragment():
                yield fragment
        held, self._held = self._held, []
        for event in held:
            if fragment := self._take(event):
                yield fragment

    def _take(self, event: ScanEvent | WholeChunk) -> CutFragment | None:
        """Give an event to the fragment that it belongs to; return the fragment that it completes."""
        if isinstance(event, WholeChunk):
            # A chunk that is covered ends a fragment as it begins, and none as it ends.
            fragment = self._begin_chunk(event.header, event.position)
            if self._draft is not None:
                self._draft.write(event.view)
            return self._end_chunk(event.header, event.crc32) or fragment
        if isinstance(event, ChunkBytes):
            if self._draft is not None:
                self._draft.write(event.view)
            return None
        if isinstance(event, ChunkBegin):
            return self._begin_chunk(event.header, event.position)
        return self._end_chunk(event.header, event.crc32)

    def _begin_chunk(self, header: ChunkHeader, position: int) -> CutFragment | None:
        if self._span is None:
            self._span = _Span(Offset(header.chunk_id), position)
        # The manifest has, or had, this chunk: a fragment that went on after it would have a hole.
        if header.chunk_id < self._covered_to and self._coverage.covers(header, source=self._segment.staged_key):
            return self._end_fragment()
        if self._draft is None:
            self._draft = self._begin(self._span, position)
        return None

    def _end_chunk(self, header: ChunkHeader, chunk_crc32: int) -> CutFragment | None:
        span = self._span
        assert span is not None
        if self._draft is not None:
            self._draft.add(header, chunk_crc32)
        span.chunks += 1
        span.bytes_since_cut += header.total_bytes
        if span.bytes_since_cut <= self._fragment_bytes:
            return None
        span.sequence_number += 1
        span.bytes_since_cut = 0
        return self._end_fragment()

    def _bad_end(self, position: int) -> BadSequenceError:
        return BadSequenceError(
            self._segment.staged_key,
            position,
            "next offset of the segment",
            expected=self._segment.next_offset,
            found=self._next_offset,
        )

    def _begin(self, span: _Span, position: int) -> FragmentDraft:
        return FragmentDraft(
            self._segment.staged_key,
            span.first_offset,
            sequence_number=span.sequence_number,
            chunks_before=span.chunks,
            data_position=SEGMENT_HEADER_BYTES + position - span.position,
            spool_dir=self._spool_dir,
            zstd_level=self._zstd_level,
            files=self._files,
        )

    def _end_fragment(self) -> CutFragment | None:
        if self._draft is None:
            return None
        fragment = self._draft.finish()
        self._draft = None
        return fragment


def _copy(event: ScanEvent | WholeChunk) -> ScanEvent | WholeChunk:
    """Copy an event's bytes: a view would keep a much larger block in memory."""
    if isinstance(event, ChunkBytes | WholeChunk):
        return event._replace(view=memoryview(bytes(event.view)))
    return event
