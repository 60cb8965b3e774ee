"""The recovery log of this node: copies of committed chunks that wait for the slice of a quiet stream.

Each span, one object has those of all streams; nothing is put if nothing is new. If the node and its disk are lost,
`coldstream recover` archives from these objects what the manifest does not cover. Every node writes its own, whatever
replica of a stream it has: a PUT a span costs less than finding out, when it matters, that the one whose turn it was
has been away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.archiver import StreamArchiver
from coldstream.agent.kept_spans import KeptSpans
from coldstream.agent.monitor.metrics import AgentMetrics, Service
from coldstream.agent.stream_log import ProvenChunks
from coldstream.archive.borders import QuietSpans
from coldstream.errors import ObjectExistsError
from coldstream.manifest.stream import Incarnation
from coldstream.store.span_object import LoggedRun, span_object
from coldstream.units import MIB, TimestampMs, now_ms

log = logging.getLogger(__name__)

OBJECT_BYTES = 8 * MIB
"""After which an object is put, and another one begun. In memory: this, and a run more."""

PROOFS_AT_ONCE = 32


class RecoveryLog:
    """Writes the log of the node that `node` names, and deletes what the manifest covers.

    `node` may wait for the disk.
    """

    def __init__(
        self,
        archive: ArchiveClient,
        archivers: Mapping[Incarnation, StreamArchiver],
        metrics: AgentMetrics,
        node: Callable[[], str],
        *,
        every_ms: int,
        quiet: QuietSpans,
        now: Callable[[], TimestampMs] = now_ms,
    ) -> None:
        self._archive = archive
        self._archivers = archivers
        self._metrics = metrics
        self._node_of = node
        self._node: str | None = None
        self._now = now
        self._kept = KeptSpans(archive, archivers, every_ms, quiet)
        self._last_at = TimestampMs(0)
        self.complete_at: TimestampMs | None = None
        """All that was committed at that time, of streams with names, is archived, logged, or a slice on its way."""

    def __len__(self) -> int:
        """Return how many objects this node keeps."""
        return len(self._kept)

    async def turn(self) -> None:
        """Log what is new, and delete what is covered. The first turn looks for what an earlier life has left.

        Raises what AWS raises; the next turn goes on.
        """
        if self._node is None:
            node = await asyncio.to_thread(self._node_of)
            for key in await self._archive.spans(node):
                self._kept.found(key)
            self._node = node
        began = self._now()
        if await self._log_new(self._node):
            self.complete_at = began
        await self._kept.delete_covered(self._now())

    async def _log_new(self, node: str) -> bool:
        """Put what is new; return whether it is known of all streams."""
        archivers = list(self._archivers.values())
        proofs = asyncio.Semaphore(PROOFS_AT_ONCE)
        is_complete = True

        async def find(archiver: StreamArchiver) -> ProvenChunks | None:
            nonlocal is_complete
            try:
                async with proofs:
                    return await archiver.log.unlogged()
            except Exception as err:  # noqa: BLE001  one stream's trouble must not keep the others out of the log
                is_complete = False
                self._metrics.failed(err, archiver.stream)
                log.debug("%s: not logged: %s", archiver.stream, err)
                return None

        found = await asyncio.gather(*(find(archiver) for archiver in archivers))
        batch: list[tuple[StreamArchiver, ProvenChunks, LoggedRun]] = []
        size_bytes = 0
        for archiver, chunks in zip(archivers, found, strict=True):
            if chunks is None:
                continue
            try:
                run = await archiver.log.read(chunks)
            except Exception as err:  # noqa: BLE001  as above; what is damaged goes to quarantine as a slice
                is_complete = False
                self._metrics.failed(err, archiver.stream)
                log.warning("%s: not logged: %s", archiver.stream, err)
                continue
            if run is None:
                continue
            batch.append((archiver, chunks, run))
            size_bytes += run.object_bytes
            if size_bytes >= OBJECT_BYTES:
                await self._put(node, batch)
                batch, size_bytes = [], 0
        if batch:
            await self._put(node, batch)
        return is_complete

    async def _put(self, node: str, batch: list[tuple[StreamArchiver, ProvenChunks, LoggedRun]]) -> None:
        # Never the same name twice, whatever the clock does: what is there may be the only copy of something.
        self._last_at = TimestampMs(max(self._now(), self._last_at + 1))
        key = self._archive.keys.span(node, self._last_at)
        try:
            await self._archive.put_span(key, span_object([run for _, _, run in batch]))
        except ObjectExistsError:
            # Of an earlier life whose clock was ahead, or of this PUT, whose answer was lost. The next turn puts these
            # runs under another name.
            self._kept.found(key)
            raise
        self._metrics.contacted(Service.AWS)
        self._kept.put(key, self._now())
        for archiver, chunks, _ in batch:
            archiver.log.logged(chunks)
