"""Follow one stream without end: out of the archive up to its tail, then live, and back where retention was faster.

Live, a chunk whose id is past the offset that is expected leaves offsets out. Either they are tracking chunks, which
consumers are not sent, or retention has deleted what a slow reader had not got to, about which brokers say nothing. The
broker's first chunk, of any type, asked for after that, tells: where it begins at or before the offset expected,
nothing from there on had been deleted, so nothing was left out of what had been delivered by then. Otherwise the
archive has it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, NoReturn, TypeVar

from coldstream.consumer.batch import ChunkBatch
from coldstream.consumer.history import ArchiveEnd, ArchiveHistory
from coldstream.consumer.ports import ArchiveSource, BrokerSource, ChunkFeed
from coldstream.consumer.position import ReadPosition, Relation
from coldstream.consumer.retrylog import RetryLog
from coldstream.errors import GapError, IncarnationError, StreamNotFoundError, UnavailableError
from coldstream.format.chunk import ChunkHeader
from coldstream.manifest.entry import Gap
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.units import Offset

log = logging.getLogger(__name__)

T = TypeVar("T")

GAP_WAIT_S = 30.0
"""For a gap that nobody has explained: segments that are announced together may be archived in any order."""

ATTACH_TIMEOUT_S = 10.0
"""For the chunk that was read last, which a broker that has it sends at once."""


class StreamFollower:
    """Gives a stream's chunks to `give`, which takes them when there is room, from `start` on: each once, in order.

    With `reference`, an offset that is stored under it at the broker comes before `start`: that of the last message
    done. `archive_wait_s` bounds how long offsets may be neither here nor there, and how long the resolver may be away;
    the broker may be for ever.
    """

    def __init__(
        self,
        stream: str,
        start: OffsetSpec,
        *,
        broker: BrokerSource,
        archive: ArchiveSource,
        give: Callable[[ChunkBatch], Awaitable[None]],
        reference: str | None = None,
        on_gap: Literal["raise", "skip"] = "raise",
        archive_wait_s: float = 300.0,
    ) -> None:
        self._stream = stream
        self._broker = broker
        self._give = give
        self._reference = reference
        self._on_gap = on_gap
        self._archive_wait_s = archive_wait_s
        self._place = ReadPosition(stream)
        self._history = ArchiveHistory(archive, self._place, start, give)
        self._wants_all_there_will_be = False
        self._behind_since: float | None = None
        self._outage = RetryLog(f"stream {stream!r} at the broker")

    async def run(self) -> NoReturn:
        """Follow until cancelled.

        Raises GapError, IncarnationError, StreamNotFoundError, AccessDeniedError, CorruptionError; UnavailableError
        after `archive_wait_s`.
        """
        await self._begin()
        while True:
            await self._live()
            await self._catch_up(must_move=True)

    async def _begin(self) -> None:
        """Find out where to start; after that, live reading finds out whether it is at the broker."""
        is_resumed = await self._resume()
        match self._history.start:
            case AtEnd("last" | "next"):
                await self._begin_at_end()
                return
            case AtOffset(offset):
                self._place.from_offset = offset
                if is_resumed:
                    self._place.move(offset, is_border=False)
            case AtTimestamp(timestamp):
                self._place.not_before = timestamp
            case _:
                pass
        first = await self._first_at_broker()
        if first is None or not await self._history.is_another_life(first):
            self._history.broker_first = first
            await self._catch_up(must_move=False)
        elif not _holds_start(first, self._history.start):
            raise IncarnationError(
                f"stream {self._stream!r} was deleted and declared again, and of what is there now the broker has only"
                f" offsets from {first.chunk_id} on, the archive nothing yet"
            )
        elif isinstance(self._history.start, AtOffset):
            self._place.move(self._history.start.offset, is_border=False)

    async def _begin_again(self) -> None:
        """Find a start after an outage before the first chunk: what the broker had may be in the archive by now."""
        if self._wants_all_there_will_be:
            self._place.move(Offset(0))
        else:
            await self._begin()

    async def _resume(self) -> bool:
        reference = self._reference
        if reference is None:
            return False
        try:
            stored = await self._ask(lambda: self._broker.query_offset(self._stream, reference))
        except StreamNotFoundError:  # it may be archived all the same
            return False
        if stored is None:
            return False
        self._history.start = AtOffset(Offset(stored + 1))
        return True

    async def _begin_at_end(self) -> None:
        """Fix the place at once, so that what comes while the connection is lost is not missed."""
        last = await self._ask(lambda: self._broker.probe(self._stream, LAST))
        if last is not None:
            if self._history.start == NEXT:
                self._place.advance(last.header)
            else:
                self._place.move(Offset(last.header.chunk_id))
            return
        if self._history.start == LAST:
            await self._catch_up(must_move=False)
        if self._place.expected is None:
            self._history.start = FIRST
            self._wants_all_there_will_be = True

    async def _first_at_broker(self) -> ChunkHeader | None:
        """Ask once: the archive can be read while the broker is away, and is compared later anyway."""
        try:
            first = await self._broker.probe(self._stream, FIRST)
        except (UnavailableError, StreamNotFoundError) as err:
            if not err.retryable and isinstance(err, UnavailableError):
                raise
            return None
        return None if first is None else first.header

    async def _live(self) -> None:
        """Read live until the archive is needed, also over connections that break."""
        while True:
            attachment = self._place.attachment() or self._history.start
            try:
                async with self._broker.subscribe(self._stream, attachment) as chunks:
                    if self._place.witness is None:
                        self._outage.over()
                    await self._follow(chunks)
                    return
            except StreamNotFoundError:
                before = self._place.expected
                await self._catch_up(must_move=False)
                if self._place.expected == before:
                    raise
            except UnavailableError as err:
                await self._wait_for_broker(err)
                if self._place.expected is None:
                    await self._begin_again()

    async def _follow(self, chunks: ChunkFeed) -> None:
        """Take what is delivered for as long as it goes on from the place."""
        place = self._place
        arriving = aiter(chunks)
        proven_to = Offset(0)
        is_continued = place.witness is None
        while True:
            try:
                async with asyncio.timeout(None if is_continued else ATTACH_TIMEOUT_S):
                    chunk = await anext(arriving)
            except TimeoutError:
                raise await self._behind() from None
            header = chunk.header
            relation = place.relation(header)
            if relation is Relation.PAST and header.next_offset > proven_to:
                received_to = chunks.next_offset
                if not await self._reaches_back(place.expected):
                    return
                proven_to = received_to
            if not is_continued:
                if not await self._continues(relation, header):
                    return
                is_continued = True
            if relation in {Relation.PAST, Relation.NEXT}:
                place.advance(header)
                if place.is_wanted(header):
                    source = f"stream {self._stream!r} as delivered"
                    await self._give(ChunkBatch(self._stream, (chunk,), source, place.from_offset))

    async def _continues(self, relation: Relation, header: ChunkHeader) -> bool:
        """Tell whether the first chunk that was delivered shows that what follows is of the life that was read.

        That is the witness; where retention has deleted it, a chunk that meets the place. Raises IncarnationError, and
        UnavailableError where the broker has less than was read.
        """
        if relation is not Relation.WITNESS:
            self._place.check_order(header)
            if relation is Relation.BEFORE:
                raise await self._behind()
            if self._behind_since is not None:
                return False  # the broker had less than was read, and now it has more, but not that
            await self._check_life()
        self._behind_since = None
        self._outage.over()
        return True

    async def _behind(self) -> UnavailableError:
        """Return the error of a broker whose log ends before what was read.

        That may be a replica which is not up to date. Raises IncarnationError where its first chunk shows that it is
        another life of the stream, or after `archive_wait_s`.
        """
        now = asyncio.get_running_loop().time()
        self._behind_since = self._behind_since or now
        first = await self._broker.probe(self._stream, FIRST)
        if first is not None:
            self._place.check_order(first.header)
        if now - self._behind_since >= self._archive_wait_s or (
            self._history.life is not None
            and first is not None
            and await self._history.is_another_life(first.header, self._history.life)
        ):
            raise IncarnationError(f"{self._short_log()}: it was deleted and declared again, or has lost data")
        return UnavailableError(self._short_log())

    async def _reaches_back(self, offset: Offset | None) -> bool:
        """Tell whether the broker still has everything from an offset on."""
        first_offset = await self._broker.first_offset(self._stream)
        if first_offset is None:
            raise UnavailableError(f"stream {self._stream!r}: the broker delivers nothing of what it has")
        return offset is None or first_offset <= offset

    async def _check_life(self) -> None:
        """Check a chunk that meets the place exactly, where the witness was not delivered.

        Retention has to have deleted the witness; the archive may know of no newer life. Raises IncarnationError.
        """
        witness = self._place.witness
        assert witness is not None
        problem = f"stream {self._stream!r} was deleted and declared again after offset {witness.chunk_id} was read"
        if await self._reaches_back(Offset(witness.chunk_id)):
            raise IncarnationError(f"{problem}: another chunk is there")
        life = self._history.life
        if life is not None and (newest := await self._history.newest_life()) != life:
            raise IncarnationError(f"{problem}, of {life}: the archive has {newest}")

    async def _catch_up(self, *, must_move: bool) -> None:
        """Read the archive to its tail; with `must_move`, wait until it reaches past the place."""
        place = self._place
        clock = asyncio.get_running_loop().time
        outage, since = RetryLog(f"stream {self._stream!r} in the archive"), clock()
        start = before = place.expected
        while True:
            ended = await self._history.read()
            if place.expected != before:
                before, since = place.expected, clock()
                outage.over()
            waited_s = clock() - since
            if isinstance(ended, Gap):
                if await self._is_at_broker(ended):
                    return
                if ended.reason is not None or waited_s >= min(GAP_WAIT_S, self._archive_wait_s):
                    await self._pass(ended)
                    continue
                problem = self._nowhere()
            elif isinstance(ended, UnavailableError):
                problem = ended
            elif place.expected != start or not must_move or ended is ArchiveEnd.EARLIER_AT_BROKER:
                return
            elif await self._history.is_superseded():
                raise IncarnationError(
                    f"{self._nowhere()}; the archive knows of a newer life of the stream: it was deleted and declared"
                    " again, or nothing shows that it was not"
                )
            else:
                problem = self._nowhere()
            if waited_s >= self._archive_wait_s:
                raise problem
            await outage.pause(problem)

    async def _pass(self, gap: Gap) -> None:
        if self._on_gap != "skip":
            raise GapError(f"stream {self._stream!r}", gap.first_offset, gap.next_offset, gap.reason)
        log.warning("stream %r: passing over offsets %d to %d", self._stream, gap.first_offset, gap.next_offset - 1)
        self._place.move(gap.next_offset)
        await self._give(ChunkBatch(self._stream, gap=gap))

    async def _is_at_broker(self, gap: Gap) -> bool:
        """Tell whether the broker has what the archive has not; if so, go there."""
        try:
            if not await self._ask(lambda: self._reaches_back(gap.first_offset)):
                return False
        except StreamNotFoundError:
            return False
        if self._place.expected is None:
            self._place.move(gap.first_offset, is_border=False)
        return True

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        """Ask the broker until it answers."""
        while True:
            try:
                answer = await call()
            except UnavailableError as err:
                await self._wait_for_broker(err)
            else:
                self._outage.over()
                return answer

    async def _wait_for_broker(self, err: UnavailableError) -> None:
        if not err.retryable:
            raise err
        await self._broker.renew()
        await self._outage.pause(err)

    def _short_log(self) -> str:
        return f"stream {self._stream!r}: the broker did not have all that was read, up to {self._place.expected}"

    def _nowhere(self) -> UnavailableError:
        return UnavailableError(
            f"stream {self._stream!r}: offset {self._place.expected} and what follows is not at the broker any more,"
            " and not archived yet"
        )


def _holds_start(first: ChunkHeader, start: OffsetSpec) -> bool:
    """Tell whether a log whose first chunk is this has everything from a start on."""
    match start:
        case AtOffset(offset):
            return first.chunk_id <= offset
        case AtTimestamp(timestamp):
            return first.chunk_id == 0 or first.timestamp < timestamp
        case _:
            return first.chunk_id == 0
