"""Which stream a directory of the broker's is, and how much of it is committed: what was proven, and is remembered."""

from __future__ import annotations

import logging
from dataclasses import replace

from coldstream.agent.proof.broker import BrokerProver, Log, Proof, Verdict, prove
from coldstream.agent.stream_file import PendingLoss, StreamFile, Witness
from coldstream.errors import NotFoundError
from coldstream.format.chunk import ChunkHeader
from coldstream.live.delivered import is_same
from coldstream.manifest.spec import FIRST
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import Offset

log = logging.getLogger(__name__)


class StreamIdentity:
    """One incarnation: its names and its commit offset, once they are proven, and the losses still to be told."""

    def __init__(self, incarnation: Incarnation, file: StreamFile, broker: BrokerProver, disk: Log) -> None:
        self.incarnation = incarnation
        self._file = file
        self._memory = file.load()
        self._broker = broker
        self._disk = disk

    @property
    def stream(self) -> StreamId | None:
        """The stream, None until its names are proven."""
        return self._memory.stream

    @property
    def committed_to(self) -> Offset:
        """Everything below is committed, in the log of the chunk that proved it."""
        return self._memory.committed_to

    @property
    def lost(self) -> tuple[PendingLoss, ...]:
        """The losses that are still to be told."""
        return self._memory.lost

    def named(self, stream: StreamId, proof: Proof | None, by: ChunkHeader) -> None:
        """Take note of the names, and of what a user chunk on this disk proved beside them."""
        log.info("%s is %s", self.incarnation, stream)
        self._save(stream=stream)
        if proof is not None:
            self._take(proof, by)

    async def prove(self, witness: ChunkHeader) -> Proof:
        """Prove by a user chunk on this disk that all up to it is committed. Raises what the broker does."""
        assert self.stream is not None
        proof = await prove(self._broker, self.stream, witness, self._disk)
        self._take(proof, witness)
        return proof

    async def is_gone(self) -> bool:
        """Tell whether the broker has this life of the stream no more. Raises what the broker does."""
        assert self.stream is not None
        try:
            delivered = await self._broker.probe(self.stream.vhost, self.stream.name, FIRST)
        except NotFoundError:
            return True
        if delivered is None:
            return False
        ours = await self._disk.find(delivered.header.chunk_id)
        return ours is None or not is_same(ours, delivered.header)

    def lose(self, loss: PendingLoss) -> None:
        """Write down a loss, durably, and say it. Raises OSError when that cannot be done."""
        self._save(lost=(*(other for other in self.lost if other != loss), loss))
        log.log(
            logging.INFO if loss.unseen else logging.ERROR,
            "%s: offsets %d to %d are lost: %s",
            self.stream or self.incarnation,
            loss.first_offset,
            loss.next_offset - 1,
            loss.reason,
        )

    def told(self, loss: PendingLoss) -> None:
        """Take note that a loss was told."""
        self._save(lost=tuple(other for other in self.lost if other != loss))

    def forget(self) -> None:
        """Remember nothing of the stream, but for losses that nobody was told of.

        Nobody can be told of those of a stream that never had a name: they are in the log, and counted.
        """
        if not self.lost or self.stream is None:
            self._file.forget()

    async def is_proven(self, chunk: ChunkHeader) -> bool:
        """Tell whether a user chunk on this disk is known to be committed, without asking the broker."""
        if chunk.next_offset > self.committed_to:
            return False
        witness = self._memory.committed_by
        if witness is None or witness.epoch == chunk.epoch:
            return True
        found = await self._disk.find(witness.chunk_id)
        return found is not None and found.epoch == witness.epoch and await self._disk.is_linked(chunk, found)

    def _take(self, proof: Proof, chunk: ChunkHeader) -> None:
        if proof.verdict is Verdict.COMMITTED and chunk.next_offset > self.committed_to:
            self._save(committed_to=chunk.next_offset, committed_by=Witness(chunk.chunk_id, chunk.epoch))

    def _save(
        self,
        *,
        stream: StreamId | None = None,
        committed_to: Offset | None = None,
        committed_by: Witness | None = None,
        lost: tuple[PendingLoss, ...] | None = None,
    ) -> None:
        before = self._memory
        after = replace(
            before,
            stream=stream or before.stream,
            committed_to=before.committed_to if committed_to is None else committed_to,
            committed_by=committed_by or before.committed_by,
            lost=before.lost if lost is None else lost,
        )
        try:
            self._file.save(after, durably=bool(before.lost or after.lost))
        except OSError as err:
            if len(after.lost) > len(before.lost):
                raise
            # A full disk must not keep the archive from what makes room. It is found again.
            log.warning("%s: what was proven is not written down: %s", self.stream or self.incarnation, err)
        self._memory = after
