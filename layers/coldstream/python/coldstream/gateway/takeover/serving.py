"""Chunks of the archive, sent to the client as the broker would send them."""

from __future__ import annotations

import asyncio
import logging

from coldstream.errors import GapError, IncarnationError, UnavailableError
from coldstream.format.chunk import CHUNK_HEADER_BYTES, Chunk, ChunkType
from coldstream.gateway.cold import ColdRow
from coldstream.gateway.frames.deliver import deliver_head
from coldstream.gateway.gap_rules import GapAction
from coldstream.gateway.takeover.flow import ChunkFlow
from coldstream.gateway.takeover.parts import TakeoverParts
from coldstream.manifest.stream import Incarnation
from coldstream.retry import Backoff
from coldstream.units import KIB, Offset

log = logging.getLogger(__name__)

_FIRST_DELAY_S = 0.1
_MAX_DELAY_S = 10.0
_TURN_BYTES = 256 * KIB
"""After so much, the other connections have their turn, even if the client takes all at once."""


class ArchiveServer:
    """Serves the flow of one subscription. `credited` is set whenever the client has given a credit."""

    def __init__(self, flow: ChunkFlow, parts: TakeoverParts, credited: asyncio.Event) -> None:
        self._flow = flow
        self._history = parts.history
        self._vhost = parts.broker.vhost
        self._on_gap = parts.options.gaps.action(flow.stream)
        self._wait_s = parts.options.archive_wait_s
        self._poll_s = parts.options.archive_poll_s
        self._figures = parts.figures
        self._credited = credited
        self._end = Offset(0)
        self.committed = Offset(0)
        """The greatest id of a committed chunk that is known, which Deliver frames tell since version 2."""
        self._backoff = Backoff(_FIRST_DELAY_S, _MAX_DELAY_S)
        self._gap_at: Offset | None = None  # where a gap was met, and
        self._gap_since = 0.0  # when first

    async def serve(self, incarnation: Incarnation, end: Offset, version: int) -> None:
        """Send the client what is archived from the expected offset up to `end`, as its credits allow.

        Returns at `end`, or where the archive ends before. Waits as long as the archive is away, and for a while for
        what is missing without a reason. Raises GapError if gaps are errors, CorruptionError, and UnavailableError if
        waiting does not help.
        """
        self._figures.cold_subscriptions += 1
        self._figures.live_subscriptions -= 1
        self._end = end
        self._figures.cold.add(self)
        try:
            while self._begin < end:
                begin = self._begin
                try:
                    await self._read(incarnation, end, version)
                except GapError as err:
                    if await self._is_lasting(err):
                        self.skip(err, end)
                except UnavailableError as err:
                    if not err.retryable:
                        raise
                    self._gap_at = None  # time counts only while the archive answers
                    log.warning(
                        "subscription %d to %r waits for the archive: %s", self._flow.number, self._flow.stream, err
                    )
                    await asyncio.sleep(self._backoff.next_delay_s())
                else:
                    if self._begin == begin:
                        return
        finally:
            self._figures.cold.discard(self)
            self._figures.cold_subscriptions -= 1
            self._figures.live_subscriptions += 1

    def row(self) -> ColdRow:
        """Return how far it is; see `ColdReader`."""
        flow, begin = self._flow, self._begin
        return ColdRow(flow.client.peer, self._vhost, flow.stream, begin, max(0, self._end - begin))

    def skip(self, gap: GapError, end: Offset) -> None:
        """Go on after a gap, at `end` at the latest, from where the broker goes on. Raises it if gaps are errors."""
        self._figures.gaps_total[self._on_gap.value] += 1
        if self._on_gap is GapAction.ERROR:
            raise gap
        next_offset = Offset(max(self._begin, min(gap.next_offset, end)))
        log.warning("subscription %d goes on at offset %d: %s", self._flow.number, next_offset, gap)
        self._flow.move(next_offset)

    async def _is_lasting(self, gap: GapError) -> bool:
        """Tell whether a gap counts; if not, it is time to read again.

        Segments that are announced together may be archived in any order. So one without a reason counts once it was
        there for as long as one waits for what is not archived yet; one with a reason, once a second plan shows it, as
        the first may be as old as its client's last pause.
        """
        now = asyncio.get_running_loop().time()
        is_new = self._gap_at != self._begin
        if is_new:
            self._gap_at, self._gap_since = self._begin, now
        if gap.reason is not None:
            return not is_new
        if now - self._gap_since >= self._wait_s:
            return True
        await asyncio.sleep(self._poll_s)
        return False

    async def ready(self) -> None:
        """Wait until the client may be sent a chunk, and takes it. Raises ClosedLinkError if it goes."""
        flow = self._flow
        while True:
            while flow.ledger.client <= 0:
                self._credited.clear()
                await self._credited.wait()
            if not flow.client.is_full:
                return
            await flow.client.drained()

    @property
    def _begin(self) -> Offset:
        return Offset(0) if self._flow.expected is None else self._flow.expected

    async def _read(self, incarnation: Incarnation, end: Offset, version: int) -> None:
        flow = self._flow
        turn_bytes = 0
        async with self._history.read(self._vhost, flow.stream, incarnation, self._begin, end) as reading:
            while True:
                # Before a chunk is taken: a client that gives no credits stops the requests to the archive.
                await self.ready()
                chunk = reading.take()
                if chunk is None:
                    try:
                        chunk = await anext(aiter(reading))
                    except StopAsyncIteration:
                        return
                self._backoff.reset()
                turn_bytes += self._send(chunk, version)
                del chunk  # its views keep megabytes alive, for as long as the client gives no credits
                if turn_bytes >= _TURN_BYTES:
                    turn_bytes = 0
                    await asyncio.sleep(0)

    def _send(self, chunk: Chunk, version: int) -> int:
        flow, header = self._flow, chunk.header
        if flow.is_border and Offset(header.chunk_id) != flow.expected:
            # A reading begins at the chunk that holds an offset, and an archive of another stream may have another one.
            raise IncarnationError(
                f"stream {flow.stream!r}: the archived chunk at offset {header.chunk_id} does not begin where the last"
                f" one ended, at {flow.expected}"
            )
        if header.type is not ChunkType.USER:
            flow.move(header.next_offset)
            return 0
        head = deliver_head(
            version, flow.number, max(self.committed, header.chunk_id), CHUNK_HEADER_BYTES + header.data_bytes
        )
        frame = b"".join((head, header.to_bytes(), chunk.data))
        flow.client.send(frame)
        flow.sent(header)
        self._figures.archive_chunks_total += 1
        self._figures.archive_bytes_total += len(frame)
        return len(frame)
