"""What the archive has of a stream, read on from a place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto

from coldstream.consumer.batch import ChunkBatch
from coldstream.consumer.ports import ArchiveSource
from coldstream.consumer.position import ReadPosition
from coldstream.errors import GapError, StreamNotFoundError, UnavailableError
from coldstream.format.chunk import Chunk, ChunkHeader, ChunkType
from coldstream.live.delivered import is_same
from coldstream.manifest.entry import Gap
from coldstream.manifest.spec import NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset


class ArchiveEnd(Enum):
    """How a reading of the archive ended, where not in a gap."""

    TAIL = auto()
    ABSENT = auto()
    """Nothing is archived of the stream, or nothing that is known to be of the life that is being read."""

    EARLIER_AT_BROKER = auto()
    """Where reading was to begin, the broker has what the archive has not."""


class ArchiveHistory:
    """Reads the archive from `place` on, which it moves, or from `start` while that is nowhere; gives to `give`.

    `life` is the incarnation that was read, once anything was: after that, no other is. `broker_first` is the first
    chunk that the broker was seen to have.
    """

    def __init__(
        self,
        archive: ArchiveSource,
        place: ReadPosition,
        start: OffsetSpec,
        give: Callable[[ChunkBatch], Awaitable[None]],
    ) -> None:
        self._archive = archive
        self._place = place
        self._give = give
        self.start = start
        self.life: Incarnation | None = None
        self.broker_first: ChunkHeader | None = None

    async def is_another_life(self, first: ChunkHeader, life: Incarnation | None = None) -> bool:
        """Tell whether the archive has another chunk where the broker's first is. Cost: one range of the archive."""
        try:
            async with self._archive.read(AtOffset(Offset(first.chunk_id)), life, chunk=True) as reading:
                async for batch in reading.batches():
                    ours = batch.chunks[0].header
                    return ours.chunk_id < first.next_offset and not is_same(ours, first)
        except (StreamNotFoundError, GapError):
            return False
        except UnavailableError as err:
            if not err.retryable:
                raise
        return False

    async def newest_life(self) -> Incarnation:
        """Return the incarnation that was archived last. Raises StreamNotFoundError, UnavailableError."""
        async with self._archive.read(NEXT, None) as reading:
            async for _ in reading.batches():
                pass
        assert reading.stream is not None
        return reading.stream.incarnation

    async def is_superseded(self) -> bool:
        """Tell whether the archive knows of a newer life than the one that was read."""
        if self.life is None:
            return False
        try:
            return await self.newest_life() != self.life
        except StreamNotFoundError:  # nothing of it is archived yet
            return True
        except UnavailableError as err:
            if not err.retryable:
                raise
            return False

    async def read(self, start: OffsetSpec | None = None) -> ArchiveEnd | Gap | UnavailableError:
        """Read the archive once from the place on, as far as it goes."""
        place = self._place
        start = start or place.attachment() or self.start
        try:
            async with self._archive.read(start, self.life) as reading:
                is_first = True
                async for batch in reading.batches():
                    if is_first and (refusal := self._refusal(batch.chunks[0].header)) is not None:
                        return refusal
                    is_first = False
                    assert reading.stream is not None
                    await self._take(batch.chunks, batch.range.key, reading.stream.incarnation)
                tail = reading.tail
        except StreamNotFoundError:
            return ArchiveEnd.ABSENT
        except GapError as err:
            if place.expected is not None and err.next_offset <= place.expected:
                # It is the witness that is missing there.
                return ArchiveEnd.ABSENT if self.life is None else await self.read(AtOffset(place.expected))
            first_offset = max(Offset(err.first_offset), place.expected or Offset(0), place.from_offset)
            return Gap(first_offset, Offset(err.next_offset), err.reason)
        except UnavailableError as err:
            if not err.retryable:
                raise
            return err
        if place.expected is None and tail is not None:
            if isinstance(start, AtOffset):
                place.move(start.offset, is_border=False)
            else:
                place.move(tail)
        return ArchiveEnd.TAIL

    def _refusal(self, header: ChunkHeader) -> ArchiveEnd | Gap | None:
        """Say why a reading that begins with this chunk is not to be taken; None if it is.

        Raises IncarnationError where the archive has something else than it had.
        """
        place = self._place
        chunk_id = Offset(header.chunk_id)
        if place.expected is None:
            wanted = place.from_offset
            is_timed = isinstance(self.start, AtTimestamp)
            at_broker = self.broker_first
            if not is_timed and at_broker is not None and wanted < chunk_id and at_broker.chunk_id < chunk_id:
                place.move(max(wanted, Offset(at_broker.chunk_id)), is_border=wanted <= at_broker.chunk_id)
                return ArchiveEnd.EARLIER_AT_BROKER
            return None
        if place.witness is not None:
            if self.life is None:
                # Read live so far. What cannot be shown to be the same life is as good as not archived.
                return None if is_same(place.witness, header) else ArchiveEnd.ABSENT
            if header.type is ChunkType.USER:
                place.relation(header)
        return Gap(place.expected, chunk_id) if chunk_id > place.expected else None

    async def _take(self, chunks: list[Chunk], source: str, life: Incarnation) -> None:
        """Go through chunks that have no hole between them, and give those that are wanted."""
        place = self._place
        wanted: list[Chunk] = []
        for chunk in chunks:
            header = chunk.header
            if place.expected is not None and header.next_offset <= place.expected:
                continue
            if header.type is not ChunkType.USER:
                place.expected = header.next_offset
                place.is_border = True
            else:
                place.advance(header)
            if place.is_wanted(header) and header.type is ChunkType.USER:
                wanted.append(chunk)
        self.life = life
        if wanted:
            await self._give(ChunkBatch(place.stream, tuple(wanted), source, place.from_offset))
