"""Follow a stream in the archive alone: a partition that the broker no longer has, or that it never had as a stream."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from typing import Literal

from coldstream.consumer.batch import Give, ReachedOffset
from coldstream.consumer.brokerlog import BrokerLog
from coldstream.consumer.catchup import ARCHIVE_WAIT_S, CatchUp
from coldstream.consumer.ports import ArchiveSource, ChunkFeed
from coldstream.consumer.position import ReadPosition
from coldstream.errors import StreamNotFoundError, UnavailableError
from coldstream.format.chunk import Chunk
from coldstream.manifest.spec import FIRST, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import Incarnation
from coldstream.retry import Backoff
from coldstream.units import Offset

log = logging.getLogger(__name__)

FIRST_LOOK_S = 0.5
LOOK_EVERY_S = 5.0
"""The pauses at the tail: from the first to the second, as long as nothing comes."""


class ArchiveFollower:
    """Gives a stream's chunks from `start` on, as far as they are archived, and then what is archived later.

    With `is_over`, nothing is written to the stream any more, and `run` returns at its end: at `end` or later, or with
    None wherever the archive ends. Of an `incarnation` of None, the newest is read.
    """

    def __init__(
        self,
        stream: str,
        start: OffsetSpec,
        incarnation: Incarnation | None,
        *,
        archive: ArchiveSource,
        give: Give,
        is_over: bool,
        end: Offset | None = None,
        on_gap: Literal["raise", "skip"] = "raise",
        archive_wait_s: float = ARCHIVE_WAIT_S,
    ) -> None:
        self._position = ReadPosition(stream, start, incarnation=incarnation)
        match start:
            case AtOffset(offset):
                self._position.from_offset = offset
            case AtTimestamp(timestamp):
                self._position.not_before = timestamp
            case _:
                pass
        self._give = give
        self._is_over = is_over
        self._end = end
        self._archive_wait_s = archive_wait_s
        self._catch_up = CatchUp(
            self._position,
            BrokerLog(stream, NoBroker()),
            archive,
            give,
            on_gap=on_gap,
            archive_wait_s=archive_wait_s,
        )

    async def run(self) -> None:
        """Follow until cancelled, or until the end of a stream that is over.

        Raises GapError, AccessDeniedError, CorruptionError; UnavailableError if the resolver is away for
        `archive_wait_s`, or a stream that is over is not archived up to its end by then.
        """
        clock = asyncio.get_running_loop().time
        backoff = Backoff(FIRST_LOOK_S, LOOK_EVERY_S)
        since = clock()
        while True:
            before = self._position.expected
            await self._catch_up.run(must_move=False)
            reached = self._position.expected
            if reached != before:
                backoff.reset()
                since = clock()
            if self._is_over and (reached is None or self._end is None or reached >= self._end):
                if reached is None:
                    log.warning("stream %r is gone, and nothing of it is archived", self._position.stream)
                await self._reached(max(reached or Offset(0), self._end or Offset(0)))
                return
            # Also of a stream of which nothing is archived yet, so that nobody waits for its first chunk.
            await self._reached(reached or Offset(0))
            if self._is_over and clock() - since >= self._archive_wait_s:
                raise UnavailableError(
                    f"stream {self._position.stream!r} is gone, and archived only up to {reached}, of {self._end}"
                )
            await asyncio.sleep(backoff.next_delay_s())

    async def _reached(self, offset: Offset) -> None:
        await self._give(ReachedOffset(self._position.stream, offset, at_tail=True))


class NoBroker:
    """A broker without any stream: every question raises StreamNotFoundError. Implements `BrokerSource`."""

    def subscribe(self, stream: str, spec: OffsetSpec) -> AbstractAsyncContextManager[ChunkFeed]:
        """Raise."""
        raise _not_there(stream, spec)

    async def probe(self, stream: str, spec: OffsetSpec) -> Chunk | None:
        """Raise."""
        raise _not_there(stream, spec)

    async def first_offset(self, stream: str) -> Offset | None:
        """Raise."""
        raise _not_there(stream, FIRST)

    async def query_offset(self, stream: str, reference: str) -> Offset | None:
        """Raise."""
        raise _not_there(stream, reference)

    async def renew(self) -> None:
        """Do nothing."""


def _not_there(stream: str, what: object) -> StreamNotFoundError:
    return StreamNotFoundError(f"stream {stream!r} is read from the archive alone, and not at the broker from {what}")
