"""Archive what a stream has on this disk: oldest first, only what is proven, and without a silent hole.

The next slice is announced only when the manifest covers the one before. So the archive of a stream grows without
holes, and a reader that starts at its first offset misses nothing.
"""

from __future__ import annotations

import logging
import time

from coldstream.agent.disk.disk_log import DiskLog
from coldstream.agent.disk.disk_segment import Hole
from coldstream.agent.disk.slices import (
    ProvableSlice,
    next_slices,
    proven_slice,
    unproven_offsets,
    waits_for_files,
)
from coldstream.agent.losses import Losses
from coldstream.agent.proof.broker import ProofVerdict
from coldstream.agent.proof.history import HistoryCheck
from coldstream.agent.proof.proving import StreamProving
from coldstream.agent.replica_turns import ReplicaTurns
from coldstream.agent.slice_delivery import SliceDelivery
from coldstream.agent.stream_file import PendingLoss
from coldstream.agent.stream_progress import ArchivingProgress
from coldstream.agent.stream_state import StreamState
from coldstream.errors import UnavailableError
from coldstream.format.chunk import ChunkHeader
from coldstream.ingest.slice import SegmentSlice
from coldstream.units import Offset, now_ms

log = logging.getLogger(__name__)

UNPROVEN = "deleted before they were known to be committed"


