"""Whether a broker's stream has the same history as what is archived of it.

Pins that the manifest covers are released by their offsets alone. That is right as long as there is one history. A
cluster that lost its data, and went on from an older copy, has a second history of the same offsets. So when an agent
comes to a stream, it compares the last archived chunk that is on its disk, too: logs that hold the same chunk, of the
same id and epoch, are equal up to it. If the two chunks differ, and the broker shows that the one on this disk is
committed, nothing of this disk is released unseen: all of it is announced, even what is archived, and the upload
function puts in quarantine what contradicts the archive.
"""

from __future__ import annotations

import logging

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.disk.disk_access import DiskAccess
from coldstream.agent.disk.disk_log import DiskLog
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.proof.broker import ProofVerdict
from coldstream.agent.proof.identity import StreamIdentity
from coldstream.agent.proof.incarnations import Anchor
from coldstream.errors import ContradictionError, NotFoundError, UnavailableError
from coldstream.format.chunk import ChunkHeader
from coldstream.units import Offset, format_timestamp

log = logging.getLogger(__name__)


class HistoryCheck:
    """Compares the histories of one stream. `why` says that there are two; it is None while there seems to be one.

    Below `contested_to` the archive may have another history than this disk.
    """

    def __init__(
        self, identity: StreamIdentity, archive: ArchiveClient, disk: DiskAccess, metrics: AgentMetrics
    ) -> None:
        self._identity = identity
        self._archive = archive
        self._disk = disk
        self._metrics = metrics
        self.contested_to = Offset(0)
        self.why: str | None = None

    async def begin(self, first_offset: Offset, covered_to: Offset) -> Offset:
        """Return where to archive from: this disk begins at `first_offset`, and the manifest reaches to `covered_to`.

        Cost: one Query if the manifest covers anything. Raises what the broker does if there seem to be two histories.
        """
        if covered_to <= first_offset:
            return covered_to
        end = await self._disk.on_log(DiskLog.next_offset)
        entry = await self._archive.last_entry(self._identity.incarnation, min(end or first_offset, covered_to))
        if entry is None or entry.last_user_chunk is None or entry.last_user_chunk.chunk_id < first_offset:
            return covered_to
        last = entry.last_user_chunk
        archived = Anchor(last.chunk_id, last.timestamp, entry.next_offset, epoch=entry.epoch)
        here = await self._disk.on_log(DiskLog.user_chunk_at, Offset(last.chunk_id))
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
        # Set before this returns: the first slice is delivered as a contested one.
        self.contested_to = covered_to
        return first_offset

    async def _is_committed(self, here: ChunkHeader) -> bool:
        """Tell whether the broker delivers the chunk. If it delivers another, it will truncate this one: no history."""
        try:
            proof = await self._identity.prove(here)
        except NotFoundError:
            return False
        if proof.verdict is ProofVerdict.NOT_YET:
            # Nothing may be released before the broker shows which of the two is committed.
            raise UnavailableError(
                f"{self._identity.stream}: the archive has another chunk than {here.chunk_id} of this disk, and the"
                " broker does not deliver it yet"
            )
        return proof.verdict is ProofVerdict.COMMITTED
