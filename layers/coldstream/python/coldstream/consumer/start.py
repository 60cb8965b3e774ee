"""Find the position at which reading starts."""

from __future__ import annotations

from coldstream.consumer.brokerlog import BrokerLog
from coldstream.consumer.catchup import CatchUp
from coldstream.consumer.incarnations import has_other_chunk
from coldstream.consumer.ports import ArchiveSource
from coldstream.consumer.position import ReadPosition
from coldstream.errors import IncarnationError, StreamNotFoundError, UnavailableError
from coldstream.format.chunk import ChunkHeader
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.units import Offset


class StartFinder:
    """Sets the position from a start spec, or from the offset stored under `reference`.

    It reads the archive on the way, as the archive may be what holds the start. If it leaves `expected` None, live
    reading attaches by the spec and finds out whether the start is at the broker.
    """

    def __init__(
        self,
        position: ReadPosition,
        broker: BrokerLog,
        archive: ArchiveSource,
        catch_up: CatchUp,
        *,
        reference: str | None,
    ) -> None:
        self._position = position
        self._broker = broker
        self._archive = archive
        self._catch_up = catch_up
        self._reference = reference
        self._stream_was_empty = False

    async def find(self) -> None:
        """Find the start, and read what the archive has from there on."""
        position = self._position
        is_resumed = await self._resume()
        match position.start:
            case AtEnd("last" | "next"):
                await self._find_end()
                return
            case AtOffset(offset):
                position.from_offset = offset
                if is_resumed:
                    position.move(offset, is_border=False)
            case AtTimestamp(timestamp):
                position.not_before = timestamp
            case _:
                pass
        first = await self._first_at_broker()
        if first is None or not await has_other_chunk(self._archive, first):
            position.broker_first = first
            await self._catch_up.run(must_move=False)
            if position.expected is None and position.from_offset > 0:
                # Nothing is archived yet. Attached by the spec, live reading would take the broker's first chunk,
                # however far behind the offset that is, and what is archived of the rest later would be passed by.
                position.move(position.from_offset, is_border=False)
        # From here on the broker has a newer incarnation than the archive, whose chunks must not be mixed with it.
        elif not _holds_start(first, position.start):
            raise IncarnationError(
                f"stream {position.stream!r} was deleted and declared again; of its new incarnation the broker has"
                f" only offsets from {first.chunk_id} on, and the archive has nothing yet"
            )
        elif isinstance(position.start, AtOffset):
            position.move(position.start.offset, is_border=False)

    async def find_again(self) -> None:
        """Find the start after an outage before the first chunk: the archive may have by now what the broker had."""
        if self._stream_was_empty:
            # "The end" was fixed when the stream was empty, so every message since then belongs to it.
            self._position.move(Offset(0))
        else:
            await self.find()

    async def fix_time(self) -> None:
        """Fix a start time that the archive does not reach, by two questions to the broker.

        Live reading would find the start as well, but only by its first chunk, which may not come for days.
        """
        position = self._position
        if position.expected is not None or not isinstance(position.start, AtTimestamp):
            return
        # The last one first: what is published after it may be late enough, and the second question finds that.
        last = await self._broker.ask(lambda: self._broker.probe(LAST))
        found = await self._broker.ask(lambda: self._broker.probe(position.start))
        if found is not None:
            position.move(Offset(found.chunk_id))
        else:
            position.move(Offset(0) if last is None else last.next_offset)

    async def _resume(self) -> bool:
        """Start after the stored offset, if there is one."""
        reference = self._reference
        if reference is None:
            return False
        try:
            stored = await self._broker.ask(lambda: self._broker.stored_offset(reference))
        except StreamNotFoundError:  # it may be archived all the same
            return False
        if stored is None:
            return False
        self._position.start = AtOffset(Offset(stored + 1))
        return True

    async def _find_end(self) -> None:
        """Fix the position at the end now: otherwise what is published while the connection is lost would be missed."""
        position = self._position
        last = await self._broker.ask(lambda: self._broker.probe(LAST))
        if last is not None:
            if position.start == NEXT:
                # It counts as read: as the witness it proves to live reading that the stream is still the same.
                position.advance(last)
            else:
                position.move(Offset(last.chunk_id))
            return
        if position.start == LAST:
            await self._catch_up.run(must_move=False)
        if position.expected is None:
            # The end of an empty stream is its beginning. Attaching at `next` would miss what is published until then.
            position.start = FIRST
            self._stream_was_empty = True

    async def _first_at_broker(self) -> ChunkHeader | None:
        """Return the broker's first chunk, or None if it cannot be asked now.

        One attempt: the archive can be read while the broker is away, and live reading compares the logs anyway.
        """
        try:
            return await self._broker.probe(FIRST)
        except (UnavailableError, StreamNotFoundError) as err:
            if not err.retryable and isinstance(err, UnavailableError):
                raise
            return None


def _holds_start(first: ChunkHeader, start: OffsetSpec) -> bool:
    """Tell whether a log that begins with this chunk has everything from a start on."""
    match start:
        case AtOffset(offset):
            return first.chunk_id <= offset
        case AtTimestamp(timestamp):
            return first.chunk_id == 0 or first.timestamp < timestamp
        case _:
            return first.chunk_id == 0
