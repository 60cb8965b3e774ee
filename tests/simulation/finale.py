"""What comes after a play: a fresh reader of all that is archived, and in some worlds the purge of the stream."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from typing import TYPE_CHECKING

from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.errors import GapError, HeldError, PurgedError, StreamNotFoundError
from coldstream.format.chunk import ChunkType
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.lifecycle.deletion import delete_stream, undelete_stream
from coldstream.lifecycle.holds import put_hold, release_hold
from coldstream.lifecycle.purge import PurgeState
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.tend import TendReport, tend
from coldstream.manifest.spec import FIRST, AtOffset, OffsetSpec
from coldstream.resolve.resolver import NAMES_KEPT_S
from coldstream.store.control import ControlObjects
from coldstream.units import Offset
from tests.explore.base import HOUR_MS, INCARNATION, KEYS, STREAM
from tests.simulation.archive_source import SimulatedArchive

if TYPE_CHECKING:
    from tests.simulation.play import SimulatedWorld

PURGES = 0.3
"""Of so many worlds the stream is purged."""

DAY_S = 24 * 3600.0


async def read_all(world: SimulatedWorld, archive: SimulatedArchive) -> int:
    """Read what is archived, by the resolver, and hold it against what is confirmed and was not erased.

    Return how many messages were read that were erased.
    """
    erased, stream = world.stores.erased, world.stream
    ids, erased_messages, given = stream.ids, 0, Offset(0)
    spec: OffsetSpec | None = FIRST
    while spec is not None:
        start, spec = spec, None
        try:
            async with archive.read(start, None) as reading:
                async for batch in reading.batches():
                    for chunk in batch.chunks:
                        header = chunk.header
                        confirmed = stream.log[bisect_left(ids, header.chunk_id)]
                        if header.type is ChunkType.USER:
                            raw = header.to_bytes() + bytes(chunk.data)
                            told = f"a fresh reader is given {header.chunk_id} with other bytes"
                            assert raw == erased.form_of(confirmed), told
                            assert header.chunk_id >= given, f"{header.chunk_id} after {given}"
                        given = header.next_offset
                        erased_messages += len(erased.offsets & set(range(header.chunk_id, given)))
        except GapError as gap:
            spec = AtOffset(Offset(gap.next_offset))
    head = world.stores.head
    assert head is not None
    assert given == head.next_offset or not world.stores.table.state.entries, f"a fresh reader ends at {given}"
    return erased_messages


class StreamPurge:
    """Deletes the stream of a world: refused under a hold, undone once, then purged; and nothing comes back."""

    def __init__(self, world: SimulatedWorld, archive: SimulatedArchive) -> None:
        self._world = world
        self._archive = archive
        self._stores: LifecycleStores = world.stores.lifecycle(world.stores.table, world.stores.objects)

    async def run(self) -> None:
        """Do all of it."""
        stores, table = self._stores, self._world.stores.table
        entries = table.state.entries
        hold = put_hold(stores, INCARNATION, first_offset=Offset(0), next_offset=None, reason="a case", by="legal")
        assert self._delete() is None, "a stream with a hold is deleted"
        release_hold(stores, INCARNATION, hold.id, by="legal")
        assert self._delete() is not None
        await self._is_gone()
        undelete_stream(stores, INCARNATION, by="bob")
        assert table.state.entries == entries, "what comes back is not what was deleted"
        await read_all(self._world, self._archive)
        self._delete()
        self._stage()  # its event never comes
        assert self._tend().purge.state is PurgeState.WAITING, "a purge begins before the grace is over"
        # A hold on a deleted stream holds its purge up.
        hold = put_hold(stores, INCARNATION, first_offset=Offset(0), next_offset=Offset(1), reason="a case", by="legal")
        await asyncio.sleep(DAY_S)
        assert self._tend().purge.state is PurgeState.HELD
        assert table.state.entries == entries, "removed in spite of a hold"
        release_hold(stores, INCARNATION, hold.id, by="legal")
        for _ in range(5):
            self._tend()
            await self._is_gone()
            try:
                undelete_stream(stores, INCARNATION, by="bob")
            except PurgedError:
                pass
            else:
                raise AssertionError("a purge is undone")
            await asyncio.sleep(DAY_S)
        assert self._tend().purge.state is PurgeState.PURGED, "the purge does not end"
        self._check_bucket()
        self._world.queue.uploader.upload(self._stage())
        self._check_bucket()

    def _delete(self) -> object:
        try:
            return delete_stream(self._stores, INCARNATION, grace_ms=HOUR_MS, by="alice")
        except HeldError:
            return None

    def _tend(self) -> TendReport:
        (report,) = tend(self._stores, [STREAM])
        assert report.error is None, report.error
        return report

    async def _is_gone(self) -> None:
        await asyncio.sleep(NAMES_KEPT_S)  # by then every resolver has looked again
        spec: OffsetSpec
        for spec in (FIRST, AtOffset(Offset(1))):
            try:
                async with self._archive.read(spec, None) as reading:
                    async for batch in reading.batches():
                        raise AssertionError(f"a deleted stream is read from {batch.chunks[0].header.chunk_id} on")
            except StreamNotFoundError:
                continue
            raise AssertionError("a deleted stream is read to its end")

    def _stage(self) -> SegmentRolled:
        """Stage a segment once more, as an agent does that has it still."""
        objects = self._world.stores.objects
        chunks = self._world.stream.log[:3]
        end = Offset(chunks[-1].header.next_offset)
        data = SEGMENT_HEADER + b"".join(one.raw for one in chunks)
        key = KEYS.staged(INCARNATION, Offset(0), end)
        objects.put(key, data)
        info = objects.info(key)
        assert info is not None
        return SegmentRolled(STREAM, Offset(0), end, len(data), objects.bucket, key, etag=info.etag)

    def _check_bucket(self) -> None:
        world = self._world
        assert not world.stores.table.state.entries, "a purged stream has entries"
        ours = [key for key in world.stores.objects.objects if INCARNATION in key]
        left = [key for key in ours if not key.startswith(KEYS.control(INCARNATION))]
        assert not left, f"a purged stream has {left}"
        losses = [key for key in ours if key.startswith(KEYS.losses(INCARNATION))]
        assert not losses, f"a purged stream has {losses}"
        note = ControlObjects(world.stores.objects, KEYS).latest_floor(INCARNATION)
        assert note is not None
        assert note.purge_began_at is not None, "a rebuild would not know that the stream was purged"


def purges(seed: int) -> bool:
    """Tell whether the stream of a world is purged at its end."""
    return random.Random(f"purge {seed}").random() < PURGES
