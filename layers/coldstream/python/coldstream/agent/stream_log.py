"""What of one stream goes into the recovery log: committed chunks that are neither archived nor logged yet.

They are proven as slices are: nothing that the broker has not delivered, or that is not of the same log as what it
delivered, goes in.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.disk.unlogged import LoggedChunk, read_chunks, unlogged_slice
from coldstream.agent.proof.broker import ProofVerdict
from coldstream.agent.stream_progress import ArchivingProgress
from coldstream.ingest.slice import SegmentSlice
from coldstream.manifest.stream import StreamId
from coldstream.store.span_object import LoggedRun

ACCEPTED_S = 1800.0
"""So long it counts that the archive takes a stream: nothing is logged for good of one that it refuses."""


@dataclass(frozen=True, slots=True)
class ProvenChunks:
    """Committed chunks on this disk that are to be logged, and the last of them."""

    stream: StreamId
    slice: SegmentSlice
    last: LoggedChunk


class StreamLog:
    """The recovery log of one stream: `below_bytes` is what is too little for a slice; of 0 nothing is."""

    def __init__(self, progress: ArchivingProgress, archive: ArchiveClient, below_bytes: int) -> None:
        self._progress = progress
        self._archive = archive
        self._below_bytes = below_bytes
        self._logged: LoggedChunk | None = None
        self._is_accepted = False
        self._accepted_at = float("-inf")

    async def unlogged(self) -> ProvenChunks | None:
        """Return what is to be logged now, all of it committed; None if there is nothing.

        Cost: a chunk delivered by the broker, unless what is new is proven, and two GetItems each ACCEPTED_S. Raises
        what the broker does, what reading the manifest raises, and OSError.
        """
        progress, identity = self._progress, self._progress.identity
        # What is quiet has nothing that is not archived. Before the manifest was asked, nothing is known of that.
        if progress.is_quiet or not progress.has_begun or identity.stream is None:
            return None
        try:
            found = await progress.disk.on_log(unlogged_slice, progress.archived_to, self._logged, self._below_bytes)
        except FileNotFoundError:  # released meanwhile, as it is archived
            return None
        if found is None or not await self._is_taken(identity.stream):
            return None
        witness = found.last.chunk.header
        if not await identity.is_proven(witness):
            proof = await identity.prove(witness)
            if proof.verdict is not ProofVerdict.COMMITTED:
                return None
        return ProvenChunks(identity.stream, found.slice, found.last)

    async def read(self, chunks: ProvenChunks) -> LoggedRun | None:
        """Read the chunks; None if they were released meanwhile. Raises CorruptionError."""
        slice_ = chunks.slice
        try:
            data = await self._progress.disk.call(read_chunks, slice_)
        except FileNotFoundError:
            return None
        return LoggedRun(chunks.stream, slice_.first_offset, slice_.next_offset, data)

    def logged(self, chunks: ProvenChunks) -> None:
        """Take note that these chunks are in the log."""
        self._logged = chunks.last

    async def _is_taken(self, stream: StreamId) -> bool:
        now = time.monotonic()
        if now - self._accepted_at >= ACCEPTED_S:
            self._is_accepted = await self._archive.is_taken(stream)
            self._accepted_at = now
        return self._is_accepted
