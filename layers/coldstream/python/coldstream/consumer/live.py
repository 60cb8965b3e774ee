"""Read live at the broker, and notice when its log does not continue what was read.

A chunk that begins after the expected offset leaves offsets out. Either they are tracking chunks, which consumers are
not sent, or retention has deleted what a slow reader had not read, and brokers do not say which. So the broker is asked
for its first chunk, of any type. If that lies at or before the expected offset, nothing after that offset had been
deleted when the question was asked, so nothing was left out of all that had arrived by then. Otherwise the archive has
what is missing.
"""

from __future__ import annotations

import asyncio

from coldstream.consumer.batch import ChunkBatch, Give, ReachedOffset
from coldstream.consumer.brokerlog import BrokerLog
from coldstream.consumer.incarnations import has_other_chunk, newest_incarnation
from coldstream.consumer.ports import ArchiveSource, ChunkFeed
from coldstream.consumer.position import ReadPosition, Relation
from coldstream.errors import IncarnationError, UnavailableError
from coldstream.format.chunk import ChunkHeader
from coldstream.manifest.spec import FIRST
from coldstream.units import Offset

ATTACH_TIMEOUT_S = 10.0
"""How long the broker may take to send the witness. If it has it, it sends it at once."""


class LiveReader:
    """Reads the broker's log from the position on, moves the position, and gives what it read."""

    def __init__(
        self, position: ReadPosition, broker: BrokerLog, archive: ArchiveSource, give: Give, *, archive_wait_s: float
    ) -> None:
        self._position = position
        self._broker = broker
        self._archive = archive
        self._give = give
        self._archive_wait_s = archive_wait_s
        self._short_since: float | None = None  # since when the broker's log ends before what was read

    async def read(self) -> None:
        """Read until the broker no longer has what is expected, which the archive has then.

        Raises UnavailableError if the connection breaks, StreamNotFoundError, AccessDeniedError, IncarnationError.
        """
        async with self._broker.subscribe(self._position.attachment()) as chunks:
            if self._position.witness is None:
                # With a witness, the broker is of use only once it has sent it: `_check_first` says so.
                self._broker.recovered()
            await self._follow(chunks)

    async def _follow(self, chunks: ChunkFeed) -> None:
        """Take what is delivered for as long as it continues at the position."""
        position = self._position
        arriving = aiter(chunks)
        proven_to = Offset(0)
        is_continued = position.witness is None
        while True:
            try:
                # The witness is in the log, so it comes soon or never. What follows it may not be published for days.
                async with asyncio.timeout(None if is_continued else ATTACH_TIMEOUT_S):
                    chunk = await anext(arriving)
            except TimeoutError:
                raise await self._short_log_error() from None
            header = chunk.header
            relation = position.relation(header)
            if relation is Relation.PAST and header.next_offset > proven_to:
                assert position.expected is not None  # or nothing could be past it
                # Read before the question is asked: the answer proves nothing of chunks that arrive meanwhile, since
                # retention may have deleted some in front of them after the broker answered.
                received_to = chunks.next_offset
                if not await self._broker.reaches_back_to(position.expected):
                    return
                if chunks.is_over:
                    # Looked at after the answer, which another node may have given: that one may still have what the
                    # node that delivered the chunk has deleted.
                    raise UnavailableError(f"stream {position.stream!r}: the connection is lost")
                proven_to = received_to
            if not is_continued:
                if not await self._check_first(relation, header, chunks):
                    return
                is_continued = True
            if relation in {Relation.PAST, Relation.NEXT}:
                # Before giving: `give` may wait long, and a cancellation there ends the consumer with its position.
                position.advance(header)
                if position.reaches_start_time(header):
                    source = f"stream {position.stream!r} as delivered"
                    await self._give(ChunkBatch(position.stream, (chunk,), source, position.from_offset))
                else:
                    await self._give(ReachedOffset(position.stream, header.next_offset))

    async def _check_first(self, relation: Relation, header: ChunkHeader, chunks: ChunkFeed) -> bool:
        """Tell whether the first delivered chunk proves that the log continues what was read.

        The witness does, and if retention has deleted it, a chunk that begins where it ended. False sends reading back
        to the archive. Raises IncarnationError, and UnavailableError if the broker has less than was read.
        """
        if relation is not Relation.WITNESS:
            self._position.check_order(header)
            if relation is Relation.BEFORE:
                raise await self._short_log_error()
            if self._short_since is not None:
                # The log was too short and now is long enough, but without the witness: it may have been rewritten.
                # The archive decides.
                return False
            await self._check_incarnation(chunks)
        self._short_since = None
        self._broker.recovered()
        return True

    async def _short_log_error(self) -> UnavailableError:
        """Return the error for a broker whose log ends before what was read, as a replica's may that is not up to date.

        Raises IncarnationError if its first chunk is of another incarnation, or after `archive_wait_s`.
        """
        position = self._position
        now = asyncio.get_running_loop().time()
        self._short_since = self._short_since or now
        problem = f"stream {position.stream!r}: the broker does not have all that was read, up to {position.expected}"
        first = await self._broker.probe(FIRST)
        if first is not None:
            position.check_order(first)
        is_over = now - self._short_since >= self._archive_wait_s
        if is_over or (
            position.incarnation is not None
            and first is not None
            and await has_other_chunk(self._archive, first, position.incarnation)
        ):
            raise IncarnationError(f"{problem}: it was deleted and declared again, or has lost data")
        return UnavailableError(problem)

    async def _check_incarnation(self, chunks: ChunkFeed) -> None:
        """Check a log that continues at the position, but was delivered without the witness.

        That is the same log only if retention has deleted the witness, and if the archive knows of no newer
        incarnation. Raises IncarnationError, and UnavailableError if the connection was lost meanwhile.
        """
        position = self._position
        witness = position.witness
        assert witness is not None
        problem = f"stream {position.stream!r} was deleted and declared again after offset {witness.chunk_id} was read"
        if await self._broker.reaches_back_to(Offset(witness.chunk_id)):
            if chunks.is_over:
                # Looked at after the answer, as above: another node may have given it, which still has the witness.
                raise UnavailableError(f"stream {position.stream!r}: the connection is lost")
            raise IncarnationError(f"{problem}: the broker has another chunk there")
        incarnation = position.incarnation
        if incarnation is not None and (newest := await newest_incarnation(self._archive)) != incarnation:
            raise IncarnationError(f"{problem} from incarnation {incarnation}: the archive has {newest}")
