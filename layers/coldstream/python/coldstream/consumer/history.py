"""The archive of one stream, read from the position to as far as it goes."""

from __future__ import annotations

from enum import Enum, auto

from coldstream.consumer.batch import ChunkBatch, Give, ReachedOffset
from coldstream.consumer.ports import ArchiveSource
from coldstream.consumer.position import ReadPosition
from coldstream.errors import GapError, StreamNotFoundError, UnavailableError
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.live.delivered import is_same
from coldstream.manifest.entry import Gap
from coldstream.manifest.spec import AtOffset, AtTimestamp, OffsetSpec
from coldstream.read.fetch import RangeBatch
from coldstream.resolve.attach import REMOVED
from coldstream.units import Offset


class ArchiveEnd(Enum):
    """How a reading of the archive ended, if neither at a gap nor with an error."""

    TAIL = auto()
    """Everything that is archived has been read."""

    ABSENT = auto()
    """Nothing is archived of the stream, or nothing that is proven to be of the incarnation being read."""

    EARLIER_AT_BROKER = auto()
    """The broker has chunks that come before the first archived one and after the start."""


class ArchiveHistory:
    """Reads the archive from the position on, moves the position, and gives what it read."""

    def __init__(self, archive: ArchiveSource, position: ReadPosition, give: Give) -> None:
        self._archive = archive
        self._position = position
        self._give = give

    async def read(self) -> ArchiveEnd | Gap | UnavailableError:
        """Read once, as far as the archive goes; return where it ended, or the error if the resolver is away.

        Raises IncarnationError, AccessDeniedError, CorruptionError.
        """
        return await self._read(self._position.attachment())

    async def _read(self, start: OffsetSpec) -> ArchiveEnd | Gap | UnavailableError:
        position = self._position
        try:
            async with self._archive.read(start, position.incarnation) as reading:
                is_first = True
                async for batch in reading.batches():
                    if is_first and (end := self._mismatch(batch, reading.floor)) is not None:
                        return end
                    is_first = False
                    # Only now: before the first chunk is compared, nothing proves that the incarnation is the one
                    # that is being read, and the position would be bound to it.
                    assert reading.stream is not None
                    position.incarnation = reading.stream.incarnation
                    await self._take(batch)
                tail, floor = reading.tail, reading.floor
        except StreamNotFoundError:
            return ArchiveEnd.ABSENT
        except GapError as err:
            if position.expected is not None and err.next_offset <= position.expected:
                # Only the witness is in the gap; what is expected lies after it. Attach there, if it is proven to be
                # the same incarnation.
                return ArchiveEnd.ABSENT if position.incarnation is None else await self._read_past_witness()
            first_offset = max(Offset(err.first_offset), position.expected or Offset(0), position.from_offset)
            return Gap(first_offset, Offset(err.next_offset), err.reason)
        except UnavailableError as err:
            if not err.retryable:
                raise
            return err
        return self._end(start, tail, floor)

    def _end(self, start: OffsetSpec, tail: Offset | None, floor: Offset | None) -> ArchiveEnd | Gap:
        """Fix the position at the tail of the archive, if no chunk has done so; return how reading ends there."""
        position = self._position
        if position.expected is None and tail is not None:
            # Nothing at or after the start is archived. Fix the position all the same: live reading begins there, even
            # if retention moves the broker's log meanwhile.
            if isinstance(start, AtOffset):
                position.move(start.offset if floor is None else self._start_above(start.offset, tail), is_border=False)
            else:
                position.move(tail)
        elif position.expected is not None and floor is not None and position.expected < floor:
            # All of the log was removed, so no chunk has shown the jump.
            return Gap(position.expected, floor, REMOVED)
        return ArchiveEnd.TAIL

    def _start_above(self, offset: Offset, tail: Offset) -> Offset:
        """Return where reading begins after a start in what was removed, with nothing left of the log before `tail`."""
        first = self._position.broker_first
        return tail if first is None else max(offset, min(tail, Offset(first.chunk_id)))

    async def _read_past_witness(self) -> ArchiveEnd | Gap | UnavailableError:
        assert self._position.expected is not None
        return await self._read(AtOffset(self._position.expected))

    def _mismatch(self, batch: RangeBatch, floor: Offset | None) -> ArchiveEnd | Gap | None:
        """Return how reading ends if its first chunk is not what follows the position; None if it is.

        A position below the `floor` has a gap before that chunk, as it has if the broker's retention is faster. Raises
        IncarnationError if the archive holds another chunk than it held before.
        """
        position = self._position
        header, is_erased = batch.chunks[0].header, batch.range.erased
        chunk_id = Offset(header.chunk_id)
        if position.expected is None:
            return self._earlier_at_broker(chunk_id)
        if position.witness is not None and position.incarnation is None:
            # All was read live so far. What is not proven to be of the same incarnation counts as not archived.
            return None if is_same(position.witness, header, is_erased=is_erased) else ArchiveEnd.ABSENT
        if position.witness is not None and header.type is ChunkType.USER:
            position.relation(header, is_erased=is_erased)
        if chunk_id <= position.expected:
            return None
        return Gap(position.expected, chunk_id, None if floor is None or position.expected >= floor else REMOVED)

    def _earlier_at_broker(self, chunk_id: Offset) -> ArchiveEnd | None:
        """Move to the broker's first chunk if it comes after the start and before the archive's first."""
        position = self._position
        first = position.broker_first
        # A start time says nothing of offsets: by the broker's first chunk alone, nobody knows whether it is late
        # enough, so that the archive's chunk is taken.
        if first is None or isinstance(position.start, AtTimestamp):
            return None
        if position.from_offset >= chunk_id or first.chunk_id >= chunk_id:
            return None
        is_border = position.from_offset <= first.chunk_id
        position.move(max(position.from_offset, Offset(first.chunk_id)), is_border=is_border)
        return ArchiveEnd.EARLIER_AT_BROKER

    async def _take(self, batch: RangeBatch) -> None:
        """Go through chunks that have no hole between them, and give those that were asked for."""
        position = self._position
        given: list[Chunk] = []
        for chunk in batch.chunks:
            header = chunk.header
            if position.expected is not None and header.next_offset <= position.expected:
                continue  # up to the witness, which reading attached at
            if header.type is ChunkType.USER:
                position.advance(header, is_erased=batch.range.erased)
            else:
                # The broker does not deliver tracking chunks, so they are no witness. The one before stays.
                position.expected = header.next_offset
                position.is_border = True
            if position.reaches_start_time(header) and header.type is ChunkType.USER:
                given.append(chunk)
        if given:
            await self._give(ChunkBatch(position.stream, tuple(given), batch.range.key, position.from_offset))
        if position.expected is not None and (not given or given[-1].header.next_offset < position.expected):
            await self._give(ReachedOffset(position.stream, position.expected))
