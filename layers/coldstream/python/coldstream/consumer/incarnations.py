"""What the archive knows of a stream's incarnations."""

from __future__ import annotations

from coldstream.consumer.ports import ArchiveSource
from coldstream.errors import GapError, StreamNotFoundError, UnavailableError
from coldstream.format.chunk import ChunkHeader
from coldstream.live.delivered import is_same
from coldstream.manifest.spec import NEXT, AtOffset
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset


async def newest_incarnation(archive: ArchiveSource) -> Incarnation:
    """Return the incarnation that was archived last. Raises StreamNotFoundError, UnavailableError."""
    async with archive.read(NEXT, None) as reading:
        # Only iterating asks the resolver, and `stream` is None before. From NEXT on there is hardly anything to read.
        async for _ in reading.batches():
            pass
    assert reading.stream is not None
    return reading.stream.incarnation


async def has_newer_incarnation(archive: ArchiveSource, incarnation: Incarnation | None) -> bool:
    """Tell whether the archive knows of an incarnation after this one; no, if it cannot be asked now."""
    if incarnation is None:
        return False
    try:
        return await newest_incarnation(archive) != incarnation
    except StreamNotFoundError:  # it has been declared, and nothing of it is archived yet
        return True
    except UnavailableError as err:
        if not err.retryable:
            raise
        return False


async def has_other_chunk(archive: ArchiveSource, header: ChunkHeader, incarnation: Incarnation | None = None) -> bool:
    """Tell whether the archive has another chunk than this one at its offsets, in `incarnation` or the newest.

    No, if the archive has none there or cannot be asked now: only a chunk that differs proves something. Cost: one
    range of the archive.
    """
    try:
        async with archive.read(AtOffset(Offset(header.chunk_id)), incarnation, chunk=True) as reading:
            async for batch in reading.batches():
                archived = batch.chunks[0].header
                return archived.chunk_id < header.next_offset and not is_same(
                    archived, header, is_erased=batch.range.erased
                )
    except (StreamNotFoundError, GapError):
        return False
    except UnavailableError as err:
        if not err.retryable:
            raise
    return False