class StreamDelivery:
    """Delivers the slices of one stream.

    `turns` are those of the agents beside other replicas, None if it waits for none. `is_backfill` says that the
    stream had rolled segments when the agent came; it ends when the agent has caught up. Every `look_back_s` it looks
    whether the archive has lost something to a damage that the broker still has.
    """

    def __init__(
        self,
        progress: ArchivingProgress,
        proving: StreamProving,
        history: HistoryCheck,
        losses: Losses,
        slices: SliceDelivery,
        *,
        turns: ReplicaTurns | None,
        is_backfill: bool,
        look_back_s: float,
    ) -> None:
        self._progress = progress
        self._proving = proving
        self._history = history
        self._losses = losses
        self._slices = slices
        self._turns = turns
        self.is_backfill = is_backfill
        self._look_back_s = look_back_s
        self._look_back_at = time.monotonic() + look_back_s
        self._taken_again: set[Offset] = set()

    @property
    def look_back_in_s(self) -> float:
        """Seconds until it looks for such a damage again."""
        return max(0.0, self._look_back_at - time.monotonic())

    async def begin(self) -> bool:
        """Find out how far the archive covers what is on this disk; return False if there is nothing yet."""
        progress = self._progress
        first_offset = await progress.disk.call(progress.disk.disk.first_offset)
        if first_offset is None:
            return False
        # Before `archived_to` moves past them: nobody looks at those offsets again.
        await self._losses.suspect(Offset(0), first_offset, unseen=True)
        # No farther than this disk has chunks: of a stream that was purged from the archive all offsets are covered.
        end = await progress.disk.on_log(DiskLog.next_offset)
        covered_to = await self._slices.covered_to(progress.identity.incarnation, first_offset, end or first_offset)
        # Pins are released by offsets alone, so first make sure that the archive has the same history as this disk.
        await progress.advance(await self._history.begin(first_offset, covered_to))
        return True

    async def archive_next(self) -> bool:
        """Archive one slice, or pass one hole; return whether there may be more to do at once."""
        progress = self._progress
        found = await progress.disk.on_log(next_slices, progress.archived_to, now_ms())
        if isinstance(found, Hole):
            await self._pass(found)
            return True
        return await self._archive_one_of(found)

    async def _archive_one_of(self, slices: list[ProvableSlice]) -> bool:
        """Archive the first slice that is proven. If none is, release what is refuted, or end a deleted stream."""
        progress = self._progress
        refuted: ChunkHeader | None = None
        for provable in slices:
            witness = provable.witness.header
            proof = await self._proving.prove(witness)
            if proof is not None and proof.verdict is ProofVerdict.COMMITTED:
                await self._archive(provable.slice)
                return True
            if proof is not None and proof.verdict in {ProofVerdict.ANOTHER, ProofVerdict.APART}:
                refuted = refuted or (proof.chunk if proof.verdict is ProofVerdict.ANOTHER else witness)
        # Only after all slices were tried: a shorter one may be proven though the longest is refuted.
        if refuted is not None:
            await self._release_refuted(refuted)
            return True
        # Both have to say so: a replica that moves away takes its directory with it, and the stream lives on.
        if not progress.is_live and await progress.identity.is_gone():
            await progress.look()  # the slices may have been cut before the deletion
            again = await progress.disk.on_log(next_slices, progress.archived_to, now_ms())
            if again != slices:
                # The segment that was being written to has rolled by the deletion, and was not tried yet. To end the
                # stream here would give it up as lost, although the broker may still prove it.
                return True
            return await self._archive_proven() or await self._finish_deleted()
        if time.monotonic() >= self._look_back_at:
            # Before the work: it comes here again, and must not begin once more.
            self._look_back_at = time.monotonic() + self._look_back_s
            await self._take_again()
        progress.state = StreamState.FOLLOWING
        progress.is_quiet = not slices and await self._is_quiet()
        return False

    async def _is_quiet(self) -> bool:
        """Tell whether only a change of the files makes something to archive or to announce, if nothing failed."""
        progress = self._progress
        if self._losses.are_suspected or progress.identity.lost:
            return False
        return await progress.disk.on_log(waits_for_files, progress.archived_to)

    async def _take_again(self) -> None:
        """Archive again what a scrub gave up because its object was damaged, if the broker still has it.

        Cost: a GetItem, and two Queries if the stream has gaps and losses.
        """
        progress, pins = self._progress, self._progress.disk.disk.pins
        first_live = await progress.disk.call(pins.first_live)
        if first_live is None:
            return
        for gap in await self._losses.damaged(first_live, progress.archived_to):
            if gap.first_offset in self._taken_again:
                continue
            log.warning(
                "%s: offsets %d to %d are archived again: %s",
                progress.identity.stream,
                gap.first_offset,
                gap.next_offset - 1,
                gap.reason,
            )
            former = progress.archived_to
            await progress.go_back(gap.first_offset)
            try:
                while (reached := progress.archived_to) < gap.next_offset:
                    await self.archive_next()
                    if progress.archived_to == reached:
                        return  # nothing proves it now
                # Once is enough: a copy that is damaged on this disk, too, is in quarantine now.
                self._taken_again.add(gap.first_offset)
            finally:
                await progress.advance(former)

    async def _release_refuted(self, refuted: ChunkHeader) -> None:
        """Release a segment that cannot be proven any more, after archiving what is proven of it.

        It stays if the broker still has it. Raises UnavailableError then.
        """
        progress = self._progress
        disk = progress.disk.disk
        archived_to = progress.archived_to
        found = await progress.disk.call(disk.refuted, refuted, archived_to)
        if found is None:
            raise UnavailableError(
                f"{progress.identity.stream}: the broker has another chunk at {refuted.chunk_id};"
                " this replica is behind"
            )
        # Then the next step looks again: `found` says what is lost beyond an `archived_to` that has moved since.
        if await self._archive_proven():
            return
        if found.lost is not None:
            # Written down before the pin is released: after a crash in between, it would else be a hole without reason.
            self._losses.lose(PendingLoss(found.lost.first_offset, found.lost.next_offset, UNPROVEN))
            # Only then: `archived_to` would otherwise jump over offsets before the loss that are still to be archived.
            if found.lost.first_offset == archived_to:
                archived_to = found.lost.next_offset
        log.warning(
            "%s: %s is released, because it is not known to be committed",
            progress.identity.stream,
            found.pin.path.name,
        )
        await progress.disk.call(disk.release, found.pin)
        await progress.advance(archived_to)

    async def _archive_proven(self) -> bool:
        """Archive the proven part of a segment that will never be proven whole; return whether there is such a part."""
        progress = self._progress
        part = await progress.disk.on_log(proven_slice, progress.archived_to, progress.identity.committed_to)
        # `committed_to` is about the log of the chunk that proved it, and this segment may be of another log.
        if part is None or not await progress.identity.is_proven(part.witness.header):
            return False
        await self._archive(part.slice)
        return True

    async def _archive(self, slice_: SegmentSlice) -> None:
        progress = self._progress
        stream = progress.identity.stream
        assert stream is not None
        is_contested = slice_.first_offset < self._history.contested_to
        # A contested slice is this disk's alone: no other agent brings it.
        if self._turns is not None and not is_contested:
            progress.state = StreamState.WAITING
            await self._turns.wait(slice_, stream)
        await self._slices.deliver(slice_, stream, progress, is_backfill=self.is_backfill, is_contested=is_contested)
        # Only now: the pin is released by this, and until the manifest covers the slice, it may be the only copy.
        await progress.advance(slice_.next_offset)

    async def _pass(self, hole: Hole) -> None:
        """Go on after offsets that are not on this disk. They are lost, unless the archive has them or gets them."""
        progress = self._progress
        pins = progress.disk.disk.pins
        if hole.first_offset < progress.archived_to:
            return  # a pin was given up while this task waited for the disk, and that loss is written down already
        if pins.failure is not None and min(pins.unpinned) < hole.next_offset:
            # The broker has the file; it is only not pinned yet. To pass it would be to lose it.
            raise pins.failure
        # Before `archived_to` moves past the hole: if this fails, the next step finds the hole again.
        await self._losses.suspect(hole.first_offset, hole.next_offset)
        await progress.advance(hole.next_offset)

    async def _finish_deleted(self) -> bool:
        """End a stream that the broker has deleted; what was never proven is lost.

        Return False, and end nothing, while it is not known of all offsets whether they are lost.
        """
        progress = self._progress
        if self._losses.are_suspected:
            return False
        left = await progress.disk.on_log(unproven_offsets, progress.archived_to)
        if left is not None:
            self._losses.lose(PendingLoss(left.first_offset, left.next_offset, UNPROVEN))
        # Announced before the state is final: the file that remembers the losses is removed after that.
        await self._losses.report()
        progress.state = StreamState.DELETED
        return True
