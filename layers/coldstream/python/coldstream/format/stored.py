"""Stored chunks: their bytes, out of an object or a part of it, before anything of them was looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coldstream.errors import BadSequenceError
from coldstream.format.chunk import Chunk, iter_chunks
from coldstream.format.native import NATIVE
from coldstream.units import ChunkId, Offset


@dataclass(frozen=True, slots=True)
class StoredChunks:
    """Whole chunks, not verified yet: those of the offsets `first_offset` up to `next_offset`.

    They lie at byte `position` of `source`, by which errors name them.
    """

    view: memoryview
    first_offset: Offset
    next_offset: Offset
    source: str
    position: int

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the chunks, each verified. Raises CorruptionError, also if they are not those that are named here."""
        chunks = iter_chunks(
            self.view,
            source=self.source,
            position=self.position,
            expected=ChunkId(self.first_offset),
            is_verified=self._is_verified(),
        )
        last: Chunk | None = None
        for last in chunks:
            yield last
        found = self.first_offset if last is None else last.header.next_offset
        # Chunks that are missing at the end break no CRC and no succession: only the next offset shows them.
        if found != self.next_offset:
            raise BadSequenceError(
                self.source, self.position, "next offset of a range", expected=self.next_offset, found=found
            )

    def _is_verified(self) -> bool:
        """Tell whether the native module found all chunks right: many times faster, and in one call without a lock.

        What it takes for wrong, Python verifies again, and names the fault.
        """
        # Anything but bytes would be copied first.
        if NATIVE is None or not isinstance(self.view.obj, bytes):
            return False
        verified_to: int | None = NATIVE.verified_to(self.view, self.first_offset)
        return verified_to == self.next_offset

    def chunk_at(self, place: int) -> Chunk:
        """Return the chunk that begins at a byte of the view, verified."""
        return next(iter_chunks(self.view[place:], source=self.source, position=self.position + place))
