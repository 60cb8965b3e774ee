"""The subscriptions of one connection.

A subscription has a task while it is active: it waits for credit, for room in the socket's buffer and for a chunk, in
this order, so that a client that takes nothing costs no memory and no request. One of a connection sends at a time. A
chunk that cannot be sent for a while is put back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from coldstream.errors import ColdstreamError, GapError, UnavailableError
from coldstream.gateway.alone.peer import AlonePeer
from coldstream.gateway.alone.served_stream import ChunkSource, ServedChunk, ServedStream
from coldstream.gateway.cold import ColdRow
from coldstream.gateway.frames.deliver import deliver_head
from coldstream.gateway.gap_rules import GapAction
from coldstream.manifest.spec import OffsetSpec
from coldstream.units import Offset

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)
_MAX_CREDIT = 1 << 20
_REST_S = 2.0
_FIRST_RETRY_S, _MAX_RETRY_S = 0.5, 15.0


class AloneSubscription:
    """One subscription. `spec` is that of the Subscribe. `on_end` is called if it ends by itself, with an error."""

    def __init__(
        self,
        peer: AlonePeer,
        turn: asyncio.Lock,
        *,
        subscription_id: int,
        stream: ServedStream,
        spec: OffsetSpec,
        credit: int,
        on_end: Callable[[AloneSubscription, ColdstreamError], None],
    ) -> None:
        self.id = subscription_id
        self.stream = stream
        self.spec = spec
        self._peer = peer
        self._turn = turn
        self._credit = credit
        self._on_end = on_end
        self._has_credit = asyncio.Event()
        if credit:
            self._has_credit.set()
        self._task: asyncio.Task[None] | None = None
        self._source: ChunkSource | None = None
        self._at = Offset(0)
        # For a single active consumer: nothing is sent while its lease is not certain to last.
        self.may_send: Callable[[], bool] = lambda: True

    @property
    def is_active(self) -> bool:
        """Tell whether chunks are being served."""
        return self._task is not None

    def start(self, spec: OffsetSpec) -> None:
        """Begin to serve from a spec on."""
        assert self._task is None
        self._peer.figures.cold_subscriptions += 1
        self._task = asyncio.create_task(self._run(spec), name=f"subscription {self.id} to {self.stream.name}")

    def add_credit(self, credit: int) -> None:
        """Take more credit."""
        self._credit = min(self._credit + credit, _MAX_CREDIT)
        if self._credit:
            self._has_credit.set()

    def stop(self) -> None:
        """Serve nothing any more, from this moment on; `start` may begin again."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._peer.figures.cold_subscriptions -= 1

    def row(self) -> ColdRow:
        """Return how far it is; see `ColdReader`."""
        behind = 0 if self._source is None else max(0, self._source.tail - self._at)
        return ColdRow(self._peer.link.peer, self._peer.vhost, self.stream.name, self._at, behind)

    async def _run(self, spec: OffsetSpec) -> None:
        task = self._task
        try:
            await self._serve(spec)
        except ColdstreamError as err:
            failure = err
        except asyncio.CancelledError:
            raise
        except Exception as err:  # noqa: BLE001  a defect of ours: the client must not wait for ever
            _LOG.exception("a subscription failed", extra={"stream": self.stream.name})
            failure = ColdstreamError(f"{type(err).__name__}: {err}")
        if self._task is task:
            self.stop()
            self._on_end(self, failure)

    async def _serve(self, spec: OffsetSpec) -> None:
        start = await self._persist(lambda: self.stream.attach(spec))
        source = self.stream.source(start)
        self._source, self._at = source, start
        self._peer.figures.cold.add(self)
        try:
            while True:
                await self._serve_one(source)
        finally:
            self._peer.figures.cold.discard(self)
            source.close()

    async def _serve_one(self, source: ChunkSource) -> None:
        link, budget = self._peer.link, self._peer.sending
        await self._credit_there(source)
        if link.is_full:
            await self._wait(link.drained, source)
        await self._lease(source)
        await budget.room()
        try:
            chunk = await self._persist(source.take)
        except GapError as gap:
            action = self._peer.options.gaps.action(self.stream.name)
            self._peer.figures.gaps_total[action.value] += 1
            if action is GapAction.ERROR:
                raise
            _LOG.warning("skipped a gap", extra={"stream": self.stream.name, "error": str(gap)})
            source.skip_to(Offset(max(gap.next_offset, gap.first_offset + 1)))
            return
        size_bytes = len(chunk.delivered)
        if not budget.try_take(size_bytes):
            source.skip_to(Offset(chunk.chunk_id))  # others were faster
            return
        try:
            if not await self._sent(chunk, source):
                source.skip_to(Offset(chunk.chunk_id))
        finally:
            budget.give(size_bytes)

    async def _sent(self, chunk: ServedChunk, source: ChunkSource) -> bool:
        """Send a chunk once that can be; return False if that takes so long that others should have the memory."""
        while True:
            try:
                async with asyncio.timeout(_REST_S):
                    while not await self._send(chunk, source.tail):
                        await self._lease(source)
                    return True
            except TimeoutError:
                source.rest()
                if self._peer.sending.is_tight:
                    return False

    async def _send(self, chunk: ServedChunk, tail: Offset) -> bool:
        """Send a chunk in its turn; return False if its lease has become uncertain: others must not wait for that."""
        link, figures = self._peer.link, self._peer.figures
        async with self._turn:
            while link.is_full:
                await link.drained()
            if not self.may_send():
                return False
            # Nothing is awaited from here on: who is stopped has sent all of it, or nothing.
            self._credit -= 1
            if not self._credit:
                self._has_credit.clear()
            committed = max(chunk.chunk_id, tail - 1)
            head = deliver_head(self._peer.deliver_version, self.id, committed, len(chunk.delivered))
            figures.archive_chunks_total += 1
            figures.archive_bytes_total += len(chunk.delivered)
            link.send(head, chunk.delivered)
            self._at = chunk.next_offset
            return True

    async def _credit_there(self, source: ChunkSource) -> None:
        while not self._credit:
            await self._wait(self._has_credit.wait, source)

    async def _lease(self, source: ChunkSource) -> None:
        """Wait until the lease of a single active consumer is certain."""
        while not self.may_send():
            source.rest()
            await asyncio.sleep(_FIRST_RETRY_S)

    async def _wait(self, what: Callable[[], Awaitable[object]], source: ChunkSource) -> None:
        """Wait for the client; if that takes longer, hold nothing of the archive meanwhile."""
        try:
            async with asyncio.timeout(_REST_S):
                await what()
        except TimeoutError:
            source.rest()
            await what()

    async def _persist(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Ask until an answer comes: what an outage delays, it does not end."""
        pause_s = _FIRST_RETRY_S
        while True:
            try:
                return await ask()
            except UnavailableError as err:
                if not err.retryable:
                    raise
                self._peer.figures.archive_failures_total["unavailable"] += 1
                _LOG.warning("the archive does not answer", extra={"stream": self.stream.name, "error": str(err)})
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_RETRY_S)
