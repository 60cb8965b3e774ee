"""Whether what a broker has of a stream is of the same history as what is archived of it.

What the manifest covers is let go of by its offsets alone. That is right while there is one history. A cluster that
lost its data, and went on from an older copy, has another one, of the same offsets. So when an agent comes to a stream,
the last archived chunk that is on its disk as well is compared: logs that hold the same chunk, of the same id and
epoch, are equal up to it. Where it differs, and the broker shows that what is here is committed, nothing of it is let
go of unseen: all is announced, also what is archived, and goes to quarantine where it contradicts.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.disk.segments import StreamDisk
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.proof.broker import Verdict
from coldstream.agent.proof.identity import StreamIdentity
from coldstream.agent.proof.incarnations import Anchor
from coldstream.errors import ContradictionError, NotFoundError, UnavailableError
from coldstream.format.chunk import ChunkHeader
from coldstream.units import Offset, format_timestamp

log = logging.getLogger(__name__)


class History:
    """The history of one stream. `on_disk` calls in a thread; `why` says that there are two, None while none is seen.

    Below `contested_to` the archive may have another history than this disk.
    """

    def __init__(
        self,
        identity: StreamIdentity,
        archive: ArchiveClient,
        disk: StreamDisk,
        on_disk: Callable[..., Awaitable[Any]],
        metrics: AgentMetrics,
    ) -> None:
        self._identity = identity
        self._archive = archive
        self._disk = disk
        self._on_disk = on_disk
        self._metrics = metrics
        self.contested_to = Offset(0)
        self.why: str | None = None

    async def begin(self, first_offset: Offset, covered_to: Offset) -> Offset:
        """Return from where on to archive what is here, of which the manifest has `first_offset` up to `covered_to`.

        Cost: one Query where it has any. Raises what the broker does where two histories are to be told apart.
        """
        if covered_to <= first_offset:
            return covered_to
        end: Offset | None = await self._on_disk(lambda: self._disk.next_offset)
        entry = await self._archive.last_entry(self._identity.incarnation, min(end or first_offset, covered_to))
        if entry is None or entry.last_user_chunk is None or entry.last_user_chunk.chunk_id < first_offset:
            return covered_to
        last = entry.last_user_chunk
        archived = Anchor(last.chunk_id, last.timestamp, entry.next_offset, epoch=entry.epoch)
        here: ChunkHeader | None = await self._on_disk(self._disk.user_chunk_at, Offset(last.chunk_id))
        if here is None or archived.is_chunk(here) or not await self._is_committed(here):
            return covered_to
        error = ContradictionError(
            f"the log of {self._identity.stream} at this broker",
            here.chunk_id,
            f"it has a chunk of epoch {here.epoch}, {format_timestamp(here.timestamp)}; {entry.key} has one of offset"
            f" {last.chunk_id}, {format_timestamp(last.timestamp)}: what is here goes to quarantine where it differs",
        )
        self.why = str(error)
        log.error("%s", self.why)
        self._metrics.failed(error, self._identity.stream)
        self.contested_to = covered_to
        return first_offset

    async def _is_committed(self, here: ChunkHeader) -> bool:
        """Tell whether the broker delivers the chunk; what it has another for will be truncated, and says nothing."""
        try:
            proof = await self._identity.prove(here)
        except NotFoundError:
            return False
        if proof.verdict is Verdict.NOT_YET:
            raise UnavailableError(f"{self._identity.stream}: another chunk than {here.chunk_id} is archived here")
        return proof.verdict is Verdict.COMMITTED
