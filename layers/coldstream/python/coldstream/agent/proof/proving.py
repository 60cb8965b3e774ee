"""Prove what is pinned of one stream: first which stream it is, then how far it is committed."""

from __future__ import annotations

import logging

from coldstream.agent.disk.slices import chunk_to_prove
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.proof.broker import Proof, ProofVerdict
from coldstream.agent.proof.search import NameSearch, NoNames
from coldstream.agent.rules import Rules
from coldstream.agent.stream_progress import ArchivingProgress
from coldstream.agent.stream_state import StreamState
from coldstream.errors import NotFoundError
from coldstream.format.chunk import ChunkHeader
from coldstream.units import now_ms

log = logging.getLogger(__name__)


class StreamProving:
    """Proves one stream, ahead of the delivery and when the delivery asks."""

    def __init__(self, progress: ArchivingProgress, search: NameSearch, rules: Rules, metrics: AgentMetrics) -> None:
        self._progress = progress
        self._search = search
        self._rules = rules
        self._metrics = metrics

    async def run(self) -> None:
        """Prove each new segment as soon as it is pinned, until cancelled.

        The delivery may get to it only much later, and by then the stream may be deleted: a broker that has a stream no
        more proves nothing of it.
        """
        progress, identity = self._progress, self._progress.identity
        while True:
            await progress.pinned.wait()
            # Before the log is read: a segment that is pinned during the proof makes another round.
            progress.pinned.clear()
            try:
                found = await progress.disk.on_log(chunk_to_prove, progress.archived_to, now_ms())
                if found is not None and identity.stream and found.header.next_offset > identity.committed_to:
                    await identity.prove(found.header)
            except Exception as err:  # noqa: BLE001  what matters fails again, and is reported, when its turn comes
                log.debug("%s: not proven yet: %s", identity.stream, err)

    async def is_taken(self) -> bool:
        """Tell whether the stream is to be archived; search for its names if they are not known. Raises as `find`."""
        progress = self._progress
        if progress.identity.stream is None and not await self._find_names():
            return False
        assert progress.identity.stream is not None
        if not self._rules.takes(progress.identity.stream.vhost, progress.identity.stream.name):
            progress.state = StreamState.EXCLUDED
            return False
        return True

    async def prove(self, witness: ChunkHeader) -> Proof | None:
        """Prove by a user chunk on this disk; None if neither the broker nor its directory here has the stream.

        Raises what the broker does. That includes NotFoundError while the broker still has files of the stream here:
        then it may only not know the stream yet.
        """
        progress = self._progress
        if await progress.identity.is_proven(witness):
            return Proof(ProofVerdict.COMMITTED, witness)
        try:
            return await progress.identity.prove(witness)
        except NotFoundError:
            if progress.is_live:
                raise
            return None

    async def _find_names(self) -> bool:
        """Search once for the names; return whether they are known now."""
        found = await self._search.find()
        if isinstance(found, NoNames):
            self._progress.state = found.state
            return False
        self._progress.identity.set_names(found.stream, found.proof, found.first)
        self._metrics.forget(self._progress.identity.incarnation)  # what was counted without a name
        return True
