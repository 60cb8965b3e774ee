"""What lies before the broker's chunks that were kept: nothing, or what the archive has.

A chunk that begins after the expected offset leaves offsets out. They are tracking chunks, which clients are not sent,
or chunks that a filter left out, or what retention has deleted; brokers do not say which. So the broker is asked for
its first chunk. If that is at or before the expected offset, nothing after that offset had been deleted when the broker
answered, so nothing is missing in what had arrived when it was asked. Otherwise the archive has what is missing.
"""

from __future__ import annotations

import asyncio
import logging

from coldstream.errors import GapError, IncarnationError, UnavailableError
from coldstream.format.chunk import ChunkHeader
from coldstream.gateway.history.port import StreamBounds
from coldstream.gateway.takeover.flow import ChunkFlow
from coldstream.gateway.takeover.kept import KeptChunk
from coldstream.gateway.takeover.parts import TakeoverParts
from coldstream.gateway.takeover.serving import ArchiveServer
from coldstream.manifest.spec import AtTimestamp
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset

log = logging.getLogger(__name__)


class Settler:
    """Settles one subscription.

    `incarnation` is the one that is read out of the archive, None until one was. `time` is where the client wants to
    begin, if that is a time and the broker serves it from the beginning. The broker reads from `attached` on, and never
    sends what lies before.
    """

    def __init__(self, flow: ChunkFlow, parts: TakeoverParts, server: ArchiveServer) -> None:
        self.incarnation: Incarnation | None = None
        self.time: AtTimestamp | None = None
        self.attached = Offset(0)
        self._proven_number = 0  # of the last chunk that is known to come after everything before it
        self._flow = flow
        self._view = parts.view
        self._planner = parts.planner
        self._server = server
        self._history = parts.history
        self._vhost = parts.broker.vhost
        self._options = parts.options
        self._figures = parts.figures

    async def settle(self) -> None:
        """Send what is kept, each after what lies before it.

        Raises GapError, IncarnationError, CorruptionError, and UnavailableError if waiting does not help.
        """
        flow = self._flow
        self._proven_number = 0
        while True:
            if flow.failure is not None:
                raise flow.failure
            if not flow.queue:
                return
            kept = flow.queue[0]
            if flow.expected is not None and kept.header.next_offset <= flow.expected and flow.is_border:
                flow.queue.popleft()  # the archive had it, too
            elif await self._is_next(kept):
                await self._server.ready()
                flow.queue.popleft()
                flow.client.send(kept.frame)
                flow.sent(kept.header)

    async def _is_next(self, kept: KeptChunk) -> bool:
        """Tell whether a chunk is what the client gets next; if not, send what lies before it, or find what does."""
        flow, header = self._flow, kept.header
        if flow.is_first(header.chunk_id) or flow.expected is None or Offset(header.chunk_id) == flow.expected:
            return True
        if header.chunk_id < flow.expected:
            raise IncarnationError(
                f"stream {flow.stream!r}: the broker's chunk at offset {header.chunk_id} begins within what was sent,"
                f" up to {flow.expected}"
            )
        if kept.number <= self._proven_number:
            return True
        # Taken before the question: the answer proves nothing of what arrives after it was sent.
        received_number = flow.kept_count
        if await self._reaches_back_to(flow.expected):
            self._proven_number = received_number
            return True
        if not flow.is_border and self.time is not None:
            attached = await self._planner.attach_at_time(flow.stream, self.time, Offset(header.chunk_id))
            flow.expected = Offset(header.chunk_id) if attached is None else attached
            self.time = None
        else:
            await self._refill(kept)
        return False

    async def _reaches_back_to(self, offset: Offset) -> bool:
        if offset < self.attached:
            return False  # whatever it has there, it does not send
        try:
            first = await self._view.first_offset(self._flow.stream)
        except UnavailableError as err:
            if not err.retryable:
                raise
            log.warning("subscription %d: %s; the archive is asked instead", self._flow.number, err)
            return False
        if first is None:
            # Silence proves nothing. All may be deleted but a segment without chunks: the archive has to tell.
            return False
        return first <= offset

    async def _refill(self, kept: KeptChunk) -> None:
        """Send what the archive has up to a kept chunk, and wait, for a while, for what it does not have yet."""
        flow = self._flow
        end = Offset(kept.header.chunk_id)
        log.info(
            "subscription %d to %r: the broker goes on at offset %d, %d is expected: the archive is read in between",
            flow.number,
            flow.stream,
            end,
            flow.expected,
        )
        self._figures.returns_total += 1
        clock = asyncio.get_running_loop().time
        since = clock()
        while flow.expected is not None and flow.expected < end:
            before = flow.expected
            is_away = False
            try:
                if not await self._read_between(kept, end):
                    self._accept_loss(end)
                    return
            except UnavailableError as err:
                if not err.retryable:
                    raise
                is_away = True
            if flow.expected != before:
                if flow.expected < end and await self._reaches_back_to(flow.expected):
                    return  # tracking chunks are left, which the broker has and no agent may archive for hours
                since = clock()
                continue
            if is_away:
                # Time counts only while the archive answers: what it has must not be given up because it is away.
                since = clock()
            elif clock() - since >= self._options.archive_wait_s:
                reason = "the broker has deleted them, and no agent has archived them in time"
                self._server.skip(GapError(f"stream {flow.stream!r}", flow.expected, end, reason), end)
                return
            await asyncio.sleep(self._options.archive_poll_s)

    async def _read_between(self, kept: KeptChunk, end: Offset) -> bool:
        """Send what is archived before a kept chunk. Return False if the archive is of another stream, or of none."""
        flow = self._flow
        bounds = await self._history.bounds(self._vhost, flow.stream)
        if not await self._is_ours(bounds, kept.header):
            return False
        assert flow.expected is not None
        if bounds is not None and not flow.is_border and bounds.first_offset > flow.expected:
            flow.expected = min(bounds.first_offset, end)  # the client has had nothing: there is no gap
        if bounds is not None and bounds.tail > flow.expected:
            await self._server.serve(bounds.incarnation, min(end, bounds.tail), kept.version)
        return True

    def _accept_loss(self, end: Offset) -> None:
        flow = self._flow
        log.warning(
            "subscription %d goes on at offset %d: stream %r, which is not archived, has lost offsets %d to %d to"
            " retention, as it may",
            flow.number,
            end,
            flow.stream,
            flow.expected,
            end - 1,
        )
        flow.move(end)

    async def _is_ours(self, bounds: StreamBounds | None, header: ChunkHeader) -> bool:
        """Tell whether the archive's stream is the one that is delivered. Raises IncarnationError if it was."""
        flow = self._flow
        if bounds is None or bounds.is_direct:
            return self.incarnation is not None
        if self.incarnation is not None:
            if self.incarnation != bounds.incarnation:
                raise IncarnationError(
                    f"stream {flow.stream!r} was declared again while it was read: {bounds.incarnation} is archived,"
                    f" {self.incarnation} was read"
                )
            return True
        mine = [header]
        if flow.last is not None:
            mine.append(ChunkHeader.from_bytes(flow.last, source=f"stream {flow.stream!r} as delivered", position=0))
        for one in mine:
            archived = await self._history.header_at(self._vhost, flow.stream, Offset(one.chunk_id))
            if archived is not None:
                if not archived.is_of(one):
                    return False
                self.incarnation = bounds.incarnation
                return True
        return True
