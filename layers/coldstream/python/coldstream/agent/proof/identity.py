"""Which stream a directory of the broker's is, and how much of it is committed: what was proven, and is remembered."""

from __future__ import annotations

import logging
from dataclasses import replace

from coldstream.agent.proof.broker import BrokerProver, Log, Proof, ProofVerdict, prove
from coldstream.agent.stream_file import PendingLoss, RememberedStream, StreamFile, Witness
from coldstream.errors import NotFoundError
from coldstream.format.chunk import ChunkHeader
from coldstream.live.delivered import is_same
from coldstream.manifest.spec import FIRST
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import Offset

log = logging.getLogger(__name__)


class StreamIdentity:
    """One incarnation: its names and how far it is committed, once proven, and the losses still to be announced."""

    def __init__(self, incarnation: Incarnation, file: StreamFile, broker: BrokerProver, disk: Log) -> None:
        self.incarnation = incarnation
        self._file = file
        self._remembered = file.load()
        self._broker = broker
        self._disk = disk

    @property
    def stream(self) -> StreamId | None:
        """The stream, None until its names are proven."""
        return self._remembered.stream

    @property
    def known_as(self) -> StreamId | Incarnation:
        """The stream, or only its incarnation until its names are proven: for logs and metrics."""
        return self.stream or self.incarnation

    @property
    def committed_to(self) -> Offset:
        """Everything below is committed, in the log of the chunk that proved it."""
        return self._remembered.committed_to

    @property
    def lost(self) -> tuple[PendingLoss, ...]:
        """The losses that are still to be announced."""
        return self._remembered.lost

    def set_names(self, stream: StreamId, proof: Proof | None, by: ChunkHeader) -> None:
        """Record the names, and what the user chunk `by` of this disk proved beside them."""
        log.info("%s is %s", self.incarnation, stream)
        self._save(replace(self._remembered, stream=stream))
        if proof is not None:
            self._record(proof, by)

    async def prove(self, witness: ChunkHeader) -> Proof:
        """Prove by a user chunk on this disk that everything up to it is committed. Raises what the broker does."""
        assert self.stream is not None
        proof = await prove(self._broker, self.stream, witness, self._disk)
        self._record(proof, witness)
        return proof

    async def is_proven(self, chunk: ChunkHeader) -> bool:
        """Tell whether a user chunk on this disk is known to be committed, without asking the broker."""
        if chunk.next_offset > self.committed_to:
            return False
        witness = self._remembered.committed_by
        if witness is None or witness.epoch == chunk.epoch:
            return True
        # `committed_to` is about the log of the witness. Another log on this disk may have other chunks below it.
        found = await self._disk.find(witness.chunk_id)
        return found is not None and found.epoch == witness.epoch and await self._disk.is_linked(chunk, found)

    async def is_gone(self) -> bool:
        """Tell whether the broker no longer has this incarnation. Raises what the broker does."""
        assert self.stream is not None
        try:
            delivered = await self._broker.probe(self.stream.vhost, self.stream.name, FIRST)
        except NotFoundError:
            return True
        if delivered is None:
            return False
        # A stream of the same names may have been declared again: then its first chunk is not on this disk.
        ours = await self._disk.find(delivered.header.chunk_id)
        return ours is None or not is_same(ours, delivered.header)

    def lose(self, loss: PendingLoss) -> None:
        """Write down a loss, durably, and log it. Raises OSError when it cannot be written."""
        self._save(replace(self._remembered, lost=(*(other for other in self.lost if other != loss), loss)))
        log.log(
            logging.INFO if loss.unseen else logging.ERROR,
            "%s: offsets %d to %d are lost: %s",
            self.known_as,
            loss.first_offset,
            loss.next_offset - 1,
            loss.reason,
        )

    def remove_loss(self, loss: PendingLoss) -> None:
        """Record that a loss was announced."""
        self._save(replace(self._remembered, lost=tuple(other for other in self.lost if other != loss)))

    def forget(self) -> None:
        """Remove the file of the stream, unless it has losses that are still to be announced.

        Those of a stream that never had a name cannot be announced: they are in the log, and counted.
        """
        if not self.lost or self.stream is None:
            self._file.forget()

    def _record(self, proof: Proof, chunk: ChunkHeader) -> None:
        # Two tasks prove at once: an answer that comes late, about an earlier chunk, must not take `committed_to` back.
        if proof.verdict is ProofVerdict.COMMITTED and chunk.next_offset > self.committed_to:
            witness = Witness(chunk.chunk_id, chunk.epoch)
            self._save(replace(self._remembered, committed_to=chunk.next_offset, committed_by=witness))

    def _save(self, after: RememberedStream) -> None:
        # No await between the caller's read of `_remembered` and this: one task would undo what another has saved.
        before = self._remembered
        try:
            # Losses are in no other place, before and after: a proof can be had again, a forgotten loss cannot.
            self._file.save(after, durably=bool(before.lost or after.lost))
        except OSError as err:
            if len(after.lost) > len(before.lost):
                raise
            # On a full disk only archiving makes room, so go on without the file. The proof is found again.
            log.warning("%s: what was proven cannot be written down: %s", self.known_as, err)
        self._remembered = after
