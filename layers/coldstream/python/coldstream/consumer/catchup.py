"""Read the archive until the broker has what follows: retries, gaps, and offsets that are nowhere yet."""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

from coldstream.consumer.batch import Give, SkippedGap
from coldstream.consumer.brokerlog import BrokerLog
from coldstream.consumer.history import ArchiveEnd, ArchiveHistory
from coldstream.consumer.incarnations import has_newer_incarnation
from coldstream.consumer.ports import ArchiveSource
from coldstream.consumer.position import ReadPosition
from coldstream.consumer.retrylog import RetryLog
from coldstream.errors import GapError, IncarnationError, StreamNotFoundError, UnavailableError
from coldstream.manifest.entry import Gap

log = logging.getLogger(__name__)

GAP_WAIT_S = 30.0
"""How long a gap without a reason is waited for: segments announced together may be archived in any order."""

ARCHIVE_WAIT_S = 300.0
"""How long the resolver may be away, or offsets may be neither at the broker nor archived."""


class CatchUp:
    """Reads the archive up to where the broker takes over."""

    def __init__(
        self,
        position: ReadPosition,
        broker: BrokerLog,
        archive: ArchiveSource,
        give: Give,
        *,
        on_gap: Literal["raise", "skip"],
        archive_wait_s: float,
    ) -> None:
        self._position = position
        self._broker = broker
        self._archive = archive
        self._history = ArchiveHistory(archive, position, give)
        self._give = give
        self._on_gap = on_gap
        self._archive_wait_s = archive_wait_s

    async def run(self, *, must_move: bool) -> None:
        """Read the archive to its tail. With `must_move`, wait until it reaches past the position.

        `must_move` is for offsets that the broker no longer has: returning without them would attach at the same place
        again, for ever. Raises GapError, IncarnationError, AccessDeniedError, CorruptionError; UnavailableError once
        nothing has moved for `archive_wait_s`.
        """
        position = self._position
        clock = asyncio.get_running_loop().time
        retry_log = RetryLog(f"stream {position.stream!r} in the archive")
        start = before = position.expected
        since = clock()
        while True:
            end = await self._history.read()
            if position.expected != before:
                # Any progress starts the wait anew: what is bounded is how long nothing moves.
                before, since = position.expected, clock()
                retry_log.recovered()
            waited_s = clock() - since
            if isinstance(end, Gap):
                # The broker comes first: what it can fill is no gap.
                if await self._is_at_broker(end):
                    return
                if end.reason is not None or waited_s >= min(GAP_WAIT_S, self._archive_wait_s):
                    await self._skip(end)
                    continue
            elif isinstance(end, ArchiveEnd) and (
                end is ArchiveEnd.EARLIER_AT_BROKER or position.expected != start or not must_move
            ):
                return
            problem = await self._problem(end)
            if waited_s >= self._archive_wait_s:
                raise problem
            await retry_log.pause(problem)

    async def _problem(self, end: ArchiveEnd | Gap | UnavailableError) -> UnavailableError:
        """Return the error that waiting may still mend. Raises IncarnationError if it cannot."""
        if isinstance(end, UnavailableError):
            return end
        position = self._position
        missing = UnavailableError(
            f"stream {position.stream!r}: offset {position.expected} and what follows is not at the broker any more,"
            " and not archived yet"
        )
        # Offsets in a gap are not asked about: the archive has something after them, of this incarnation.
        if isinstance(end, ArchiveEnd) and await has_newer_incarnation(self._archive, position.incarnation):
            raise IncarnationError(
                f"{missing}; the archive has a newer incarnation of the stream: it was deleted and declared again, or"
                " nothing proves that it was not"
            )
        return missing

    async def _skip(self, gap: Gap) -> None:
        stream = self._position.stream
        if self._on_gap != "skip":
            raise GapError(f"stream {stream!r}", gap.first_offset, gap.next_offset, gap.reason)
        log.warning("stream %r: skipping the gap from offset %d to %d", stream, gap.first_offset, gap.next_offset - 1)
        self._position.move(gap.next_offset)
        await self._give(SkippedGap(stream, gap))

    async def _is_at_broker(self, gap: Gap) -> bool:
        """Tell whether the broker has what the archive lacks; if so, live reading goes on there."""
        try:
            if not await self._broker.ask(lambda: self._broker.reaches_back_to(gap.first_offset)):
                return False
        except StreamNotFoundError:
            return False
        if self._position.expected is None:
            # Fixed now: otherwise live reading would attach by the start spec, which may lead to another offset.
            self._position.move(gap.first_offset, is_border=False)
        return True
